"""One archive file while it is written: plain lines, or gzip members, each whole once it is synced.

A writer that is killed may leave the beginning of a write at the end of its file. Nothing in it was answered for, so
:func:`repair` cuts it off: up to the last line break of a plain file, the last whole member of a gzip file. A file that
was closed ends with a line break, or with an empty member, and is known as whole by its last bytes.
"""

from __future__ import annotations

import errno
import fcntl
import os
import zlib
from typing import Final, Protocol

PIECE: Final = 1024 * 1024
GZIP: Final = 31  # zlib's word for a member of its own, header and check included
_MAGIC: Final = b"\x1f\x8b\x08"
_LOCKS_UNKNOWN: Final = (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL)


class InUse(Exception):
    """Another process is writing the file."""


class ArchiveFile(Protocol):
    """A file that is being written. Every method raises OSError."""

    path: str

    def append(self, data: bytes) -> None:
        """Write whole lines. They may not be on the disk yet, nor, compressed, in the file."""

    def sync(self) -> None:
        """Return when all that was appended is on the disk, and can be read as far as it goes."""

    def close(self) -> None:
        """Sync, and let go of the file."""


class _Written:
    """A descriptor that is locked against other writers, and cut back to what was synced when a write fails."""

    def __init__(self, path: str, *, exclusive: bool) -> None:
        """Opens or makes the file; ``exclusive``: it must not be there. Raises OSError, InUse."""
        self.path = path
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | (os.O_EXCL if exclusive else 0)
        self._fd = os.open(path, flags, 0o666)
        try:
            _lock(self._fd, path)
            sync_folder(os.path.dirname(path))
            self._synced = os.fstat(self._fd).st_size
        except BaseException:
            os.close(self._fd)
            raise

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError:
            self._give_back()
            raise

    def _fsync(self) -> None:
        os.fsync(self._fd)
        self._synced = os.fstat(self._fd).st_size

    def _give_back(self) -> None:
        """Nobody was told that these bytes are safe: without them the file is whole."""
        try:
            os.ftruncate(self._fd, self._synced)
        except OSError:
            pass  # the next start cuts them off


class PlainFile(_Written):
    """Lines, appended to what is there."""

    def __init__(self, path: str, *, exclusive: bool) -> None:
        super().__init__(path, exclusive=exclusive)
        self.cut = cut_line(self._fd)
        """Bytes of an unfinished line that were cut off its end."""
        self.size = self._synced = os.fstat(self._fd).st_size

    def append(self, data: bytes) -> None:
        self._write(data)

    def sync(self) -> None:
        self._fsync()

    def close(self) -> None:
        self.sync()
        os.close(self._fd)


class GzipFile(_Written):
    """Concatenated gzip members, one for what was appended between two syncs; readable by every tool for gzip."""

    def __init__(self, path: str, level: int) -> None:
        """Makes the file. Raises FileExistsError."""
        super().__init__(path, exclusive=True)
        self._level = level
        self._member: zlib._Compress | None = None

    def append(self, data: bytes) -> None:
        if self._member is None:
            self._member = zlib.compressobj(self._level, zlib.DEFLATED, GZIP)
        self._write(self._member.compress(data))

    def sync(self) -> None:
        if self._member is not None:
            self._write(self._member.flush())
            self._member = None
        self._fsync()

    def close(self) -> None:
        self.sync()
        self._write(empty_member())
        self._fsync()
        os.close(self._fd)


def sync_folder(folder: str) -> None:
    """Put a folder's names on the disk: a file whose name is lost in a crash is lost."""
    descriptor = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems have no such thing
            raise
    finally:
        os.close(descriptor)


def repair(path: str) -> int:
    """Cut what a killed writer left unfinished off the end of a plain file, or of a gzip file, by its name.

    Returns the number of bytes cut. Raises InUse where a writer is still at it, OSError.
    """
    descriptor = os.open(path, os.O_RDWR)
    try:
        _lock(descriptor, path)
        cut = (cut_member if path.endswith(".gz") else cut_line)(descriptor)
        os.fsync(descriptor)
        return cut
    finally:
        os.close(descriptor)


def cut_line(descriptor: int) -> int:
    """Cut a plain file after its last line break; returns the number of bytes cut. Raises OSError."""
    size = os.fstat(descriptor).st_size
    keep = size
    while keep:
        start = max(0, keep - PIECE)
        found = os.pread(descriptor, keep - start, start).rfind(b"\n")
        if found >= 0:
            keep = start + found + 1
            break
        keep = start
    if keep < size:
        os.ftruncate(descriptor, keep)
    return size - keep


def cut_member(descriptor: int) -> int:
    """Cut a gzip file after its last whole member and close it with an empty one; returns the number of bytes cut.

    A file that ends with an empty member is whole and left alone; any other is read from its beginning, once. Raises
    OSError.
    """
    size = os.fstat(descriptor).st_size
    tail = os.pread(descriptor, 64, max(0, size - 64))
    if _is_empty_member(tail[tail.rfind(_MAGIC) :]):
        return 0
    keep = _whole_members(descriptor)
    os.ftruncate(descriptor, keep)
    os.pwrite(descriptor, empty_member(), keep)
    return size - keep


def empty_member() -> bytes:
    """A gzip member of nothing, the mark of a file that was closed."""
    return zlib.compressobj(9, zlib.DEFLATED, GZIP).flush()


def _is_empty_member(data: bytes) -> bool:
    member = zlib.decompressobj(GZIP)
    try:
        return member.decompress(data) == b"" and member.eof and not member.unused_data
    except zlib.error:
        return False


def _whole_members(descriptor: int) -> int:
    """Where the last whole member ends."""
    whole = position = 0
    member = zlib.decompressobj(GZIP)
    while data := os.pread(descriptor, PIECE, position):
        position += len(data)
        try:
            while data:
                while not member.eof and data:
                    member.decompress(data, PIECE)
                    data = member.unused_data if member.eof else member.unconsumed_tail
                if member.eof:
                    whole = position - len(data)
                    member = zlib.decompressobj(GZIP)
        except zlib.error:
            break
    return whole


def _lock(descriptor: int, path: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InUse(f"{path} is being written by another process") from None
    except OSError as error:
        if error.errno not in _LOCKS_UNKNOWN:
            raise
    if not os.path.exists(path) or os.stat(path).st_ino != os.fstat(descriptor).st_ino:
        raise InUse(f"{path} was just moved away by another process")
