"""A segment: a run of a topic's messages in one preallocated, mapped file.

``<first seq, 20 digits>.log`` holds records, which are message frames as consumers are sent them, packed from byte 0;
``….idx`` holds their commit records. Writing is a copy into the map: the pages are the file's, so what was appended is
kept when the process is killed. The file is allocated when it is made, so a full disk is an error then and there and
never a fault while copying.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Callable
from pathlib import Path

from xxhash import xxh3_64_intdigest

from brokerd.log.commits import Commit, CommitIndex

SIZE = struct.Struct(">i")


class Segment:
    """One file of messages. ``path`` is its ``.log``, or None for a topic that is kept in memory only."""

    def __init__(self, path: Path | None, first_seq: int, map_: mmap.mmap, commits: CommitIndex) -> None:
        # The map is unmapped when the last slice of it is gone, which may be one that waits in a socket's buffer.
        self.path = path
        self.first_seq = first_seq
        self.map = memoryview(map_)
        self.commits = commits
        self.end = 0
        self.next_seq = first_seq

    @classmethod
    def create(cls, directory: Path | None, first_seq: int, capacity: int) -> Segment:
        """Make an empty segment of ``capacity`` bytes. Raises OSError, leaving no file behind."""
        if directory is None:
            return cls(None, first_seq, mmap.mmap(-1, capacity), CommitIndex(None, create=True))
        path = directory / f"{first_seq:020d}.log"
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(fd, 0, capacity)
                map_ = mmap.mmap(fd, capacity)
            finally:
                os.close(fd)
            return cls(path, first_seq, map_, CommitIndex(path.with_suffix(".idx"), create=True))
        except OSError:
            path.unlink(missing_ok=True)
            path.with_suffix(".idx").unlink(missing_ok=True)
            raise

    @classmethod
    def open(cls, path: Path, *, sealed: bool) -> tuple[Segment, int]:
        """Open a segment that is there, and return it with the number of damaged bytes that were cut from its tail.

        A ``sealed`` segment, one that a newer one follows, is taken as its commit records say; of the newest, and of a
        sealed one that is too short for them, each batch is checked and the first that does not hold ends it.
        """
        first_seq = int(path.stem)
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            size = os.fstat(fd).st_size
            os.posix_fallocate(fd, 0, max(size, mmap.PAGESIZE))  # a file cut to nothing could not be mapped
            map_ = mmap.mmap(fd, max(size, mmap.PAGESIZE))
        finally:
            os.close(fd)
        commits = CommitIndex(path.with_suffix(".idx"), create=False)
        segment = cls(path, first_seq, map_, commits)
        if sealed:
            commits.trust()
        if not sealed or (commits and commits[-1].end > size):
            commits.recover(segment.map, first_seq)
        if commits:
            last = commits[-1]
            segment.end, segment.next_seq = last.end, last.next_seq
        cut = 0 if sealed else segment._cut_tail()
        return segment, cut

    def _cut_tail(self) -> int:
        """Zero what stands behind the last good batch. Returns how many bytes of it were not zero already."""
        dirty_index = self.commits.erase_behind()
        cut, at = 0, self.end
        while at < len(self.map):
            chunk = bytes(self.map[at : at + 65536])
            if chunk.count(0) != len(chunk):
                cut += len(chunk) - chunk.count(0)
                self.map[at : at + len(chunk)] = bytes(len(chunk))
            elif not dirty_index and not cut:
                break  # an untouched block behind an untorn tail: nothing was written further on
            at += len(chunk)
        return cut + dirty_index

    @property
    def room(self) -> int:
        """Bytes that can still be appended."""
        return len(self.map) - self.end

    def append(
        self, write: Callable[[memoryview, int, int], int], count: int, timestamp: int, defer_ms: int
    ) -> tuple[int, int]:
        """Let ``write(map, offset, first seq)`` put ``count`` records at the end, then commit them.

        ``write`` returns the offset behind the last. Returns ``(first seq, bytes)``. Raises OSError if the disk has no
        room for the commit record; the records are then as if never written.
        """
        start, first_seq = self.end, self.next_seq
        end = write(self.map, start, first_seq)
        data_hash = xxh3_64_intdigest(self.map[start:end])
        self.commits.append(Commit(first_seq, end, timestamp, data_hash, count, defer_ms))
        self.end, self.next_seq = end, first_seq + count
        return first_seq, end - start

    def offset_of(self, seq: int) -> int:
        """Where message ``seq``, which is in this segment, begins."""
        position = self.commits.find(seq)
        commit = self.commits[position]
        offset = self.commits[position - 1].end if position else 0
        for _ in range(seq - commit.first_seq):
            offset += 4 + SIZE.unpack_from(self.map, offset)[0]
        return offset

    def timestamp_of(self, seq: int) -> int:
        """When message ``seq`` was accepted, Unix nanoseconds."""
        return self.commits[self.commits.find(seq)].timestamp

    def remove(self) -> None:
        """Delete the files. Slices of the map that a socket still has to send stay readable until it has."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)
            self.path.with_suffix(".idx").unlink(missing_ok=True)
