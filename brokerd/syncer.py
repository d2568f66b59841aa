"""Syncs files to the disk, so that a power loss cannot remove them. A kill of the process loses no unsynced data.

With ``--sync-every=1`` an acknowledgement waits for an ``fdatasync`` of everything written before it. Publishes to any
topic that arrive during a sync share the next one. Otherwise a sync runs in the background after ``--sync-every``
messages or ``--sync-timeout``. The journal is synced together with the messages, or alone if there are no new messages.
One worker thread runs one sync at a time.

A disk may stop answering. If a sync has run for ``--disk-timeout``, the acknowledgements that wait for it become errors
and publishes are refused, until the sync ends.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from brokerd.background import use_batch_scheduling
from brokerd.data_path import DataPathMoved
from brokerd.disk_thread import DiskStalled
from brokerd.file_systems import sync_file_systems
from brokerd.log.headers import SUFFIX as HEADERS_SUFFIX
from brokerd.write_out import write_out
from nsqwire.units import Seconds

if TYPE_CHECKING:
    from brokerd.log.segment import Segment

MANY_FILES = 64
"""From this many files on, whole file systems are synced: syncing thousands of files one by one takes many seconds."""
DIRECTORIES = 3
"""Number of directories to sync for a new segment: its topic's, the directory of topics, and the data path."""

logger = logging.getLogger("brokerd")


class NotSynced(OSError):
    """A sync did not take place, because descriptors or memory were lacking. Nothing that was written is lost."""


class FilesRemoved(OSError):
    """Files of segments were removed while they were in use: their messages are gone once the process ends."""


Done = Callable[[OSError | None], None]
Written = Mapping[Path, tuple[int, int] | None]
"""Segments to sync, each with the offsets ``[start, end)`` of most of its unsynced bytes, if known, and the files with
their headers."""


class Acknowledger(Protocol):
    """Decides when the messages that were written are acknowledged."""

    @property
    def acknowledges(self) -> bool:
        """True if acknowledgements wait."""
        ...

    @property
    def is_stalled(self) -> bool:
        """True if the acknowledgements that waited became errors, and no publish is accepted."""
        ...

    def wrote(self, segment: Segment, messages: int) -> None:
        """Record that messages were appended to ``segment``."""
        ...

    @property
    def delays_responses(self) -> bool:
        """True if a response may acknowledge messages that have to wait."""
        ...

    def when_synced(self, done: Done) -> None:
        """Call ``done`` once all that was written so far may be acknowledged, or with the error."""
        ...

    def when_synced_at_last(self, done: Done) -> None:
        """As ``when_synced``, but never with DiskStalled."""
        ...

    async def synced(self) -> None:
        """Return once all that was written so far may be acknowledged. Raises OSError."""
        ...

    @property
    def keeps_changes(self) -> bool:
        """True if the responses to changes of topics, channels, messages and policies wait too, for ``when_kept``."""
        ...

    def when_kept(self, done: Done) -> None:
        """Call ``done`` once all changes so far are kept, also those that only the journal has, or with the error."""
        ...

    def check(self, interval_s: Seconds) -> None:
        """Find out whether the disk is stalled; to be called every ``interval_s``."""
        ...


class Syncer:
    """Syncs the segments that were written to, and the journal with them.

    ``journal`` returns the journal's present files, and ``journal_bytes`` a number that changes with each record.
    ``check_directory`` raises DataPathMoved if the data path leads to another directory; any thread may call it.
    ``failed`` is called with each error. After DataPathMoved and NotSynced the same files are synced again later.
    ``abandon`` is called with segments whose files do not exist. Nothing more is written to those that the broker did
    not remove; it returns these. The error is then FilesRemoved.
    DiskStalled lasts until ``resumed`` is called; no publish may be accepted in between. After any other error nothing
    may be acknowledged, because the next fsync might not report what was lost. ``patience`` is ``--disk-timeout``; zero
    for no limit.
    """

    def __init__(
        self,
        *,
        every: int,
        timeout: timedelta,
        journal: Callable[[], Sequence[Path]],
        journal_bytes: Callable[[], int] = lambda: 0,
        check_directory: Callable[[], None],
        failed: Callable[[OSError], None],
        abandon: Callable[[Sequence[Segment]], Sequence[Segment]] = lambda missing: [],
        resumed: Callable[[], None] = lambda: None,
        patience: timedelta = timedelta(0),
    ) -> None:
        self.acknowledges = every == 1
        """True if acknowledgements wait for the disk."""
        self._every = every
        self._timeout_s = timeout.total_seconds()
        self._journal = journal
        self._journal_bytes = journal_bytes
        self._check_directory = check_directory
        self._failed = failed
        self._abandon = abandon
        self._resumed = resumed
        self._patience_s = patience.total_seconds()
        self._loop = asyncio.get_running_loop()
        begin = None if self.acknowledges else use_batch_scheduling
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sync", initializer=begin)
        self._thread.submit(int)  # starts the thread now: later there may be no memory for it
        self._dirty: dict[Segment, int] = {}
        """Segments that were written to and not synced since, each with its end after the first write."""
        self._missed: dict[Path, None] = {}
        """Segments of syncs that failed with DataPathMoved or NotSynced. No acknowledgement waits for them any more."""
        self._directories: set[Path] = set()
        """Directories that have new names since their last sync."""
        self._journals: set[Path] = set()
        """The journal's files at the last sync."""
        self._synced_journal_bytes = journal_bytes()
        self._messages = 0
        self._waiting: list[Done] = []
        """Called after the next sync, or with DiskStalled."""
        self._patient: list[Done] = []
        """Called after the next sync, however long it takes."""
        self._awaited: list[Done] = []
        """As ``_waiting``, of the running sync."""
        self._running: asyncio.Future[set[Path]] | None = None
        self._running_s: Seconds | None = None
        """How long ``check`` has seen the running sync run; None if it has not seen it."""
        self.is_stalled = False
        """True if the running sync has taken longer than ``--disk-timeout``."""
        self._starting = False
        self._timer = self._loop.call_later(self._timeout_s, self._timed)

    def wrote(self, segment: Segment, messages: int) -> None:
        """Record that messages were appended to ``segment``."""
        if segment.path is None:
            return
        if segment not in self._dirty:
            self._dirty[segment] = segment.end
        if not segment.is_named:
            segment.is_named = True
            self._directories.update(segment.path.parents[:DIRECTORIES])
        self._messages += messages
        if not self.acknowledges and self._messages >= self._every:
            self._start()

    @property
    def is_clean(self) -> bool:
        """True if all messages that were written are on the disk."""
        return not self._dirty and self._running is None

    @property
    def delays_responses(self) -> bool:
        """True if a response may acknowledge messages that are not on the disk.

        False while the disk is stalled: those who waited have had their error, and no publish is accepted.
        """
        return not (self.is_stalled or self.is_clean)

    def when_synced(self, done: Done) -> None:
        """Call ``done`` once all that was written so far is on the disk, or with the error, such as DiskStalled."""
        self._waiting.append(done)
        self._start_soon()

    def when_synced_at_last(self, done: Done) -> None:
        """As ``when_synced``, but never with DiskStalled: ``done`` is called once it is known what is on the disk."""
        self._patient.append(done)
        self._start_soon()

    def check(self, interval_s: Seconds) -> None:
        """Find out whether the disk is stalled; to be called every ``interval_s``: a timer for each sync costs more.

        The intervals are added up. A clock would blame the disk for the time in which this process was paused.
        """
        if self._running is None or not self._patience_s:
            return
        self._running_s = 0.0 if self._running_s is None else self._running_s + interval_s
        if self._running_s < self._patience_s:
            return
        error = DiskStalled(f"the disk has not completed a sync within {self._patience_s:g} s")
        if not self.is_stalled:
            self.is_stalled = True
            logger.error("publishes are refused: %s", error)
            self._failed(error)
        waiting = [*self._awaited, *self._waiting]
        self._awaited, self._waiting = [], []
        for done in waiting:
            done(error)

    def _start_soon(self) -> None:
        if not self._starting and self._running is None:
            # At the end of this turn of the event loop, so that other input of the turn shares the sync.
            self._starting = True
            self._loop.call_soon(self._start)

    async def synced(self) -> None:
        """Return once all that was written so far is on the disk. Raises OSError."""
        future: asyncio.Future[None] = self._loop.create_future()

        def done(error: OSError | None) -> None:
            if not future.done():
                future.set_result(None) if error is None else future.set_exception(error)

        self.when_synced_at_last(done)
        await future

    @property
    def keeps_changes(self) -> bool:
        return self.acknowledges

    def when_kept(self, done: Done) -> None:
        """As ``when_synced``: each sync is also one of the journal."""
        self.when_synced(done)

    async def close(self) -> None:
        """Sync the rest and end the thread. Raises OSError."""
        self._timer.cancel()
        if self._missed or not self.is_clean:
            await self.synced()
        self._thread.shutdown()

    def _timed(self) -> None:
        self._timer = self._loop.call_later(self._timeout_s, self._timed)
        if self._dirty or self._missed or self._journal_bytes() != self._synced_journal_bytes:
            self._start()

    def _start(self) -> None:
        self._starting = False
        if self._running is not None:
            return
        paths: dict[Path, tuple[int, int] | None] = dict.fromkeys(self._missed)
        for segment, end in self._dirty.items():
            if segment.path is not None:
                paths[segment.path] = None if self.acknowledges else (end, segment.end)
                if segment.headers is not None and segment.headers.path is not None:
                    paths[segment.headers.path] = None
        segments, directories = list(self._dirty), self._directories
        self._missed, self._dirty, self._directories, self._messages = {}, {}, set(), 0
        self._awaited, self._waiting = self._waiting, []
        patient, self._patient = self._patient, []
        journal, self._synced_journal_bytes = self._journal(), self._journal_bytes()
        directories.update(path.parent for path in journal if path not in self._journals)
        self._journals = set(journal)
        self._running_s = None
        self._running = self._loop.run_in_executor(self._thread, self._sync, paths, directories, journal)
        self._running.add_done_callback(lambda future: self._done(future, segments, paths, directories, patient))

    def _sync(self, segments: Written, directories: Iterable[Path], journal: Sequence[Path]) -> set[Path]:
        """Sync everything. Returns the files that do not exist. Raises OSError."""
        try:
            missing = sync(segments, directories, journal)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):  # of open: no fsync has failed
                raise NotSynced(*error.args) from error
            raise
        self._check_directory()  # afterwards: in a moved directory, files are missing as if they had been removed
        return missing

    def _done(
        self,
        future: asyncio.Future[set[Path]],
        segments: Iterable[Segment],
        paths: Iterable[Path],
        directories: set[Path],
        patient: list[Done],
    ) -> None:
        self._running = None
        waiting, self._awaited = [*self._awaited, *patient], []
        if self.is_stalled:
            self.is_stalled = False
            self._resumed()
        error = future.exception()
        if error is None and (missing := future.result()):
            error = self._removal_of([segment for segment in segments if segment.path in missing])
        if error is not None and not isinstance(error, OSError):
            logger.error("a sync could not be made", exc_info=error)
            error = NotSynced(f"a sync could not be made: {error!r}")
        if isinstance(error, DataPathMoved | NotSynced):
            self._missed.update(dict.fromkeys(paths))
            self._directories |= directories
        elif error is not None and not isinstance(error, FilesRemoved):
            logger.error("fdatasync failed, nothing more is acknowledged: %s", error)
        if error is not None:
            self._failed(error)
        for done in waiting:
            done(error)
        if self._waiting or self._patient or (not self.acknowledges and self._messages >= self._every):
            self._start()

    def _removal_of(self, missing: Sequence[Segment]) -> FilesRemoved | None:
        """The error for segments without files that were in use; None if the broker removed all of them."""
        if not (removed := self._abandon(missing)):
            return None
        return FilesRemoved(errno.ENOENT, "the file was removed while it was in use", str(removed[0].path))


def sync(segments: Written, directories: Iterable[Path], journal: Iterable[Path]) -> set[Path]:
    """fdatasync segments with their indexes, and the journal; then fsync the directories.

    The given range of a segment is first written in pieces, so that the event loop can run in between. Files that do
    not exist are skipped and returned: most were removed because their messages were finished. Raises OSError.
    """
    files = list(segments)
    files += (path.with_suffix(".idx") for path in segments if path.suffix != HEADERS_SUFFIX)
    files += journal
    directories = list(directories)
    if len(files) + len(directories) >= MANY_FILES and sync_file_systems([*files, *directories]):
        return {path for path in files if not path.exists()}
    missing = {path for path in files if not _sync_path(path, os.fdatasync, segments.get(path))}
    for path in directories:
        _sync_path(path, os.fsync)
    return missing


def _sync_path(path: Path, sync_descriptor: Callable[[int], None], written: tuple[int, int] | None = None) -> bool:
    """Sync a file or directory. False if it does not exist."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        if written is not None:
            write_out(fd, *written)
        sync_descriptor(fd)
    finally:
        os.close(fd)
    return True
