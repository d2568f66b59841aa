"""The platform's data folder, and its lock."""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
from pathlib import Path
from typing import Self

from nsqplatform.console.environment import HOME, unusable_home
from nsqplatform.console.private_folder import make_private

SOCKET_PATH_LIMIT = 100
"""Longest path of a Unix socket in bytes. ``sun_path`` has 108 on Linux and 104 on macOS, with the final zero."""


class HomeInUse(Exception):
    """Another ``nsq up`` runs on this folder."""


class Home:
    """The data folder and its subfolders. As a context manager, it holds the lock of one ``nsq up``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.brokerd = path / "brokerd"
        self.redis = path / "redis"
        self.run = path / "run"
        self._lock: int | None = None

    def __enter__(self) -> Self:
        """Create the folders and take the lock.

        Raises InvalidVariable, HomeInUse with the holder's pid, and OSError.
        """
        HOME.read({HOME.name: str(self.path)}, self.path)
        try:
            for folder in (self.brokerd, self.redis, self.run):
                folder.mkdir(parents=True, exist_ok=True)
            make_private(self.path)
            # Python opens files with close-on-exec, so a child that outlives `up` does not hold the lock.
            lock = os.open(self.run / "up.lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise unusable_home(self.path, error) from None
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
        for stale in self.run.glob("*.pid"):  # another process may have this pid by now
            stale.unlink()
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            os.close(self._lock)

    def redis_socket(self) -> Path:
        """Path of Redis's socket: in the data folder, or in the temporary folder if the path would be too long."""
        inside = self.path / "redis.sock"
        if len(os.fsencode(inside)) <= SOCKET_PATH_LIMIT:
            return inside
        digest = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:12]
        folder = Path(tempfile.gettempdir()) / f"nsq-{os.getuid()}-{digest}"
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.stat().st_uid != os.getuid():
            raise PermissionError(f"{folder} belongs to another user; set TMPDIR, or a shorter --home")
        return folder / "redis.sock"
