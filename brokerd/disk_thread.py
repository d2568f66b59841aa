"""Runs operations on files in a thread, and waits for each for a limited time: a disk may stop answering.

Creating, allocating, renaming and deleting a file wait for the journal of the file system, and so for the disk. The
event loop waits too, because the next step needs the result. If that takes too long, the loop continues without it:
what needs this result or another operation is refused until the disk has completed all operations that were begun.
Writes of messages are not made here: they go to the system's page cache, and handing each over would cost more than the
write.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

from nsqwire.units import Seconds

LONGEST_WAIT_S: Final[Seconds] = 5.0
"""The event loop waits for one operation for at most this long, or for ``--disk-timeout`` if that is shorter."""
_STEP_S: Final[Seconds] = 0.1
"""The wait is divided into steps of this length, because the process may be paused: a pause is one step at most."""

T = TypeVar("T")
logger = logging.getLogger("brokerd")


class DiskStalled(OSError):
    """The disk has not completed a sync or another operation in time; the text has the time."""


class DiskThread:
    """The thread of one data path. Before ``start`` the caller's thread runs the operations, however long they take."""

    def __init__(self) -> None:
        self.stall: DiskStalled | None = None
        """Set from the first operation that takes too long until all have ended."""
        self._executor: ThreadPoolExecutor | None = None
        self.wait_s: Seconds = 0.0
        """How long the event loop waits for an operation."""
        self._pending = 0
        """Operations that the event loop no longer waits for."""
        self._call_soon: Callable[[Callable[[], None]], object]
        self._stalled: Callable[[DiskStalled], None]
        self._resumed: Callable[[], None]

    def start(
        self,
        patience_s: Seconds,
        *,
        call_soon: Callable[[Callable[[], None]], object],
        stalled: Callable[[DiskStalled], None],
        resumed: Callable[[], None],
    ) -> None:
        """Use a thread from now on; not for a patience of 0, which means no limit.

        Any thread may call ``call_soon``, which calls a function in the event loop. ``stalled`` is called with the
        error when an operation takes too long, ``resumed`` once all operations have ended.
        """
        if patience_s <= 0:
            return
        self.wait_s = min(patience_s, LONGEST_WAIT_S)
        self._call_soon, self._stalled, self._resumed = call_soon, stalled, resumed
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="files")
        self._executor.submit(int)  # starts the thread now: later there may be no memory for it

    @property
    def has_thread(self) -> bool:
        """False before ``start`` and after ``close``, and without a limit."""
        return self._executor is not None

    def require(self) -> None:
        """Raise DiskStalled while earlier operations have not ended."""
        if self.stall is not None:
            raise DiskStalled(*self.stall.args)

    def run(self, operation: Callable[[], T], late: Callable[[T], None]) -> T:
        """Return the result of ``operation``. Raises what it raises, and DiskStalled if it takes too long or cannot
        begin. ``late`` is called in the event loop with the result of one that took too long."""
        self.require()
        if self._executor is None:
            return operation()
        future = self._executor.submit(operation)
        if self._ends(future):
            return future.result()
        error = self._begin_stall()
        self._leave(future, late)
        raise error

    def run_at_last(self, operation: Callable[[], object]) -> None:
        """As ``run``, for an operation that nothing waits for: it is done later if the disk is stalled."""
        if self._executor is None:
            operation()
            return
        future = self._executor.submit(operation)
        if self.stall is None and self._ends(future):
            future.result()
            return
        if self.stall is None:
            self._begin_stall()
        self._leave(future, lambda _: None)

    def close(self) -> None:
        """Let the operations end, and end the thread. The caller's thread runs further ones."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown()

    def _ends(self, future: Future[T]) -> bool:
        """Wait. Returns whether the operation has ended."""
        for _ in range(max(1, round(self.wait_s / _STEP_S))):
            with suppress(TimeoutError):
                future.exception(_STEP_S)
            if future.done():
                return True
        return False

    def _begin_stall(self) -> DiskStalled:
        self.stall = error = DiskStalled(f"the disk has not completed an operation within {self.wait_s:g} s")
        logger.error("publishes are refused: %s", error)
        self._stalled(error)
        return error

    def _leave(self, future: Future[T], late: Callable[[T], None]) -> None:
        """Let an operation end by itself."""
        self._pending += 1

        def ended(_: Future[T]) -> None:
            with suppress(RuntimeError):  # the event loop was closed
                self._call_soon(partial(self._ended, future, late))

        future.add_done_callback(ended)

    def _ended(self, future: Future[T], late: Callable[[T], None]) -> None:
        if (error := future.exception()) is None:
            late(future.result())
        else:
            logger.error("an operation that the disk delayed has failed: %s", error)
        self._pending -= 1
        if not self._pending:
            self.stall = None
            self._resumed()
