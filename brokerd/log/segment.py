"""A segment: a run of a topic's messages in one preallocated, mapped file.

``<first seq, 20 digits>.log`` has a header (:mod:`brokerd.file_header`), then message frames without gaps, as sent to
consumers, then zeros; a file of format 0 has no header. ``….idx`` has their commit records, and ``….hdr`` the headers
of those messages that have any (:mod:`brokerd.log.headers`).

A small batch is copied into the map; a large one is written by a system call, which changes the same pages. The pages
belong to the file, so appended messages are kept when the process is killed. The file's space is allocated when it is
created, so a full disk is an error at that time and never a fault while copying.
"""

from __future__ import annotations

import errno
import mmap
import os
import struct
from array import array
from bisect import bisect_left
from contextlib import suppress
from functools import partial
from pathlib import Path

from xxhash import xxh3_64_intdigest

from brokerd.file_header import HEADER_BYTES, SEGMENT, WRITTEN, data_start
from brokerd.kernel import append_commands
from brokerd.kernel.commit import RECORD_BYTES, pack_record
from brokerd.kernel.frames import SEQ_MASK
from brokerd.log.batch import Batch, DpubBatch, HeaderBatch
from brokerd.log.commit_repair import Repair, SegmentContext, repair_commits
from brokerd.log.commits import Commit, CommitIndex, index_bytes
from brokerd.log.files import RETIRED, NotAllocated
from brokerd.log.frames import Frames
from brokerd.log.headers import MAX_FILE_BYTES, SUFFIX, HeaderFile
from brokerd.log.reclamation import close_map, delete_in_a_thread, free_in_a_thread
from brokerd.new_map import map_new_file, read_ahead, require_readable
from nsqdaemon.descriptors import require_descriptor_for_file
from nsqwire.frame import MESSAGE_HEAD_BYTES
from nsqwire.scan import Input
from nsqwire.units import Nanoseconds

SIZE = struct.Struct(">I")  # unsigned, so that a damaged size never leads back
_HEADER = WRITTEN[SEGMENT.kind]
_TIMESTAMP = struct.Struct(">q")
_TIMESTAMP_AT = 8  # in a frame: after its size and its type
CHECKED_AHEAD = 64
"""Number of batches that are checked together when a cursor reaches an unchecked one."""
WRITTEN_FROM = 8 * 1024
"""Batches and runs of commands of at least this many bytes are written by a system call. A page that is first written
through the map costs a page fault and is filled with zeros first, and costs another fault after each sync. For a large
batch this would be most of the cost."""

FREED_IN_A_THREAD_FROM = 256 * 1024
"""The space of larger segments is freed in a thread: it takes the system long enough to delay messages."""

# The buffer in which a batch is assembled before it is written. All segments share it, each within one call.
_staging = memoryview(bytearray(512 * 1024))
_staged_record = memoryview(bytearray(RECORD_BYTES))


class Segment:
    """One file of messages. ``path`` is its ``.log``, or None for a segment in memory, of an ephemeral topic."""

    def __init__(self, path: Path | None, first_seq: int, map_: mmap.mmap, commits: CommitIndex) -> None:
        self.path = path
        self.first_seq = first_seq
        self.capacity = len(map_)
        """Size of the file in bytes."""
        self.found_bytes = self.capacity
        """Size of the file when it was opened."""
        self.written_end = first_seq
        """The number after the last message written to it before it was opened, even if that cannot be read."""
        self.damaged_records: list[int] = []
        """Positions of the commit records that were invalid when it was opened; emptied by :meth:`recover`."""
        self.is_named = False
        """True once the syncer was notified of the file; its next sync includes the file's name."""
        self._limit = self.capacity
        """The offset beyond which nothing is appended."""
        # The map is closed when its last slice is freed, which may wait in a connection's write buffer.
        self._map: mmap.mmap | None = map_
        self._view: memoryview | None = memoryview(map_)
        self._has_slices = False
        """True if slices of an earlier map may still be in use. They cannot be read once the file is truncated."""
        self.commits = commits
        self.headers: HeaderFile | None = None
        """The headers of its messages; None if no message has any."""
        self._file = -1
        self.start = data_start(map_[:HEADER_BYTES])
        """The offset of the first frame."""
        self.end = self.start
        self.next_seq = first_seq
        self.last_timestamp = 0
        """When the last batch was accepted, Unix nanoseconds."""
        self._walked, self._walked_from = array("Q"), 0  # offsets of the messages of the batch that was walked last
        self._sound = -1  # position of the commit that was last found to match
        self._unchecked_from: int | None = None  # position of the first commit not checked since opening

    @classmethod
    def create(cls, directory: Path | None, first_seq: int, capacity: int, batches: int = 0) -> Segment:
        """Create an empty segment of ``capacity`` bytes, whose index has space for that many ``batches`` at first.

        Raises NotAllocated or another OSError, and removes the files. Raises FileExistsError if a file has the name;
        that file is not changed.
        """
        if directory is None:
            return cls._begin(None, first_seq, mmap.mmap(-1, capacity), batches)
        path = directory / f"{first_seq:020d}.log"
        require_descriptor_for_file()
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            try:
                map_ = map_new_file(fd, capacity)
            finally:
                os.close(fd)
            return cls._begin(path, first_seq, map_, batches)
        except OSError as error:
            path.unlink(missing_ok=True)
            path.with_suffix(".idx").unlink(missing_ok=True)
            raise NotAllocated(error, capacity + index_bytes(batches)) from error

    @classmethod
    def reuse(cls, retired: Segment, first_seq: int, batches: int = 0) -> Segment:
        """As ``create``, in the file of a retired segment, whose pages are mapped already.

        Raises OSError; the retired segment can then be reused later.
        """
        assert retired.path is not None
        path = retired.path.with_name(f"{first_seq:020d}.log")
        assert retired._map is not None
        try:
            segment = cls._begin(path, first_seq, retired._map, batches)
            retired.path.rename(path)
        except OSError:
            path.with_suffix(".idx").unlink(missing_ok=True)
            raise
        return segment

    @classmethod
    def _begin(cls, path: Path | None, first_seq: int, map_: mmap.mmap, batches: int) -> Segment:
        commits = CommitIndex(None if path is None else path.with_suffix(".idx"), create=True, batches=batches)
        commits.begin(first_seq, HEADER_BYTES)
        if path is not None:  # headers of a former segment of this name
            path.with_suffix(SUFFIX).unlink(missing_ok=True)
        map_[:HEADER_BYTES] = _HEADER
        return cls(path, first_seq, map_, commits)

    def retire(self) -> bool:
        """Rename the file to keep it for reuse.

        False, with nothing changed, if a slice of it still waits to be sent, or if a file with that name exists.
        """
        assert self.path is not None
        aside = self.path.with_name(RETIRED)
        if self._has_slices or os.path.lexists(aside):
            return False
        self.map.release()
        assert self._map is not None
        try:
            self._map.resize(self.capacity)  # to its present size; this fails as long as slices exist
        except BufferError:
            self._view = memoryview(self._map)
            return False
        self.path.rename(aside)
        self.path.with_suffix(".idx").unlink(missing_ok=True)
        self._remove_headers()
        self.path = aside
        return True

    @classmethod
    def open(cls, path: Path) -> Segment:
        """Open an existing segment. It has no messages until :meth:`recover` is called. Raises OSError."""
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            found = os.fstat(fd).st_size
            size = max(found, mmap.PAGESIZE)
            os.posix_fallocate(fd, 0, size)  # an empty file cannot be mapped
            map_ = mmap.mmap(fd, size)
        finally:
            os.close(fd)
        require_readable(map_, 0, mmap.PAGESIZE, path)
        segment = cls(path, int(path.stem), map_, CommitIndex(path.with_suffix(".idx"), create=False))
        segment.found_bytes = found
        segment.damaged_records = segment.commits.damaged()
        segment.headers = HeaderFile.existing(path.with_suffix(SUFFIX))
        return segment

    def recover(self, context: SegmentContext) -> Repair:
        """Repair the commit records, and set the segment's end by them. Returns what was repaired.

        The batches are not checked here, but by :meth:`damaged_below` before they are first read.
        """
        commits = self.commits
        if commits and self._map is not None and self.path is not None:
            end = commits[-1].end
            require_readable(self._map, end, end + 1, self.path)
        repair = repair_commits(commits, self.damaged_records, self.map[: self.found_bytes], self.beginning, context)
        self.damaged_records = []
        if not commits:
            self.start = self.end = HEADER_BYTES
        if self.start and self.map[:HEADER_BYTES] != _HEADER:
            self.map[:HEADER_BYTES] = _HEADER
        if commits:
            last = commits[-1]
            self.end, self.next_seq = last.end, last.next_seq
            self.last_timestamp = last.timestamp
        if any(repair) and context.next_first_seq is None:  # messages missing after its end were probably in it
            self.written_end = max(self.written_end, context.end)
        self.written_end = max(self.written_end, self.next_seq)
        self._unchecked_from = 0 if commits else None
        if context.next_first_seq is None:
            self._clear_after_end(context.id_head)
        return repair

    def _clear_after_end(self, id_head: bytes) -> None:
        """Overwrite with zeros what follows the last batch: the frames of a publish that was never acknowledged.

        The next batch may be shorter. If its commit record is lost, its frames are taken only if nothing follows them,
        or former frames in a file that was reused. Those stay.
        """
        if not any(self.map[self.end : self.end + MESSAGE_HEAD_BYTES]):
            return
        frames = Frames(self.map[: self.found_bytes], id_head)
        lower = (
            ((low - self.next_seq) & SEQ_MASK) > SEQ_MASK // 2 for _, low in frames.undamaged(self.end, frames.used)
        )
        if not any(lower):
            self.map[self.end : frames.used] = bytes(frames.used - self.end)

    def seal(self) -> None:
        """Seal the index, since the segment is full, and close the descriptor for writing. Raises OSError."""
        self.commits.seal()
        self.close()
        if self.path is not None and self._map is not None:
            read_ahead(self._map)

    def close_for_appends(self) -> None:
        """Accept no further batches: the next number begins another segment."""
        self._limit = self.end

    def damaged_below(self, seq: int) -> list[Commit]:
        """Check batches that an earlier process wrote: those not checked yet up to message ``seq``, and some after it.

        Returns the damaged ones. None of their messages can be delivered. Raises OSError if they cannot be read now.
        """
        if self._unchecked_from is None:
            return []
        position, log = self._unchecked_from, self.map
        stop = min(len(self.commits), self.commits.find(seq) + CHECKED_AHEAD)
        damaged = []
        if position < stop and self._map is not None and self.path is not None:
            require_readable(self._map, self.commits[position].start, self.commits[stop - 1].end, self.path)
        while position < stop:
            commit = self.commits[position]
            if commit.messages and not commit.matches(log):
                damaged.append(commit)
            position += 1
        self._unchecked_from = None if position == len(self.commits) else position
        return damaged

    @property
    def checked_end(self) -> int:
        """Messages below this number are checked, or were written by this process."""
        return self.next_seq if self._unchecked_from is None else self.commits[self._unchecked_from].first_seq

    @property
    def map(self) -> memoryview:
        """The file's bytes. Maps the file again if needed; raises OSError if that fails."""
        view = self._view
        return self._mapped_again() if view is None else view

    @property
    def is_mapped(self) -> bool:
        """Whether reading needs no new map."""
        return self._view is not None

    def _mapped_again(self) -> memoryview:
        assert self.path is not None, "in memory, the map is all there is"
        require_descriptor_for_file()
        fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if os.fstat(fd).st_size < self.capacity:
                raise OSError(errno.EIO, "the segment's file was truncated", str(self.path))
            self._map = mmap.mmap(fd, self.capacity)
        finally:
            os.close(fd)
        self._view = memoryview(self._map)
        return self._view

    def unmap(self) -> None:
        """Close the descriptor and the map until they are needed again. Slices that wait to be sent stay readable."""
        if self.path is not None:
            self.close()
            self._close_map()
            self.commits.unmap()

    def _close_map(self) -> None:
        """Close the map, or leave this to its slices. Slices that wait to be sent stay readable."""
        map_, view, self._map, self._view = self._map, self._view, None, None
        if view is not None:
            view.release()
        if map_ is not None and not close_map(map_):
            self._has_slices = True

    @property
    def beginning(self) -> Commit:
        """A commit record before the first batch, which has the first number and the offset of the first frame."""
        return Commit(self.first_seq, self.start, 0, 0, 0, 0, 0)

    @property
    def room(self) -> int:
        """Bytes that can still be appended."""
        return self._limit - self.end

    def append(self, batch: Batch) -> int:
        """Write the frames of ``batch`` at the end, then their commit record. Returns the number of the first message.

        Raises OSError if the disk is full; the frames then do not count.
        """
        start, first_seq, nbytes = self.end, self.next_seq, batch.nbytes
        end = start + nbytes
        self.commits.reserve(1)  # may fail: frames that were written before it could extend beyond a shorter next batch
        if (file := self._file_for(nbytes)) < 0:
            data = self._view or self.map
            batch.write(data, start, first_seq)
            data_hash = xxh3_64_intdigest(data[start:end])
        else:
            batch.write(_staging, 0, first_seq)
            data_hash = xxh3_64_intdigest(_staging[:nbytes])
            self._write_staged(file, nbytes)
        timestamp, count = batch.timestamp_ns, batch.count
        self.commits.extend(pack_record(first_seq, end, timestamp, data_hash, count, batch.defer_ms, nbytes))
        self.end, self.next_seq = end, first_seq + count
        self.last_timestamp = timestamp
        return first_seq

    def append_with_headers(self, batch: HeaderBatch) -> int:
        """As ``append``. The headers are written first: a message with a commit record has them."""
        self.commits.reserve(1)
        headers = self._headers_to_write()
        end = headers.end
        headers.append(self.next_seq, batch.blocks, batch.timestamp_ns)
        try:
            return self.append(batch)
        except OSError:
            if headers.end > end:
                with suppress(OSError):  # headers that stay do not have the timestamp of the message with their number
                    headers.cut(self.next_seq)
            raise

    def _headers_to_write(self) -> HeaderFile:
        headers = self.headers
        if headers is None:
            headers = HeaderFile.create(None if self.path is None else self.path.with_suffix(SUFFIX))
            self.begin_headers(headers)
        if not self.commits.says_headers:
            self.commits.say_headers()
        return headers

    def begin_headers(self, headers: HeaderFile) -> None:
        """Use a new file for the headers of its messages."""
        self.headers = headers
        self.is_named = False  # the syncer has to include the name of the new file

    def open_headers(self) -> None:
        """Open the file with the headers, if there is one. Raises OSError unless it is missing."""
        if self.headers is not None:
            with suppress(FileNotFoundError):
                self.headers.open()

    @property
    def lacks_headers(self) -> bool:
        """True if its messages had headers, and their file is missing."""
        return self.headers is None and self.commits.says_headers

    @property
    def allocated_bytes(self) -> int:
        """Size of its file and of that with its headers."""
        return self.capacity if self.headers is None else self.capacity + self.headers.end

    @property
    def header_room(self) -> int:
        """Bytes of headers that can still be appended."""
        return MAX_FILE_BYTES - (0 if self.headers is None else self.headers.end)

    def _remove_headers(self, *, at_once: bool = True) -> None:
        if self.headers is not None:
            self.headers.remove(at_once=at_once)
            self.headers = None

    def append_deferred(self, batch: DpubBatch) -> int:
        """As ``append``, for messages that each have their own delay."""
        start, first_seq, nbytes = self.end, self.next_seq, batch.nbytes
        self.commits.reserve(batch.count)
        if (file := self._file_for(nbytes)) < 0:
            records = batch.write_deferred(self._view or self.map, start, first_seq, start)
        else:
            records = batch.write_deferred(_staging, 0, first_seq, start)
            self._write_staged(file, nbytes)
        self.commits.extend(records)
        self.end, self.next_seq = start + nbytes, first_seq + batch.count
        self.last_timestamp = batch.timestamp_ns
        return first_seq

    def _file_for(self, nbytes: int) -> int:
        """The descriptor for writing a batch of ``nbytes`` from the staging buffer; -1 if it is copied into the map."""
        return -1 if nbytes < WRITTEN_FROM or nbytes > len(_staging) else self._opened()

    def _write_staged(self, file: int, nbytes: int) -> None:
        if os.pwrite(file, _staging[:nbytes], self.end) != nbytes:
            raise OSError(errno.EIO, "a batch was written in part only", str(self.path))

    def append_commands(
        self, commands: Input, nbytes: int, line: bytes, limits: tuple[int, int], id_head: bytes, timestamp: Nanoseconds
    ) -> tuple[int, int]:
        """Append publishes with :func:`brokerd.kernel.frames.append_commands`, two to four times as fast as ``append``.

        ``limits`` are the largest message and body, in bytes. Returns the number of commands and of messages. Both are
        0, with nothing appended, if the input has other commands or there is no space; the caller then uses ``append``.
        """
        start, first_seq = self.end, self.next_seq
        index, at = self.commits.next_place
        file = self._opened() if nbytes >= WRITTEN_FROM else -1
        if file < 0:
            log, offset, log_end, record, record_at = self._view or self.map, start, self._limit, index, at
        elif at + RECORD_BYTES <= len(index):
            log_end = min(self._limit - start, len(_staging))
            log, offset, record, record_at = _staging, 0, _staged_record, 0
        else:
            return 0, 0
        count, messages, written = append_commands(
            commands,
            nbytes,
            line,
            *limits,
            log,
            offset,
            log_end,
            id_head,
            first_seq,
            timestamp,
            record,
            record_at,
            start,
        )
        if count:
            if file < 0:
                self.commits.appended()
            else:
                self._write_staged(file, written)
                self.commits.extend(_staged_record)
            self.end, self.next_seq = start + written, first_seq + messages
            self.last_timestamp = timestamp
        return count, messages

    def _opened(self) -> int:
        """The file's descriptor for writing; -1 for a segment in memory, or if the file cannot be opened."""
        if self._file < 0 and self.path is not None:
            with suppress(OSError):
                require_descriptor_for_file()
                self._file = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
        return self._file

    def close_file(self) -> None:
        """Close the descriptor for writing. The map stays open."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def close(self) -> None:
        """Close the descriptors. The map stays open."""
        self.close_file()
        if self.headers is not None:
            self.headers.close()

    def offset_of(self, seq: int) -> int:
        """The offset of message ``seq``, which is in this segment."""
        if self._walked_from <= seq < self._walked_from + len(self._walked):
            return self._walked[seq - self._walked_from]
        commit = self.commits[self.commits.find(seq)]
        if seq == commit.first_seq:
            return commit.start
        walked, offset = array("Q"), commit.start
        for _ in range(commit.messages):
            if offset + 4 > commit.end:
                return commit.start  # the batch is damaged, and none of its messages is delivered
            walked.append(offset)
            offset += 4 + SIZE.unpack_from(self.map, offset)[0]
        self._walked, self._walked_from = walked, commit.first_seq
        return walked[seq - commit.first_seq]

    def is_sound(self, seq: int) -> bool:
        """Return whether the batch of message ``seq`` is undamaged."""
        position = self.commits.find(seq)
        if position != self._sound and self.commits[position].matches(self.map):
            self._sound = position
        return position == self._sound

    def sound_range(self, seq: int) -> tuple[int, int]:
        """A range ``[start, end)`` of messages around ``seq``; empty if the batch of ``seq`` is damaged.

        Batches below ``checked_end`` are not checked again, and the range includes damaged ones among them:
        ``damaged_below`` has returned these.
        """
        if seq < self.checked_end:
            return self.first_seq, self.checked_end
        commit = self.commits[self.commits.find(seq)]
        return (commit.first_seq, commit.next_seq) if self.is_sound(seq) else (seq, seq)

    def timestamp_of(self, seq: int) -> Nanoseconds:
        """When message ``seq`` was accepted, Unix nanoseconds; as long as its batch is unchecked, that of the batch."""
        if seq >= self.checked_end:
            return self.commits[self.commits.find(seq)].timestamp
        return timestamp_in(self.map, self.offset_of(seq))

    def first_since(self, timestamp: Nanoseconds) -> int:
        """The first message of the first batch that was accepted at ``timestamp``, Unix nanoseconds, or later."""
        position = bisect_left(self.commits, timestamp, key=lambda commit: commit.timestamp)
        return self.commits[position].first_seq if position < len(self.commits) else self.next_seq

    def remove(self, *, at_once: bool = False, in_a_thread: bool = False) -> None:
        """Delete the files; if they are large, a thread frees their space, unless ``at_once``.

        With ``in_a_thread`` that thread also deletes them, however long the disk takes. Slices of the map that wait to
        be sent stay readable.
        """
        self.close_file()
        if at_once or self.capacity < FREED_IN_A_THREAD_FROM:
            _delete(self.path, self.headers, at_once=True)
            self._close_map()
            self.headers = None
            return
        delete = partial(_delete, self.path, self.headers, at_once=False)
        fd = -1 if in_a_thread else delete()
        map_, view, self._map, self._view, self.headers = self._map, self._view, None, None, None
        if view is not None:
            view.release()
        nbytes, index = 0 if self._has_slices else self.capacity, self.commits.detach()
        if in_a_thread:
            delete_in_a_thread(delete, nbytes, map_, index)
        else:
            free_in_a_thread(fd, nbytes, map_, index)


def _delete(path: Path | None, headers: HeaderFile | None, *, at_once: bool) -> int:
    """Delete a segment's files. Returns the descriptor of the ``.log``, to free its space; -1 if ``at_once``."""
    fd = -1
    if path is not None:
        if not at_once:
            with suppress(OSError):
                fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        path.unlink(missing_ok=True)
        path.with_suffix(".idx").unlink(missing_ok=True)
    if headers is not None:
        headers.remove(at_once=at_once)
    return fd


def timestamp_in(frames: memoryview | bytes, offset: int = 0) -> Nanoseconds:
    """When the message whose frame begins at ``offset`` was accepted, Unix nanoseconds."""
    return int(_TIMESTAMP.unpack_from(frames, offset + _TIMESTAMP_AT)[0])
