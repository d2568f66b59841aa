"""Bringing what was written to the disk, for a loss of power: a kill of the process loses nothing without it.

With ``--sync-every=1`` an acknowledgement waits for an ``fdatasync`` of all that was written before it; those that come
in while one runs share the next, whatever their topics. Otherwise a sync runs in the background after so many messages,
or so much time. Syncing is done by one worker thread, one sync at a time.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from brokerd.data_path import DataPathMoved
from brokerd.file_systems import sync_file_systems

if TYPE_CHECKING:
    from brokerd.log.segment import Segment

MANY_FILES = 64
"""From this many files on, the whole file system is synced; syncing thousands one by one takes many seconds."""

logger = logging.getLogger("brokerd")

Done = Callable[[OSError | None], None]


class Syncer:
    """Syncs the segments that were written to, and the journal with them.

    ``journal`` returns the journal's present files. ``check_directory`` raises DataPathMoved if the files' paths lead
    to another directory, in any thread. ``failed`` is called with each error. After DataPathMoved the same files are
    synced again later. After any other, nothing may be acknowledged: the next fsync might not report what was lost.
    """

    def __init__(
        self,
        *,
        every: int,
        timeout: timedelta,
        journal: Callable[[], Sequence[Path]],
        check_directory: Callable[[], None],
        failed: Callable[[OSError], None],
    ) -> None:
        self.acknowledges = every == 1
        """True if whoever wrote is to wait for the disk."""
        self._every = every
        self._timeout_s = timeout.total_seconds()
        self._journal = journal
        self._check_directory = check_directory
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sync")
        self._dirty: dict[Path, None] = {}
        self._missed: dict[Path, None] = {}
        """Segments that were not found because the data path was moved. No acknowledgement waits for them."""
        self._known: set[Path] = set()
        self._messages = 0
        self._waiting: list[Done] = []
        self._running: asyncio.Future[None] | None = None
        self._starting = False
        self._timer: asyncio.TimerHandle | None = None

    def wrote(self, segment: Segment, messages: int) -> None:
        """Messages were appended to ``segment``."""
        if segment.path is None:
            return
        self._dirty[segment.path] = None
        self._messages += messages
        if not self.acknowledges and self._messages >= self._every:
            self._start()
        elif self._timer is None:
            self._timer = self._loop.call_later(self._timeout_s, self._timed)

    @property
    def is_clean(self) -> bool:
        """True if all that was written is on the disk."""
        return not self._dirty and self._running is None

    def when_synced(self, done: Done) -> None:
        """Call ``done`` once all that was written so far is on the disk, or with the error."""
        self._waiting.append(done)
        if not self._starting and self._running is None:
            # At the end of the loop's turn: what else is read in it shares the sync.
            self._starting = True
            self._loop.call_soon(self._start)

    async def synced(self) -> None:
        """Return once all that was written so far is on the disk. Raises OSError."""
        future: asyncio.Future[None] = self._loop.create_future()

        def done(error: OSError | None) -> None:
            if not future.done():
                future.set_result(None) if error is None else future.set_exception(error)

        self.when_synced(done)
        await future

    async def close(self) -> None:
        """Sync what is left and end the thread."""
        if self._timer is not None:
            self._timer.cancel()
        if self._missed or not self.is_clean:
            await self.synced()
        self._thread.shutdown()

    def _timed(self) -> None:
        self._timer = None
        if self._dirty or self._missed:
            self._start()

    def _start(self) -> None:
        self._starting = False
        if self._running is not None:
            return
        paths = self._missed | self._dirty
        self._missed, self._dirty, self._messages = {}, {}, 0
        waiting, self._waiting = self._waiting, []
        new = paths.keys() - self._known
        self._known = self._known | new if len(self._known) < 4096 else set(new)
        journal = self._journal()
        self._running = self._loop.run_in_executor(self._thread, self._sync, list(paths), new, journal)
        self._running.add_done_callback(lambda future: self._done(future, paths, waiting))

    def _sync(self, segments: list[Path], new: Iterable[Path], journal: Sequence[Path]) -> None:
        sync(segments, new, journal)
        self._check_directory()  # afterwards: the files of a directory that was moved look like consumed ones

    def _done(self, future: asyncio.Future[None], paths: dict[Path, None], waiting: list[Done]) -> None:
        self._running = None
        error = future.exception()
        if error is not None and not isinstance(error, OSError):
            raise error
        if isinstance(error, DataPathMoved):
            self._missed.update(paths)
            self._known.difference_update(paths)
            if self._timer is None:
                self._timer = self._loop.call_later(self._timeout_s, self._timed)
        elif error is not None:
            logger.error("fdatasync failed, nothing more is acknowledged: %s", error)
        if error is not None:
            self._failed(error)
        for done in waiting:
            done(error)
        if self._waiting:
            self._start()


def sync(segments: Iterable[Path], new: Iterable[Path], journal: Iterable[Path]) -> None:
    """fdatasync segments with their side files, and the journal; fsync the directories of new ones.

    A file that is gone was consumed in the meantime. Raises OSError.
    """
    files = [side for path in segments for side in (path, path.with_suffix(".idx"))]
    files += [*journal, *{path.parent for path in new}]
    if len(files) < MANY_FILES or not sync_file_systems(files):
        for path in files:
            _sync_file(path)


def _sync_file(path: Path) -> None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        os.fsync(fd) if path.is_dir() else os.fdatasync(fd)
    finally:
        os.close(fd)
