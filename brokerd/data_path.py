"""The data path: the directory that a broker locks, and in which it stores everything."""

from __future__ import annotations

import errno
import fcntl
import os
import re
from pathlib import Path

from brokerd import nsqd_import
from brokerd.journal.recovery import FILES as JOURNAL_FILES

TOPICS = "topics"
SET_ASIDE = "set-aside"
"""Directory that ``nsq repair`` moves unusable files to."""
LAST_STATS, PREVIOUS_STATS, STATS_WRITING = "last-stats.json", "previous-stats.json", "last-stats.json.writing"
"""Figures of an ended process (brokerd/last_stats.py)."""
MIRROR_STATE = "mirror.json"
_MIRROR = (MIRROR_STATE, "mirror.stamps", "mirror.check")
"""A pair's state (brokerd/replica.py, stamp_file.py), and the file that a member writes to find out whether the disk
works."""
_STATS = (LAST_STATS, PREVIOUS_STATS, STATS_WRITING)
_USED = frozenset((TOPICS, SET_ASIDE, nsqd_import.STAGING))
"""Directories that exist only if a broker or ``nsq repair`` has used the data path."""
_DIRECTORIES = re.compile(rf"{TOPICS}|{SET_ASIDE}|{nsqd_import.KEPT_NAME.pattern}|lost\+found")


class DataPathLocked(Exception):
    """The data path cannot be locked; the text is nsqd's. The cause is an OSError."""


class NotADataPath(Exception):
    """No broker has used the directory: it contains no file that a broker writes or imports."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} is not a data path: it has no checkpoint, journal.* or topics/, nor nsqd.dat")


class DataPathMoved(OSError):
    """The data path is not the directory that was opened: it was renamed, removed or replaced."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.ESTALE, "the data path is not the directory that was opened", str(path))


class DataPath:
    """A locked data path. It stays locked until ``close``, or until the process ends."""

    def __init__(self, shown: str) -> None:
        """Lock the directory ``shown``, as the user named it. Raises DataPathLocked, OSError."""
        self.path = Path(shown).resolve()
        self._fd = _lock(self.path, shown)
        self._opened = os.fstat(self._fd)

    def check(self) -> None:
        """Raise DataPathMoved unless the path leads to the directory that was opened."""
        try:
            found = os.stat(self.path)
        except OSError:
            raise DataPathMoved(self.path) from None
        if not os.path.samestat(found, self._opened):
            raise DataPathMoved(self.path)

    def close(self) -> None:
        """Unlock the directory. A second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def foreign_files(self) -> list[Path]:
        """The entries of the data path that are not a broker's. Raises OSError."""
        with os.scandir(self.path) as entries:
            return sorted(self.path / entry.name for entry in entries if not _is_ours(entry))

    def require_used(self) -> None:
        """Raise NotADataPath unless a broker, ours or nsqd, has used the directory. Raises OSError."""
        with os.scandir(self.path) as entries:
            if not any(_is_of_a_broker(entry) for entry in entries):
                raise NotADataPath(self.path)


def _is_of_a_broker(entry: os.DirEntry[str]) -> bool:
    if entry.name in _USED:
        return entry.is_dir()
    return entry.name == nsqd_import.METADATA or JOURNAL_FILES.fullmatch(entry.name) is not None


def _is_ours(entry: os.DirEntry[str]) -> bool:
    if JOURNAL_FILES.fullmatch(entry.name) or entry.name in (*_STATS, *_MIRROR):
        return entry.is_file(follow_symlinks=False)
    return _DIRECTORIES.fullmatch(entry.name) is not None and entry.is_dir()


def _lock(data_path: Path, shown: str) -> int:
    try:
        fd = os.open(data_path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise DataPathLocked(
            f"failed to lock data-path: open {shown}: {os.strerror(error.errno or 0).lower()}"
        ) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        if error.errno != errno.EWOULDBLOCK:
            raise
        raise DataPathLocked(
            f"failed to lock data-path: cannot flock directory {shown} - resource temporarily unavailable "
            "(possibly in use by another instance of nsqd)"
        ) from error
    return fd
