"""The journal: each change of state is appended to the file ``journal.<generation>`` as it happens.

A journal is a preallocated, mapped file: a header (:mod:`brokerd.file_header`), ``length u32 | check u32 | record`` for
each record, zeros. ``check`` is the low half of the record's XXH3-64. A file of format 0 has no header. Because the
file is mapped, every record is kept when the process is killed. When a journal is full, the next generation begins in
a file that was allocated when this one was half full. At the end of that turn of the event loop, when no change is
half done, the whole state of the node is written to a new checkpoint (:mod:`brokerd.journal.checkpoint`). If the disk
has no space for it, the older journals stay: recovery reads the last checkpoint and then every later record.

When journal and disk are both full, records about messages are dropped. Replay then redelivers messages but loses none:
operations that depend on a record reserve room first (:meth:`Journal.require`) and are refused if there is none.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from brokerd.disk_thread import DiskThread
from brokerd.file_header import HEADER_BYTES, JOURNAL, WRITTEN, data_start
from brokerd.journal import records
from brokerd.journal.checkpoint import CHECKPOINT, PREVIOUS, Position, position_of, write_checkpoint
from brokerd.journal.recovery import RECORD_HEAD, Recovered, journal_files, next_generation
from brokerd.journal.state import NodeState
from brokerd.kernel import write_record
from brokerd.kernel.waiting import WAITING_RANGE
from brokerd.new_map import map_new_file
from brokerd.zero_padding import end_of_contents

JOURNAL_BYTES = 16 * 1024 * 1024
RETRY_S = 1.0
"""Delay before a retry after the disk was full; longer if a snapshot of the state takes long."""

SNAPSHOTS_PER_PAUSE = 20
"""Lower bound on the delay before a retry, as a multiple of the time that a snapshot takes."""
CHANGE_BYTES = 256
"""Upper bound on the size of the records of one change of a topic or channel, heads included."""
_RESERVED = 16
"""The last 1/16 of a journal is reserved for changes of topics and channels."""
_HEADER = WRITTEN[JOURNAL.kind]
_DISK_FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))

Background = Callable[[Callable[[], None], Callable[[BaseException | None], None]], None]
"""Runs the first function in another thread, then the second in the journal's thread, with the error or None."""


def room_for(changes: Iterable[bytes]) -> int:
    """The bytes that records take in a journal, including their heads."""
    return sum(RECORD_HEAD.size + len(record) for record in changes)


def room_for_waiting(ranges: int) -> int:
    """An upper bound on the bytes that the ``waiting_ranges`` records of ``ranges`` ranges take, including heads."""
    count = ranges // records.WAITING_RANGES_IN_A_RECORD + 1
    return ranges * WAITING_RANGE.size + count * (records.CHANNEL.size + RECORD_HEAD.size)


class NotCheckpointed(Exception):
    """The last checkpoint could not be written; the text gives the reason and what a restart will do."""


class Journal:
    """An open journal.

    ``snapshot`` returns the node's whole state; ``failed`` is called with each disk error. ``call_soon`` runs a
    function after the current change is complete, ``call_later`` after a number of seconds. ``check_directory`` raises
    OSError if the path leads to another directory; no checkpoint is then written.
    """

    def __init__(
        self,
        directory: Path,
        found: Recovered,
        snapshot: Callable[[], NodeState],
        failed: Callable[[OSError], None],
        *,
        call_soon: Callable[[Callable[[], None]], object],
        call_later: Callable[[float, Callable[[], None]], object],
        check_directory: Callable[[], None] = lambda: None,
        tolerates_full_disk: bool = True,
        disk: DiskThread | None = None,
    ) -> None:
        """Continue the journal that recovery ``found``, and write a checkpoint of the present state.

        Raises OSError. A full disk is an error only for a new data path, or without ``tolerates_full_disk``.
        """
        self._directory = directory
        self._snapshot = snapshot
        self._failed = failed
        self._call_soon = call_soon
        self._call_later = call_later
        self._check_directory = check_directory
        self._disk = DiskThread() if disk is None else disk
        self._in_background: Background | None = None
        self._map = mmap.mmap(-1, mmap.PAGESIZE)
        self._spare: mmap.mmap | None = None
        self._generation = found.end.generation
        self._capacity = self._offset = self._limit = 0
        self._before = 0
        """Bytes of records in the previous journals of this process."""
        self._checkpointed_at = 0
        self._newest, self._previous = found.newest, found.previous
        self._behind = True
        """The state has changes that are in no record and no checkpoint."""
        self._dropped = False
        """Records were dropped since the last snapshot was taken."""
        self._has_gap = False
        """Records were dropped since this generation began."""
        self._stuck: OSError | None = None
        """Why the next generation cannot begin; None if it can."""
        self._error: OSError | None = None
        self._ticket = self._written_ticket = 0
        self._due = self._writing = self._closed = False
        self._pause_s = RETRY_S
        self._lock = threading.Lock()
        tolerates_full_disk = tolerates_full_disk and found.end != Position(0, 0)
        try:
            self._reopen(found.end)
            if not self._capacity:
                self._switch()
            self._keep_two_checkpoints()
        except OSError as error:
            if not tolerates_full_disk or error.errno not in _DISK_FULL:
                raise
            if self._mark_gap() and self._offset <= self._soft_end:
                self._written(error)
            else:
                self._fail(error)

    def _reopen(self, end: Position) -> None:
        """Continue in the existing journal, if its space can be allocated."""
        path = self._path(end.generation)
        if not path.is_file():
            return
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            size = max(JOURNAL_BYTES, os.fstat(fd).st_size)
            with contextlib.suppress(OSError):  # on a full disk, writing to an unallocated page would raise SIGBUS
                os.posix_fallocate(fd, 0, size)
                map_ = mmap.mmap(fd, size)
                start = data_start(map_[:HEADER_BYTES])
                if start:
                    map_[:HEADER_BYTES] = _HEADER
                self._use(map_, max(start, end.offset))
                with memoryview(self._map) as data:
                    torn = end_of_contents(data, self._offset) - self._offset
                self._map[self._offset : self._offset + torn] = bytes(torn)
        finally:
            os.close(fd)

    def _keep_two_checkpoints(self) -> None:
        self.checkpoint()
        if self._previous is None:
            self.checkpoint()

    def write_in_background(self, background: Background) -> None:
        """Write checkpoints with ``background(work, done)`` from now on, so that clients do not wait for them."""
        self._in_background = background

    @property
    def paths(self) -> list[Path]:
        """The journals since the newest checkpoint, which a recovery would read."""
        first = self._generation if self._newest is None else self._newest.generation
        return [self._path(number) for number in range(max(1, first), self._generation + 1)]

    @property
    def used(self) -> int:
        """Bytes written since the last checkpoint."""
        return self._before + self._offset - self._checkpointed_at

    @property
    def written(self) -> int:
        """Bytes written by this process, including the earlier contents of the journal that it continued."""
        return self._before + self._offset

    @property
    def end(self) -> Position:
        """The end of the last record."""
        return Position(self._generation, self._offset)

    @property
    def capacity(self) -> int:
        """Size of the present journal's file."""
        return self._capacity

    @property
    def checkpointed(self) -> Position | None:
        """The position of the newest checkpoint; None while one is being written, or if there is none."""
        return None if self._writing else self._newest

    @property
    def is_complete(self) -> bool:
        """True if checkpoint and journals contain every change."""
        return not self._behind

    @property
    def error(self) -> str | None:
        """Why the last checkpoint or switch of generations failed; None after a success."""
        return None if self._error is None else str(self._error)

    # -- records --------------------------------------------------------------------------------------------------

    def append(self, record: bytes) -> None:
        """Append a record. If journal and disk are full, droppable records are dropped, and ``failed`` is called."""
        if self._offset + RECORD_HEAD.size + len(record) > self._limit and not self._make_room(record):
            return
        self._put(record)

    def append_if_complete(self, record: bytes) -> None:
        """Append a record, or drop it too if an earlier one was dropped since the last checkpoint.

        For changes that replay must not make to a state that lacks others: an emptied channel keeps its dead messages,
        but those whose deaths were dropped would be removed as well.
        """
        if self._behind:
            self._dropped = self._has_gap = True
        else:
            self.append(record)

    def require(self, nbytes: int, *, of_messages: bool = False) -> None:
        """Check that the next records, of ``nbytes`` with their heads, can be appended. May begin the next generation.

        Raises OSError if they cannot; for records ``of_messages``, also if any was dropped since the last checkpoint.
        """
        fits = self._offset + nbytes <= self._soft_end and self._stuck is None
        if not fits and (of_messages or self._offset + nbytes > self._capacity):
            try:
                self._switch(nbytes)
            except OSError as error:
                self._fail(error)
                raise
        if of_messages and self._behind:
            raise OSError(errno.ENOSPC, "the disk was full, and no checkpoint was written since")

    def _put(self, record: bytes) -> None:
        self._offset = write_record(self._map, self._offset, record)

    def _make_room(self, record: bytes) -> bool:
        """Begin the next generation, or use the reserve. False if there is no room for the record."""
        end = self._offset + RECORD_HEAD.size + len(record)
        if self._stuck is None:
            if end <= self._soft_end:
                self._allocate_spare()
                self._limit = self._soft_end
                return True
            try:
                self._switch(end - self._offset)
                return True
            except OSError as error:
                self._fail(error)
        if record[0] not in records.DROPPABLE and end <= self._capacity:
            return True
        if not self._has_gap:
            self._mark_gap()
        self._dropped = self._has_gap = self._behind = True
        return False

    def _mark_gap(self) -> bool:
        """Append a record that marks a gap: later records are missing. False if there is no room for it."""
        mark = records.journal_begun(self._generation, is_complete=False, previous_end=0)
        if self._offset + RECORD_HEAD.size + len(mark) > self._capacity:
            return False
        self._put(mark)
        return True

    # -- generations ----------------------------------------------------------------------------------------------

    @property
    def _soft_end(self) -> int:
        """The end of the space for records about messages; the reserve begins here."""
        return self._capacity - self._capacity // _RESERVED

    def _use(self, map_: mmap.mmap, offset: int) -> None:
        self._map.close()
        self._map, self._offset, self._capacity = map_, offset, len(map_)
        self._limit = max(0, min(self._capacity // 2, self._soft_end))

    def _switch(self, nbytes: int = 0) -> None:
        """Begin the next generation, with room for ``nbytes``. Raises OSError; the old journal then stays in use."""
        generation = next_generation(self._directory, self._generation)
        if self._spare is not None and nbytes > len(self._spare) // 2:
            self._spare.close()
            self._spare = None
        map_, self._spare = self._spare or self._allocate(generation, nbytes), None
        ended, self._generation = self._offset, generation
        self._before += ended
        self._use(map_, HEADER_BYTES)
        self._stuck = None
        is_complete = not (self._has_gap or self._behind)
        self._put(records.journal_begun(generation, is_complete=is_complete, previous_end=ended))
        self._has_gap = False
        self._checkpoint_soon()

    def _fail(self, error: OSError) -> None:
        """Report that the next generation cannot begin, and schedule a retry."""
        self._failed(error)
        if self._stuck is None:
            self._call_later(self._pause_s, self._retry)
        self._stuck = self._error = error
        self._limit = min(self._limit, self._offset)  # no record about messages may be appended after a dropped one

    def _retry(self) -> None:
        if self._closed or self._stuck is None:
            return
        self._stuck = None
        try:
            self._switch()
        except OSError as error:
            self._fail(error)
            self._checkpoint_soon()  # a checkpoint removes older journals, which frees enough space for the next

    def _allocate_spare(self) -> None:
        if self._spare is None:
            with contextlib.suppress(OSError):  # retried when it is needed
                self._spare = self._allocate(next_generation(self._directory, self._generation))

    def _allocate(self, generation: int, nbytes: int = 0) -> mmap.mmap:
        return self._disk.run(partial(self._create, generation, nbytes), self._keep_late)

    def _keep_late(self, map_: mmap.mmap) -> None:
        """Keep a journal that was created too late. It is still the next one, because none was begun meanwhile."""
        if self._closed:
            map_.close()
        else:
            self._spare = map_

    def _create(self, generation: int, nbytes: int) -> mmap.mmap:
        size = max(JOURNAL_BYTES, -(-2 * nbytes // mmap.PAGESIZE) * mmap.PAGESIZE)
        path = self._path(generation)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            map_ = map_new_file(fd, size)
        except OSError:
            path.unlink()
            raise
        finally:
            os.close(fd)
        map_[:HEADER_BYTES] = _HEADER
        return map_

    def _path(self, generation: int) -> Path:
        return self._directory / f"journal.{generation}"

    # -- checkpoints ----------------------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Write a checkpoint now. No change may be half done. Raises OSError, with nothing lost."""
        self._take()()
        self._checkpointed()

    def _take(self) -> Callable[[], None]:
        """Take a snapshot. The returned function writes it, in any thread."""
        self._due = False
        self._ticket += 1
        ticket, position, self._dropped = self._ticket, Position(self._generation, self._offset), False
        taken_at = self._before + self._offset
        began = time.monotonic()
        state = self._snapshot()
        self._pause_s = max(RETRY_S, SNAPSHOTS_PER_PAUSE * (time.monotonic() - began))

        def write() -> None:
            with self._lock:
                if ticket > self._written_ticket:  # otherwise a later snapshot has been written
                    self._replace_checkpoint(state, position)
                    self._written_ticket, self._checkpointed_at = ticket, taken_at

        return write

    def _replace_checkpoint(self, state: NodeState, position: Position) -> None:
        self._check_directory()
        # The newest is missing if it was deleted, or if the last attempt failed after renaming it to the previous one.
        keep_newest = self._newest is not None and (self._directory / CHECKPOINT).exists()
        write_checkpoint(self._directory, state, position, keep_newest=keep_newest)
        self._previous = self._newest if keep_newest else position_of(self._directory / PREVIOUS)
        self._newest = position
        first = min(position.generation, position.generation if self._previous is None else self._previous.generation)
        for generation, path in journal_files(self._directory).items():
            if generation < first:
                path.unlink(missing_ok=True)

    def _checkpoint_soon(self) -> None:
        if not self._due:
            self._due = True
            self._call_soon(self._begin_checkpoint)

    def _begin_checkpoint(self) -> None:
        due, self._due = self._due, False
        if not due or self._closed or self._writing:  # the next generation will request another checkpoint
            return
        write = self._take()
        if self._in_background is not None:
            self._writing = True
            self._in_background(write, self._written)
            return
        try:
            write()
        except OSError as error:
            self._written(error)
        else:
            self._written(None)

    def _written(self, error: BaseException | None) -> None:
        self._writing = False
        if error is None:
            self._checkpointed()
        elif isinstance(error, OSError):
            self._failed(error)
            self._error = error
        else:
            raise error
        if (self._behind or self._error is not None) and self._stuck is None and not self._closed:
            self._call_later(self._pause_s, self._checkpoint_soon)

    def _checkpointed(self) -> None:
        self._behind, self._error = self._dropped, self._stuck

    def close(self) -> None:
        """Write a last checkpoint and close the files. Raises NotCheckpointed."""
        self._closed = True
        try:
            self.checkpoint()
        except OSError as error:
            kept = (
                "the journal is incomplete, and messages that were finished lately will be delivered again"
                if self._behind
                else "the journal still contains every change"
            )
            raise NotCheckpointed(f"{error}; {kept}") from error
        finally:
            self._map.close()
            if self._spare is not None:
                self._spare.close()
