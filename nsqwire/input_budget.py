"""A bound on the memory that unfinished commands and request bodies take over all connections.

Buffers grow with the bytes that arrive, so a client has to send what it makes the process keep. This bounds the sum.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final, Protocol

LONG_BYTES: Final = 16 * 1024
"""Unfinished input of up to this size is neither counted nor made to wait."""
FIRST: Final = 4
"""Number of connections that are read from while the bound is exceeded."""
FINISH_SECONDS: Final = 10.0
"""Time each of them has to finish its command before it is closed."""
RELEASED_BYTES: Final = 16 * 1024 * 1024
RELEASE_SECONDS: Final = 1.0


class Reader(Protocol):
    """A connection, as its budget sees it. None of the three may call the budget back."""

    def wait_for_memory(self) -> None:
        """Read no more for now."""

    def memory_is_free(self) -> None:
        """Read again."""

    def out_of_memory(self) -> None:
        """Close: it kept the others waiting."""


class InputBudget:
    """Counts the unfinished input of each connection, and makes connections wait while the sum exceeds ``limit`` bytes.

    Only connections with more than LONG_BYTES of one unfinished command wait. The FIRST ones, by the time they got
    there, are always read from, so some command can be finished; one of those that is not finished within
    FINISH_SECONDS ends its connection. ``call_later(seconds, function)`` and ``now()`` are the event loop's.
    """

    def __init__(
        self,
        limit: int,
        *,
        now: Callable[[], float],
        call_later: Callable[[float, Callable[[], None]], object],
        released: Callable[[], None] = lambda: None,
    ) -> None:
        """``released`` is called RELEASE_SECONDS after no long input is left, where that had been RELEASED_BYTES."""
        self.total = 0
        """Bytes of long unfinished input, over all connections."""
        self._limit = limit
        self._now = now
        self._call_later = call_later
        self._released = released
        self._peak = 0
        self._held: dict[Reader, int] = {}  # the oldest first
        self._first: dict[Reader, float] = {}  # while over the limit: who is read from, and since when
        self._is_over = False

    @property
    def is_over(self) -> bool:
        """Whether connections wait."""
        return self._is_over

    def waits(self, reader: Reader) -> bool:
        """Whether ``reader`` is one of them."""
        return self._is_over and reader in self._held and reader not in self._first

    def update(self, reader: Reader, held: int, *, is_new: bool = False) -> None:
        """Say how many bytes of an unfinished command ``reader`` holds; ``is_new`` if it is another than before."""
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
            if before is None and not self._let_on():
                reader.wait_for_memory()
        elif self.total > self._limit:
            self._is_over = True
            self._let_on()
            for other in self._held:
                if other not in self._first:
                    other.wait_for_memory()
            self._call_later(FINISH_SECONDS / 10, self._check)

    def forget(self, reader: Reader) -> None:
        """Say that ``reader`` holds nothing long any more, or is closed."""
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
                self._let_on()
        if not self._held:
            if self._peak >= RELEASED_BYTES:
                self._call_later(RELEASE_SECONDS, self._released)
            self._peak = 0

    def _let_on(self) -> bool:
        """Read from as many as may be; True if the newest is among them."""
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

    def _check(self) -> None:
        if not self._is_over:
            return
        too_old = self._now() - FINISH_SECONDS
        for reader in [reader for reader, since in self._first.items() if since <= too_old]:
            reader.out_of_memory()
            self.forget(reader)
        if self._is_over:
            self._call_later(FINISH_SECONDS / 10, self._check)
