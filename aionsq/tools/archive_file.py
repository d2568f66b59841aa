"""One archive file while it is written: plain lines, or gzip members that are complete once synced.

A killed writer may leave a partial write at the end of its file. Its messages were not finished, so :func:`repair`
truncates the file after the last line break (plain) or the last complete member (gzip). A closed file ends with a line
break or an empty member, so its last bytes show that it is complete.
"""

from __future__ import annotations

import errno
import fcntl
import os
import zlib
from typing import Final, Protocol

PIECE: Final = 1024 * 1024
GZIP: Final = 31  # zlib's wbits for a gzip member with header and checksum
_MAGIC: Final = b"\x1f\x8b\x08"
_LOCKS_UNKNOWN: Final = (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL)


class InUse(Exception):
    """Another process is writing the file."""


class ArchiveFile(Protocol):
    """A file that is being written. Methods raise OSError."""

    path: str

    def append(self, data: bytes) -> None:
        """Write complete lines. Until the next sync they may not be on disk and, if compressed, not in the file."""

    def sync(self) -> None:
        """Sync everything appended. The file is complete and readable up to its end afterwards."""

    def close(self) -> None:
        """Sync and close the file."""


class _Written:
    """A file descriptor with a lock against other writers. After a failed write, the file is truncated to its last
    synced length."""

    def __init__(self, path: str, *, exclusive: bool) -> None:
        """Opens or creates the file; ``exclusive``: it must not exist. Raises OSError, InUse."""
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
            self._truncate_to_synced()
            raise

    def _fsync(self) -> None:
        os.fsync(self._fd)
        self._synced = os.fstat(self._fd).st_size

    def _truncate_to_synced(self) -> None:
        """Truncate the file to its last synced length. Messages beyond that length were not finished."""
        try:
            os.ftruncate(self._fd, self._synced)
        except OSError:
            pass  # the next start truncates the file


class PlainFile(_Written):
    """A plain file; lines are appended to existing content."""

    def __init__(self, path: str, *, exclusive: bool) -> None:
        super().__init__(path, exclusive=exclusive)
        self.cut = cut_line(self._fd)
        """Bytes of an incomplete line that were removed from the end."""
        self.size = self._synced = os.fstat(self._fd).st_size

    def append(self, data: bytes) -> None:
        """Write lines. Raises OSError; the file is then truncated to its last synced length."""
        self._write(data)

    def sync(self) -> None:
        """Write everything to disk. Raises OSError."""
        self._fsync()

    def close(self) -> None:
        """Sync and close the file. Raises OSError."""
        self.sync()
        os.close(self._fd)


class GzipFile(_Written):
    """A new file of concatenated gzip members, one for the lines between two syncs. Every gzip tool can read it."""

    def __init__(self, path: str, level: int) -> None:
        """Creates the file. Raises FileExistsError."""
        super().__init__(path, exclusive=True)
        self._level = level
        self._member: zlib._Compress | None = None

    def append(self, data: bytes) -> None:
        """Write lines. Raises OSError; the file is then truncated to its last synced length."""
        if self._member is None:
            self._member = zlib.compressobj(self._level, zlib.DEFLATED, GZIP)
        self._write(self._member.compress(data))

    def sync(self) -> None:
        """End the gzip member and write everything to disk. Raises OSError."""
        if self._member is not None:
            self._write(self._member.flush())
            self._member = None
        self._fsync()

    def close(self) -> None:
        """Sync and close the file, with an empty last member. Raises OSError."""
        self.sync()
        self._write(empty_member())
        self._fsync()
        os.close(self._fd)


def sync_folder(folder: str) -> None:
    """Sync a folder, so that a crash does not lose the names of its files."""
    descriptor = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot sync a folder
            raise
    finally:
        os.close(descriptor)


def repair(path: str) -> int:
    """Remove the partial write of a killed writer from the end of a file, which is gzip if its name ends in ``.gz``.

    Returns the number of bytes removed. Raises InUse if a process is writing the file, and OSError.
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
    """Truncate a plain file after its last line break; returns the number of bytes removed. Raises OSError."""
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
    """Truncate a gzip file after its last complete member and append an empty one; returns the bytes removed.

    A file that ends with an empty member is complete and stays unchanged. Any other file is read once from its start.
    Raises OSError.
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
    """An empty gzip member, which marks a closed file."""
    return zlib.compressobj(9, zlib.DEFLATED, GZIP).flush()


def _is_empty_member(data: bytes) -> bool:
    member = zlib.decompressobj(GZIP)
    try:
        return member.decompress(data) == b"" and member.eof and not member.unused_data
    except zlib.error:
        return False


def _whole_members(descriptor: int) -> int:
    """Return the end of the last complete member, as a byte offset."""
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
