"""The platform's data folder, and its lock."""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Self

import psutil

from nsqplatform.console.environment import HOME, unusable_home
from nsqplatform.console.nsq.ports import Address, parse_address
from nsqplatform.console.private_folder import make_private

SOCKET_PATH_LIMIT = 100
"""Longest path of a Unix socket in bytes. ``sun_path`` has 108 on Linux and 104 on macOS, with the final zero."""


LOCK = "up.lock"
MOST_BYTES = 4096
"""Longest text in the lock's file: the pid and a line for each address."""


class HomeInUse(Exception):
    """Another ``nsq up`` runs on this folder."""

    def __init__(self, path: Path, pid: int | str) -> None:
        super().__init__(f"another nsq up (pid {pid or 'unknown'}) runs on {path}; stop it, or choose another --home")


class Running(NamedTuple):
    """The ``nsq up`` that runs on a data folder: its pid, and where it listens, by flag."""

    pid: int
    addresses: dict[str, Address]


def running(path: Path) -> Running | None:
    """The ``nsq up`` that runs on the folder; None if there is none."""
    lock = (path / "run" / LOCK).resolve()
    try:
        pid, _, addresses = lock.read_text().partition("\n")
    except OSError:
        return None
    # It is not locked here, not even for a moment, because an nsq up that starts then would be refused.
    if not pid.isdigit() or not has_open(int(pid), lock):
        return None
    pairs = (line.split(" ", 1) for line in addresses.splitlines())
    return Running(int(pid), {flag: parse_address(shown) for flag, shown in pairs})


def has_open(pid: int, path: Path) -> bool:
    """Whether the process has the file open; False if it has ended or is another user's."""
    try:
        return str(path) in {file.path for file in psutil.Process(pid).open_files()}
    except psutil.Error:
        return False


class Home:
    """The data folder and its subfolders. As a context manager, it holds the lock of one ``nsq up``."""

    def __init__(self, path: Path, addresses: Mapping[str, Address] | None = None) -> None:
        """``addresses``, by flag, are noted in the lock's file, for :func:`running`."""
        self.path = path
        self._addresses = dict(addresses or {})
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
            lock = os.open(self.run / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise unusable_home(self.path, error) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(lock, MOST_BYTES).decode().partition("\n")[0]
            os.close(lock)
            raise HomeInUse(self.path, holder) from None
        os.ftruncate(lock, 0)
        lines = [str(os.getpid()), *(f"{flag} {address}" for flag, address in self._addresses.items())]
        os.write(lock, "".join(f"{line}\n" for line in lines).encode())
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
