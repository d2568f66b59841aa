"""A limit on the memory of unfinished commands and request bodies over all connections.

Buffers grow only with the bytes that arrive; this limits their sum.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final, Protocol

from nsqwire.units import Seconds

LONG_BYTES: Final = 16 * 1024
"""Unfinished input of up to this size is not counted and never paused."""
FIRST: Final = 4
"""Number of connections that are read from while the limit is exceeded."""
FINISH_SECONDS: Final = 10.0
"""Time in which each of these has to finish its command; otherwise it is closed."""
RELEASED_BYTES: Final = 16 * 1024 * 1024
RELEASE_SECONDS: Final = 1.0


class Reader(Protocol):
    """A connection with input. These methods must not call the budget."""

    def wait_for_memory(self) -> None:
        """Pause reading."""

    def memory_is_free(self) -> None:
        """Resume reading."""

    def out_of_memory(self) -> None:
        """Close the connection: its input did not finish in time while others waited."""


class InputBudget:
    """Counts the unfinished input of each connection, and pauses connections while the sum exceeds ``limit`` bytes.

    Only connections with more than LONG_BYTES of one unfinished command are paused. The FIRST ones to exceed LONG_BYTES
    are always read from, so that they can finish; each of these that does not finish within FINISH_SECONDS is closed.
    ``call_later(seconds, function)`` and ``now()`` are the event loop's.
    """

    def __init__(
        self,
        limit: int,
        *,
        now: Callable[[], Seconds],
        call_later: Callable[[float, Callable[[], None]], object],
        released: Callable[[], None] = lambda: None,
    ) -> None:
        """``released`` is called RELEASE_SECONDS after the sum has dropped to 0 from at least RELEASED_BYTES."""
        self.total = 0
        """Bytes of unfinished input over all connections that have more than LONG_BYTES."""
        self._limit = limit
        self._now = now
        self._call_later = call_later
        self._released = released
        self._peak = 0
        self._held: dict[Reader, int] = {}  # the oldest first
        self._first: dict[Reader, float] = {}  # while over the limit: connections that are read from, since this time
        self._is_over = False
        self._is_checking = False  # a call of _check is scheduled

    @property
    def is_over(self) -> bool:
        """True while connections are paused."""
        return self._is_over

    def waits(self, reader: Reader) -> bool:
        """Return whether ``reader`` is paused."""
        return self._is_over and reader in self._held and reader not in self._first

    def update(self, reader: Reader, held: int, *, is_new: bool = False) -> None:
        """Record that ``reader`` has ``held`` bytes of an unfinished command, ``is_new`` if it is a different one."""
        if held <= LONG_BYTES:
            self.forget(reader)
            return
        before = self._held.get(reader)
        if before is not None and is_new:
            self.forget(reader)
            before = None
        self._held[reader] = held
        self.total += held - (before or 0)
        self._peak = max(self._peak, self.total)
        if self._is_over:
            if before is None and not self._resume_oldest():
                reader.wait_for_memory()
        elif self.total > self._limit:
            self._is_over = True
            self._resume_oldest()
            for other in self._held:
                if other not in self._first:
                    other.wait_for_memory()
            self._check_later()

    def forget(self, reader: Reader) -> None:
        """Stop counting ``reader``: its command is finished, or it is closed."""
        held = self._held.pop(reader, None)
        if held is None:
            return
        self.total -= held
        if self._is_over:
            if self._first.pop(reader, None) is None:
                reader.memory_is_free()
            if self.total <= self._limit * 3 // 4:
                self._is_over = False
                waiting = [other for other in self._held if other not in self._first]
                self._first.clear()
                for other in waiting:
                    other.memory_is_free()
            else:
                self._resume_oldest()
        if not self._held:
            if self._peak >= RELEASED_BYTES:
                self._call_later(RELEASE_SECONDS, self._released)
            self._peak = 0

    def _resume_oldest(self) -> bool:
        """Resume the oldest paused connections, so that FIRST are read from. True if the newest one was resumed."""
        newest = False
        if len(self._first) < FIRST:
            now = self._now()
            chosen = islice((other for other in self._held if other not in self._first), FIRST - len(self._first))
            last = next(reversed(self._held), None)
            for reader in list(chosen):
                self._first[reader] = now
                reader.memory_is_free()
                newest = reader is last
        return newest

    def _check_later(self) -> None:
        if not self._is_checking:
            self._is_checking = True
            self._call_later(FINISH_SECONDS / 10, self._check)

    def _check(self) -> None:
        self._is_checking = False
        if not self._is_over:
            return
        too_old = self._now() - FINISH_SECONDS
        for reader in [reader for reader, since in self._first.items() if since <= too_old]:
            reader.out_of_memory()
            self.forget(reader)
            if not self.is_over:
                return
        self._check_later()
