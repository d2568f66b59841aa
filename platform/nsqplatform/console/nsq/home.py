"""The folder of all data of a platform, and the lock on it."""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
from pathlib import Path
from typing import Self

SOCKET_PATH_LIMIT = 100
"""Bytes. ``sun_path`` holds 108 on Linux and 104 on macOS, its closing zero included."""


class HomeInUse(Exception):
    """Another ``nsq up`` runs on this folder."""


class Home:
    """The folder, its parts, and the lock that one ``nsq up`` holds on it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.brokerd = path / "brokerd"
        self.redis = path / "redis"
        self.run = path / "run"
        self._lock: int | None = None

    def __enter__(self) -> Self:
        """Make the folders and take the lock. Raises HomeInUse, naming the holder's pid, and OSError."""
        for folder in (self.brokerd, self.redis, self.run):
            folder.mkdir(parents=True, exist_ok=True)
        # Close-on-exec, as Python opens everything: a child that outlives `up` must not hold the lock.
        lock = os.open(self.run / "up.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(lock, 32).decode().strip()
            os.close(lock)
            raise HomeInUse(
                f"another nsq up (pid {holder or 'unknown'}) runs on {self.path}; stop it, or choose another --home"
            ) from None
        os.ftruncate(lock, 0)
        os.write(lock, f"{os.getpid()}\n".encode())
        self._lock = lock
        for stale in self.run.glob("*.pid"):  # another process may have that number by now
            stale.unlink()
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            os.close(self._lock)

    def redis_socket(self) -> Path:
        """Where the platform looks for it, if a socket's path may be that long, else in the temporary folder."""
        inside = self.path / "redis.sock"
        if len(os.fsencode(inside)) <= SOCKET_PATH_LIMIT:
            return inside
        digest = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:12]
        folder = Path(tempfile.gettempdir()) / f"nsq-{os.getuid()}-{digest}"
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.stat().st_uid != os.getuid():
            raise PermissionError(f"{folder} belongs to another user; set TMPDIR, or a shorter --home")
        return folder / "redis.sock"
