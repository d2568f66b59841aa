"""How many messages each nsqd may send: ``max_in_flight`` shared out over connections as RDY counts.

No socket and no clock: every method that needs the time is given it (seconds, any monotonic origin) and returns the
RDY commands to send, in order. Decreases come before increases, so the sum of all RDY counts never passes
``max_in_flight``, not even between two commands.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from datetime import timedelta
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

Key = TypeVar("Key", bound=Hashable)


FRUITLESS_SECONDS = 0.5
"""How long a connection holds a scarce RDY 1 that brings it nothing. nsqd keeps a message back for 0.25 s at most."""


class ReadyCount(NamedTuple, Generic[Key]):
    """Send ``RDY ready_count`` to connection ``key``."""

    key: Key
    ready_count: int


class Mode(Enum):
    """What backoff allows."""

    FULL = "full"
    BLOCKED = "blocked"
    TEST = "test"


class Slot:
    """One connection's part. The connection counts ``in_flight_count`` and notes ``last_message_at`` itself."""

    __slots__ = ("granted_at", "in_flight_count", "last_message_at", "max_rdy_count", "ready_count")

    def __init__(self, max_rdy_count: int) -> None:
        self.max_rdy_count = max_rdy_count
        """The largest RDY its nsqd accepts."""
        self.ready_count = 0
        """The last RDY sent; nsqd does not count it down."""
        self.in_flight_count = 0
        self.last_message_at = float("-inf")
        self.granted_at = float("-inf")
        """When RDY last rose from 0."""


def shares(max_in_flight: int, maxima: Sequence[int]) -> list[int]:
    """Split ``max_in_flight`` as evenly as the per-connection ``maxima`` allow; earlier ones get the remainder.

    With fewer to give than connections the first ``max_in_flight`` get 1 and the others 0. What one connection cannot
    take goes to those that can, so the sum is ``min(max_in_flight, sum(maxima))``.
    """
    result = [0] * len(maxima)
    left = max_in_flight
    hungry = [index for index, most in enumerate(maxima) if most > 0]
    while left > 0 and hungry:
        each, extra = divmod(left, len(hungry))
        for place, index in enumerate(hungry):
            more = min(each + (place < extra), maxima[index] - result[index])
            result[index] += more
            left -= more
        hungry = [index for index in hungry if result[index] < maxima[index]]
    return result


class Distribution(Generic[Key]):
    """The RDY counts of one consumer's connections.

    In mode FULL every connection has its share. With more connections than ``max_in_flight``, ``max_in_flight`` of
    them hold RDY 1, and :meth:`redistribute` passes it on to the one that has waited longest: from a connection that
    brought nothing at all for FRUITLESS_SECONDS, or nothing more for ``low_rdy_idle_timeout``, or has held it for
    ``low_rdy_timeout``. So no connection waits longer than ``low_rdy_timeout`` for each of the others.
    """

    def __init__(
        self,
        max_in_flight: int,
        *,
        low_rdy_idle_timeout: timedelta = timedelta(seconds=1),
        low_rdy_timeout: timedelta = timedelta(seconds=5),
    ) -> None:
        self.max_in_flight = max_in_flight
        self.mode = Mode.FULL
        self.slots: dict[Key, Slot] = {}
        self._idle_timeout = low_rdy_idle_timeout.total_seconds()
        self._hold_timeout = low_rdy_timeout.total_seconds()

    @property
    def total(self) -> int:
        """Sum of the RDY counts sent."""
        return sum(slot.ready_count for slot in self.slots.values())

    def joined(self, key: Key, max_rdy_count: int, now: float) -> list[ReadyCount[Key]]:
        """A connection has subscribed."""
        self.slots[key] = Slot(max_rdy_count)
        return self._apply(self._targets(), now)

    def left(self, key: Key, now: float) -> list[ReadyCount[Key]]:
        """A connection is gone, or closing; what it held goes to the others."""
        self.slots.pop(key, None)
        return self._apply(self._targets(), now)

    def change_max_in_flight(self, max_in_flight: int, now: float) -> list[ReadyCount[Key]]:
        """Share out a new total; 0 pauses the consumer."""
        self.max_in_flight = max_in_flight
        return self._apply(self._targets(), now)

    def block(self, now: float) -> list[ReadyCount[Key]]:
        """Backoff begins or goes on: nothing for anybody."""
        self.mode = Mode.BLOCKED
        return self._apply(self._targets(), now)

    def test(self, now: float) -> list[ReadyCount[Key]]:
        """Backoff tries one message: RDY 1 to the connection that has waited longest. Empty: there is none to ask."""
        self.mode = Mode.TEST
        return self._apply(self._targets(), now)

    def resume(self, now: float) -> list[ReadyCount[Key]]:
        """Backoff is over."""
        self.mode = Mode.FULL
        return self._apply(self._targets(), now)

    def redistribute(self, now: float) -> list[ReadyCount[Key]]:
        """Pass RDY 1 on where there is less of it than connections.

        To be called several times a second, and when a message is answered whose connection is at RDY 0.
        """
        limit = self._limit()
        if limit == 0 or len(self.slots) <= limit:
            return []
        targets = {key: slot.ready_count for key, slot in self.slots.items()}
        holders = [key for key, count in targets.items() if count]
        waiting = self._waiting()
        # Only as many give up as there are others to take over; those idle longest go first.
        tired = sorted((key for key in holders if self._gives_up(self.slots[key], now)), key=self._active_at)
        for key in tired[: len(waiting)]:
            targets[key] = 0
        for key in waiting[: max(0, limit - self._occupied(targets))]:
            targets[key] = 1
        return self._apply(targets, now)

    def _occupied(self, targets: dict[Key, int]) -> int:
        """How much of the limit is in use once ``targets`` hold."""
        if self.mode is Mode.TEST:  # what was delivered before the block is no part of the test
            return sum(targets.values())
        # A message still being handled keeps its place in max_in_flight after its connection's RDY is gone.
        return sum(max(targets[key], min(1, slot.in_flight_count)) for key, slot in self.slots.items())

    def _limit(self) -> int:
        if self.mode is Mode.FULL:
            return self.max_in_flight
        return min(1, self.max_in_flight) if self.mode is Mode.TEST else 0

    def _gives_up(self, slot: Slot, now: float) -> bool:
        brought_something = slot.last_message_at >= slot.granted_at
        if self.mode is Mode.TEST and brought_something and slot.in_flight_count:
            return False  # the test is being handled
        if not brought_something and not slot.in_flight_count:
            return now - slot.granted_at >= min(self._idle_timeout, FRUITLESS_SECONDS)
        return now - self._active(slot) >= self._idle_timeout or now - slot.granted_at >= self._hold_timeout

    def _active(self, slot: Slot) -> float:
        return max(slot.last_message_at, slot.granted_at)

    def _active_at(self, key: Key) -> float:
        return self._active(self.slots[key])

    def _waiting(self) -> list[Key]:
        """Connections at RDY 0, the one whose last turn is longest ago first."""
        without = [key for key, slot in self.slots.items() if slot.ready_count == 0 and slot.max_rdy_count > 0]
        return sorted(without, key=lambda key: self.slots[key].granted_at)

    def _targets(self) -> dict[Key, int]:
        limit = self._limit()
        # Holders keep what they have when there is too little for all; otherwise the order is that of joining.
        order = list(self.slots)
        if limit < len(order):
            holders = [key for key in order if self.slots[key].ready_count]
            order = holders + self._waiting()
        given = shares(limit, [self.slots[key].max_rdy_count for key in order])
        return {**dict.fromkeys(self.slots, 0), **dict(zip(order, given, strict=True))}

    def _apply(self, targets: dict[Key, int], now: float) -> list[ReadyCount[Key]]:
        changes = [ReadyCount(key, count) for key, count in targets.items() if self.slots[key].ready_count != count]
        changes.sort(key=lambda change: change.ready_count > self.slots[change.key].ready_count)
        for key, count in changes:
            slot = self.slots[key]
            if slot.ready_count == 0:
                slot.granted_at = now
            slot.ready_count = count
        return changes
