"""The journal's files: ``journal.<generation>`` takes each change as it happens.

A journal is a preallocated, mapped file of ``length u32 | check u32 | record``, zero-filled behind the last; ``check``
is the low half of the record's XXH3-64. Being mapped, it keeps every record when the process is killed. When it is full
the next generation begins, in a file that was allocated once this one was half full, and at the end of the event loop's
turn, when no change is half made, the node's whole state becomes a new checkpoint
(:mod:`brokerd.journal.checkpoint`). Should that fail for want of space, the older journals stay: recovery reads the
checkpoint, and then every record behind it.

When journal and disk are both full, records about messages are dropped. Replay then delivers messages again; it loses
none, because what relies on a record asks for room first (:meth:`Journal.require`) and is refused if there is none.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from brokerd.journal import records
from brokerd.journal.checkpoint import Position, write_checkpoint
from brokerd.journal.recovery import RECORD_HEAD, Recovered, journal_files, next_generation
from brokerd.journal.state import NodeState
from brokerd.kernel import write_record

JOURNAL_BYTES = 16 * 1024 * 1024
RETRY_S = 1.0
"""After a failure for want of space, when it is tried again; later for a state that takes long to write down."""

CHANGE_BYTES = 256
"""At least the size of the records of one change of a topic or channel, heads included."""
_RESERVED = 16
"""One part in so many is for the changes of topics and channels, once all else is full."""
_DISK_FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))

Background = Callable[[Callable[[], None], Callable[[BaseException | None], None]], None]
"""Runs the first in a thread, then the second, with its error or None, where the journal is used."""


class NotCheckpointed(Exception):
    """The last checkpoint could not be written; the text gives the reason and what a restart will do."""


class Journal:
    """An open journal.

    ``snapshot`` gives the node's whole state, ``failed`` hears of each error of the disk. ``call_soon`` runs a function
    once the change that is being made is complete, ``call_later`` after so many seconds.
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
        tolerates_full_disk: bool = True,
    ) -> None:
        """Go on behind what was ``found``, with a checkpoint of the state as it is now.

        Raises OSError. A full disk is an error only for a new data path, or if it is not to be tolerated.
        """
        self._directory = directory
        self._snapshot = snapshot
        self._failed = failed
        self._call_soon = call_soon
        self._call_later = call_later
        self._in_background: Background | None = None
        self._map = mmap.mmap(-1, mmap.PAGESIZE)
        self._spare: mmap.mmap | None = None
        self._generation = found.end.generation
        self._capacity = self._offset = self._limit = 0
        self._before = 0
        """Bytes in the journals before this one."""
        self._checkpointed_at = 0
        self._newest, self._previous = found.newest, found.previous
        self._behind = True
        """The state has changes that no record and no checkpoint holds."""
        self._dropped = False
        """Records were dropped since the last snapshot was taken."""
        self._has_gap = False
        """Records were dropped since this generation began."""
        self._stuck: OSError | None = None
        """Why the next generation could not begin."""
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
            if self._capacity:
                self._put(records.journal_begun(self._generation, is_complete=False, previous_end=0))
                self._written(error)
            else:
                self._fail(error)

    def _reopen(self, end: Position) -> None:
        """Go on in the journal that is there, if it can be mapped with its space."""
        path = self._path(end.generation)
        if not path.is_file():
            return
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            size = max(JOURNAL_BYTES, os.fstat(fd).st_size)
            with contextlib.suppress(OSError):  # without its space a file must not be written through a map
                os.posix_fallocate(fd, 0, size)
                self._use(mmap.mmap(fd, size), end.offset)
                torn = len(self._map[end.offset :].rstrip(b"\0"))
                self._map[end.offset : end.offset + torn] = bytes(torn)
        finally:
            os.close(fd)

    def _keep_two_checkpoints(self) -> None:
        self.checkpoint()
        if self._previous is None:
            self.checkpoint()

    def write_in_background(self, background: Background) -> None:
        """From now on write checkpoints by ``background(work, done)``, so that clients need not wait for one."""
        self._in_background = background

    @property
    def paths(self) -> list[Path]:
        """The files a recovery would read: the one that takes the changes, and those that no checkpoint holds yet."""
        first = self._generation if self._newest is None else self._newest.generation
        return [self._path(number) for number in range(max(1, first), self._generation + 1)]

    @property
    def used(self) -> int:
        """Bytes in it since the last checkpoint."""
        return self._before + self._offset - self._checkpointed_at

    @property
    def is_complete(self) -> bool:
        """True if checkpoint and journals hold every change."""
        return not self._behind

    @property
    def error(self) -> str | None:
        """Why the last checkpoint or the next generation failed; None since it succeeded."""
        return None if self._error is None else str(self._error)

    # -- records --------------------------------------------------------------------------------------------------

    def append(self, record: bytes) -> None:
        """Keep a change. With journal and disk full, ``failed`` hears that one about messages is dropped."""
        if self._offset + RECORD_HEAD.size + len(record) > self._limit and not self._make_room(record):
            return
        self._put(record)

    def require(self, nbytes: int, *, of_messages: bool = False) -> None:
        """Make sure that records of ``nbytes``, heads included, can be appended next.

        Raises OSError if they would be dropped, or, for records ``of_messages``, if any was since the last checkpoint.
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
        """Begin the next generation, or else use the reserve. False if there is no room for the record."""
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
        self._dropped = self._has_gap = self._behind = True
        return False

    # -- generations ----------------------------------------------------------------------------------------------

    @property
    def _soft_end(self) -> int:
        """Records about messages end here; what is behind is the reserve."""
        return self._capacity - self._capacity // _RESERVED

    def _use(self, map_: mmap.mmap, offset: int) -> None:
        self._map.close()
        self._map, self._offset, self._capacity = map_, offset, len(map_)
        self._limit = max(0, min(self._capacity // 2, self._soft_end))

    def _switch(self, nbytes: int = 0) -> None:
        """Begin the next generation, with room for ``nbytes``. Raises OSError; the old one goes on then."""
        generation = next_generation(self._directory, self._generation)
        if self._spare is not None and nbytes > len(self._spare) // 2:
            self._spare.close()
            self._spare = None
        map_, self._spare = self._spare or self._allocate(generation, nbytes), None
        ended, self._generation = self._offset, generation
        self._before += ended
        self._use(map_, 0)
        self._stuck = None
        is_complete = not (self._has_gap or self._behind)
        self._put(records.journal_begun(generation, is_complete=is_complete, previous_end=ended))
        self._has_gap = False
        self._checkpoint_soon()

    def _fail(self, error: OSError) -> None:
        """The next generation cannot begin."""
        self._failed(error)
        if self._stuck is None:
            self._call_later(self._pause_s, self._retry)
        self._stuck = self._error = error
        self._limit = min(self._limit, self._offset)  # no record about messages may follow one that is missing

    def _retry(self) -> None:
        if self._closed or self._stuck is None:
            return
        self._stuck = None
        try:
            self._switch()
        except OSError as error:
            self._fail(error)
            self._checkpoint_soon()  # it lets older journals go, whose space is enough for the next

    def _allocate_spare(self) -> None:
        if self._spare is None:
            with contextlib.suppress(OSError):  # it is tried again when it is needed
                self._spare = self._allocate(next_generation(self._directory, self._generation))

    def _allocate(self, generation: int, nbytes: int = 0) -> mmap.mmap:
        size = max(JOURNAL_BYTES, -(-2 * nbytes // mmap.PAGESIZE) * mmap.PAGESIZE)
        path = self._path(generation)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, size)
            return mmap.mmap(fd, size)
        except OSError:
            path.unlink()
            raise
        finally:
            os.close(fd)

    def _path(self, generation: int) -> Path:
        return self._directory / f"journal.{generation}"

    # -- checkpoints ----------------------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Write the whole state, now: no change may be half made. Raises OSError; nothing is lost by it."""
        self._take()()
        self._checkpointed()

    def _take(self) -> Callable[[], None]:
        """Take a snapshot, and return what writes it, in any thread."""
        self._due = False
        self._ticket += 1
        ticket, position, self._dropped = self._ticket, Position(self._generation, self._offset), False
        taken_at = self._before + self._offset
        began = time.monotonic()
        state = self._snapshot()
        self._pause_s = max(RETRY_S, 20 * (time.monotonic() - began))

        def write() -> None:
            with self._lock:
                if ticket > self._written_ticket:  # else a later one was written meanwhile
                    self._replace_checkpoint(state, position)
                    self._written_ticket, self._checkpointed_at = ticket, taken_at

        return write

    def _replace_checkpoint(self, state: NodeState, position: Position) -> None:
        keep_newest = self._newest is not None
        write_checkpoint(self._directory, state, position, keep_newest=keep_newest)
        if keep_newest:
            self._previous = self._newest
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
        if not due or self._closed or self._writing:  # the next generation's follows the one that is being written
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
        """Write a last checkpoint and let go of the files. Raises NotCheckpointed."""
        self._closed = True
        try:
            self.checkpoint()
        except OSError as error:
            kept = (
                "the journal is incomplete, and messages that were finished lately will be delivered again"
                if self._behind
                else "the journal still holds every change"
            )
            raise NotCheckpointed(f"{error}; {kept}") from error
        finally:
            self._map.close()
            if self._spare is not None:
                self._spare.close()
