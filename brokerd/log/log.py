"""A topic's log: its segments in order. Messages are appended to the newest; the oldest are removed."""

from __future__ import annotations

import errno
import mmap
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from brokerd.disk_thread import DiskStalled, DiskThread
from brokerd.file_header import HEADER_BYTES
from brokerd.log.batch import Batch, DpubBatch, HeaderBatch
from brokerd.log.commits import Commit
from brokerd.log.files import RETIRED, LogFiles
from brokerd.log.headers import SUFFIX, HeaderFile, entry_bytes
from brokerd.log.recovery import Orphan, recover_segments
from brokerd.log.segment import Segment
from nsqwire.scan import Input
from nsqwire.units import Nanoseconds

FIRST_SEGMENT_BYTES = 256 * 1024
"""Size of a topic's first segment. Each next one is twice as large, so that small topics take little disk space."""
LAST_SEGMENT_BYTES = 64 * 1024 * 1024
LAST_IN_MEMORY_BYTES = 8 * 1024 * 1024
"""Largest segment in memory. It is smaller, so that finished messages free memory sooner."""


class Log:
    """The messages of one topic, with consecutive numbers, in files of ``directory``; without one they are in memory.

    ``disk`` creates and removes the segments; without it, the caller's thread does.
    """

    def __init__(self, directory: Path | None, first_seq: int = 0, disk: DiskThread | None = None) -> None:
        self.directory = directory
        self.segments: list[Segment] = []
        self.next_seq = first_seq
        self._capacity = FIRST_SEGMENT_BYTES
        self._disk = DiskThread() if disk is None or directory is None else disk
        self._retired: Segment | None = None
        """A removed segment whose file is kept for reuse."""
        self._late: Segment | None = None
        """A segment that was created too late for the publish that needed it."""
        self.foreign_files: list[Path] = []
        """Files in the directory at startup that are not the broker's."""
        self._orphans: list[Orphan] = []
        self.has_headers = False
        """True once some message has headers."""

    @classmethod
    def recover(
        cls,
        directory: Path,
        id_head: bytes,
        known_end: int = 0,
        unsynced_ns: int | None = None,
        disk: DiskThread | None = None,
    ) -> tuple[Log, list[str]]:
        """Open and repair a log. Returns it, and a line for each file that was repaired, renamed or is missing.

        ``next_seq`` is at least ``known_end`` and above every number in any file, so that no number is used twice.
        ``unsynced_ns`` is that of :class:`brokerd.log.commit_repair.SegmentContext`. Raises OSError if a file cannot
        be read.
        """
        is_missing = not directory.exists()
        directory.mkdir(parents=True, exist_ok=True)
        log, files = cls(directory, disk=disk), LogFiles.of(directory)
        log.foreign_files = files.foreign_files
        if directory / RETIRED in files.side_files:
            (directory / RETIRED).unlink()
        segments, orphans, end, notes = recover_segments(files, id_head, known_end, unsynced_ns)
        log.segments, log.next_seq, log._orphans = segments, end, orphans
        log.has_headers = any(segment.headers is not None for segment in segments)
        if segments:
            newest = segments[-1]
            log._capacity = min(2 * newest.capacity, LAST_SEGMENT_BYTES)
            if newest.next_seq < end:
                newest.close_for_appends()
        return log, [f"{directory} is missing", *notes] if is_missing else notes

    def leave_out(self, count: int) -> tuple[int, int]:
        """Give the next ``count`` numbers to no message. Returns their range ``[start, end)``."""
        start, self.next_seq = self.next_seq, self.next_seq + count
        if self.segments:
            self.segments[-1].close_for_appends()
        return start, self.next_seq

    def gaps(self) -> list[tuple[int, int]]:
        """The ranges ``[start, end)`` above ``first_seq`` of messages that were written but are in no segment."""
        starts = [segment.next_seq for segment in self.segments]
        ends = [*(segment.first_seq for segment in self.segments[1:]), self.next_seq]
        return [(start, end) for start, end in zip(starts, ends, strict=False) if start < end]

    def file_of(self, seq: int) -> Path:
        """The file that message ``seq`` was written to. If none is known, the one that would begin with ``seq``."""
        assert self.directory is not None, "in memory nothing is missing"
        below = [segment for segment in self.segments if segment.first_seq <= seq < segment.written_end]
        return below[-1].path if below and below[-1].path else self.directory / f"{seq:020d}.log"

    @property
    def first_seq(self) -> int:
        """The lowest number in any segment, or ``next_seq`` if there is none."""
        return self.segments[0].first_seq if self.segments else self.next_seq

    @property
    def first_end(self) -> int:
        """The number after the oldest segment's last message. No segment can be removed while a lower one is needed."""
        return self.segments[0].next_seq if self.segments else self.next_seq

    def append(self, batch: Batch) -> tuple[int, Segment]:
        """Append the messages of ``batch`` together.

        Returns the first number and the segment that contains them. Raises OSError, with nothing appended, if the disk
        is full.
        """
        segment = self._segment_for(batch.nbytes)
        self._grow_index(segment, 1)
        first_seq = segment.append(batch)
        self.next_seq = segment.next_seq
        return first_seq, segment

    def reserve(self, nbytes: int) -> None:
        """Make sure that the newest segment has room for frames of ``nbytes``. Raises OSError."""
        self._segment_for(nbytes)

    def append_deferred(self, batch: DpubBatch) -> tuple[int, Segment]:
        """As ``append``, for messages that each have their own delay."""
        segment = self._segment_for(batch.nbytes)
        self._grow_index(segment, batch.count)
        first_seq = segment.append_deferred(batch)
        self.next_seq = segment.next_seq
        return first_seq, segment

    def append_with_headers(self, batch: HeaderBatch) -> tuple[int, Segment]:
        """As ``append``, for messages of which some have headers."""
        segment = self._segment_for(batch.nbytes)
        if segment.header_room < entry_bytes(batch.blocks) and segment.next_seq > segment.first_seq:
            segment = self._roll(batch.nbytes)
        self._grow_index(segment, 1)
        if segment.headers is None and segment.path is not None:
            create = partial(HeaderFile.create, segment.path.with_suffix(SUFFIX))
            segment.begin_headers(self._disk.run(create, self._remove_headers_late))
        self.has_headers = True
        first_seq = segment.append_with_headers(batch)
        self.next_seq = segment.next_seq
        return first_seq, segment

    def _grow_index(self, segment: Segment, records: int) -> None:
        """Allocate space for commit records in the segment's index. Raises OSError."""
        if (grow := segment.commits.growth(records)) is not None:
            segment.commits.adopt(self._disk.run(grow, segment.commits.adopt))

    def _remove_headers_late(self, headers: HeaderFile) -> None:
        """Remove a file that was created too late for the publish that needed it."""
        self._disk.run_at_last(headers.remove)

    def _segment_for(self, nbytes: int) -> Segment:
        segment = self.segments[-1] if self.segments else None
        return self._roll(nbytes) if segment is None or segment.room < nbytes else segment

    def append_commands(
        self, commands: Input, nbytes: int, line: bytes, limits: tuple[int, int], id_head: bytes, timestamp: Nanoseconds
    ) -> tuple[int, int, Segment | None]:
        """As Segment.append_commands. Also returns the segment, or None if there is none yet.

        Raises OSError if the segment cannot be mapped.
        """
        if not self.segments:
            return 0, 0, None
        segment = self.segments[-1]
        count, messages = segment.append_commands(commands, nbytes, line, limits, id_head, timestamp)
        self.next_seq += messages
        return count, messages, segment

    def _roll(self, nbytes: int) -> Segment:
        least = -(-(HEADER_BYTES + nbytes) // mmap.PAGESIZE) * mmap.PAGESIZE
        segment = self._new_segment(max(self._capacity, least), least)
        if self.segments:
            try:
                self._grow_index(self.segments[-1], 1)
                self.segments[-1].seal()
            except OSError:
                self._disk.run_at_last(segment.remove)  # otherwise the next attempt fails because the file exists
                raise
        self.segments.append(segment)
        largest = LAST_SEGMENT_BYTES if self.directory is not None else LAST_IN_MEMORY_BYTES
        self._capacity = min(2 * min(self._capacity, segment.capacity), largest)
        return segment

    def _new_segment(self, capacity: int, least: int) -> Segment:
        """An empty segment: the late one if it has at least ``least`` bytes, or one of ``capacity`` bytes.

        On a disk with less space it is smaller, but has at least ``least`` bytes. Raises OSError.
        """
        self._disk.require()
        if self._late is not None and self._late.capacity >= least:
            late, self._late = self._late, None
            return late
        self._remove_empty()
        if self._retired is None or self._retired.capacity < capacity:
            return self._create(capacity, max(FIRST_SEGMENT_BYTES, least))
        retired, self._retired = self._retired, None
        batches = self._expected_batches(retired.capacity)
        return self._run_creation(partial(self._reuse, retired, self.next_seq, batches))

    def _reuse(self, retired: Segment, first_seq: int, batches: int) -> Segment:
        try:
            return Segment.reuse(retired, first_seq, batches)
        except OSError:
            self._retired = retired
            raise

    def _remove_empty(self) -> None:
        """Remove empty segments: the next one has their name."""
        late, self._late = self._late, None
        if late is not None:
            self._disk.run_at_last(late.remove)
        if self.segments and self.segments[-1].next_seq == self.segments[-1].first_seq:
            self._disk.run_at_last(self.segments.pop().remove)

    def _run_creation(self, create: Callable[[], Segment]) -> Segment:
        try:
            return self._disk.run(create, self._keep_late)
        except DiskStalled:
            if self.segments:  # the file has the next number in its name, so no other segment may have that message
                self.segments[-1].close_for_appends()
            raise

    def _keep_late(self, segment: Segment) -> None:
        self._late = segment

    def _create(self, capacity: int, least: int) -> Segment:
        """Create a segment of ``capacity`` bytes; if the disk has less space, a smaller one of at least ``least``."""
        while True:
            try:
                create = partial(
                    Segment.create, self.directory, self.next_seq, capacity, self._expected_batches(capacity)
                )
                return self._run_creation(create)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT) or capacity <= least:
                    raise
                capacity = max(least, capacity // 2)

    def _expected_batches(self, capacity: int) -> int:
        """The number of batches that a segment of ``capacity`` bytes will have, if they stay as large as they are.

        An index that need not grow delays no message.
        """
        newest = self.segments[-1] if self.segments else None
        return len(newest.commits) * capacity // newest.capacity if newest else 0

    def segment_of(self, seq: int) -> Segment:
        """The segment with message ``seq``; for ``next_seq`` the newest. Raises IndexError if there is no segment."""
        return self.segments[max(0, bisect_right(self.segments, seq, key=lambda segment: segment.first_seq) - 1)]

    def contains(self, seq: int) -> bool:
        """Return whether message ``seq`` is in a segment."""
        return self.first_seq <= seq < self.next_seq and seq < self.segment_of(seq).next_seq

    def batch_of(self, seq: int) -> tuple[int, int]:
        """The range ``[start, end)`` of the batch with message ``seq``; the message alone if it is in no segment."""
        if not self.contains(seq):
            return seq, seq + 1
        commits = self.segment_of(seq).commits
        commit = commits[commits.find(seq)]
        return commit.first_seq, commit.next_seq

    def timestamp_of(self, seq: int) -> Nanoseconds | None:
        """When message ``seq`` was accepted, Unix ns; None if it is in no segment."""
        return self.segment_of(seq).timestamp_of(seq) if self.contains(seq) else None

    def first_since(self, timestamp: Nanoseconds) -> int:
        """The first message accepted at ``timestamp``, Unix nanoseconds, or later; ``next_seq`` if there is none."""
        segment = next((each for each in self.segments if each.last_timestamp >= timestamp), None)
        return self.next_seq if segment is None else segment.first_since(timestamp)

    def bytes_from_segment_of(self, seq: int) -> int:
        """Bytes of all frames from the segment with message ``seq`` on: at least those of the messages from it on."""
        position = max(0, bisect_right(self.segments, seq, key=lambda segment: segment.first_seq) - 1)
        return sum(each.end - each.start for each in self.segments[position:])

    def bytes_from(self, seq: int) -> int:
        """Bytes of the frames of message ``seq`` and all later ones. Raises OSError if a segment cannot be mapped."""
        position = bisect_right(self.segments, seq, key=lambda segment: segment.first_seq)
        later = sum(each.end - each.start for each in self.segments[position:])
        segment = self.segments[position - 1] if position else None
        return later + (segment.end - segment.offset_of(seq) if segment is not None and seq < segment.next_seq else 0)

    def frame(self, seq: int) -> memoryview | None:
        """The frame of message ``seq`` as at first delivery, a slice of the map; None if it is damaged or missing."""
        if not self.contains(seq):
            return None
        segment = self.segment_of(seq)
        if not segment.is_sound(seq):
            return None
        offset = segment.offset_of(seq)
        size = 4 + int.from_bytes(segment.map[offset : offset + 4])
        return segment.map[offset : offset + size]

    def deferred_from(self, seq: int) -> Iterator[Commit]:
        """Yield the commit records of deferred batches that end above ``seq``."""
        for segment in self.segments:
            if segment.next_seq > seq:
                yield from segment.commits.deferred_from(segment.commits.find(seq))

    def drop_below(self, seq: int) -> None:
        """Remove the segments whose messages are all below ``seq``, except the newest segment.

        One of the largest size is kept for reuse, because its space is allocated and its pages are in memory.
        """
        while len(self.segments) > 1 and self.segments[0].next_seq <= seq:
            segment = self.segments.pop(0)
            reusable = segment.path is not None and segment.capacity == LAST_SEGMENT_BYTES
            if reusable and self._retired is None:
                self._disk.run_at_last(partial(self._retire_or_remove, segment))
            else:
                segment.remove(in_a_thread=self._disk.has_thread)
        while self._orphans and self._orphans[0].end <= seq:
            self._disk.run_at_last(partial(self._orphans.pop(0).path.unlink, missing_ok=True))

    def _retire_or_remove(self, segment: Segment) -> None:
        if segment.retire():
            self._retired = segment
        else:
            segment.remove()

    def shrink(self) -> None:
        """Replace all segments by a small empty one, if that frees space. No message of the log may be needed.

        The name of its file preserves ``next_seq`` over a restart. Raises OSError, with no message removed.
        """
        if self.segments and self.segments[-1].capacity > FIRST_SEGMENT_BYTES and self.first_seq < self.next_seq:
            self._disk.require()
            self._remove_empty()
            create = partial(Segment.create, self.directory, self.next_seq, FIRST_SEGMENT_BYTES)
            small = self._run_creation(create)
            done, self.segments = self.segments, [small]
            self._capacity = 2 * FIRST_SEGMENT_BYTES
            for segment in done:
                segment.remove(in_a_thread=self._disk.has_thread)

    def remove_oldest(self) -> None:
        """Remove the oldest segment, even if it is needed, and the file kept for reuse. Their space is free at once."""
        self._disk.run_at_last(partial(self.segments.pop(0).remove, at_once=True))
        self._remove_retired()

    def _remove_retired(self) -> None:
        if self._retired is not None:
            retired, self._retired = self._retired, None
            self._disk.run_at_last(retired.remove)

    def unmap(self) -> None:
        """Close all descriptors and maps until they are needed again, and remove the file kept for reuse."""
        self._remove_retired()
        for segment in self.segments:
            segment.unmap()

    def close(self) -> None:
        """Close the files."""
        for segment in self.segments:
            segment.close()
        self.segments.clear()


def sync_directory(directory: Path) -> None:
    """fsync a directory. Otherwise a crash of the machine can lose the names of new files in it."""
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
