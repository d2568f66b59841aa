"""Distribution of ``max_in_flight`` over a consumer's connections, as RDY counts.

There is no socket and no clock here: methods take the time as an argument (seconds of any monotonic clock) and return
the RDY commands to send, in order. Decreases come before increases, so that the sum of all RDY counts never exceeds
``max_in_flight``, not even between two commands.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from datetime import timedelta
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

from nsqwire.units import Seconds

Key = TypeVar("Key", bound=Hashable)


FRUITLESS_SECONDS = 0.5
"""How long a connection that receives nothing keeps RDY 1 while others wait for it. nsqd buffers output for 0.25 s."""


class ReadyCount(NamedTuple, Generic[Key]):
    """Send ``RDY ready_count`` to connection ``key``."""

    key: Key
    ready_count: int


class Mode(Enum):
    """The number of messages that backoff allows: all, none, or one test message."""

    FULL = "full"
    BLOCKED = "blocked"
    TEST = "test"


class Slot:
    """State of one connection. The connection itself updates ``in_flight_count`` and ``last_message_at``."""

    __slots__ = ("granted_at", "in_flight_count", "last_message_at", "max_rdy_count", "ready_count")

    def __init__(self, max_rdy_count: int) -> None:
        self.max_rdy_count = max_rdy_count
        """The largest RDY count that its nsqd accepts."""
        self.ready_count = 0
        """The last RDY count sent; nsqd does not decrement it."""
        self.in_flight_count = 0
        self.last_message_at = float("-inf")
        self.granted_at = float("-inf")
        """Time at which the RDY count last rose from 0."""


def shares(max_in_flight: int, maxima: Sequence[int]) -> list[int]:
    """Split ``max_in_flight`` as evenly as the per-connection ``maxima`` allow; earlier connections get the remainder.

    If there are more connections than ``max_in_flight``, the first ``max_in_flight`` get 1 and the others 0. The part
    that one connection cannot accept goes to the others, so the sum is ``min(max_in_flight, sum(maxima))``.
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
    them have RDY 1. :meth:`redistribute` passes RDY 1 to the connection that has waited longest. It takes RDY 1 from a
    connection that has received no message since it got RDY 1, FRUITLESS_SECONDS ago; that has received no further
    message for ``low_rdy_idle_timeout``; or that has had RDY 1 for ``low_rdy_timeout``. A connection therefore waits at
    most ``low_rdy_timeout`` for each of the others.
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
        self._idle_timeout_s = low_rdy_idle_timeout.total_seconds()
        self._hold_timeout_s = low_rdy_timeout.total_seconds()

    @property
    def total(self) -> int:
        """Sum of the RDY counts sent."""
        return sum(slot.ready_count for slot in self.slots.values())

    def joined(self, key: Key, max_rdy_count: int, now: Seconds) -> list[ReadyCount[Key]]:
        """A connection has subscribed."""
        self.slots[key] = Slot(max_rdy_count)
        return self._apply(self._targets(), now)

    def left(self, key: Key, now: Seconds) -> list[ReadyCount[Key]]:
        """A connection has ended; its RDY count goes to the others."""
        self.slots.pop(key, None)
        return self._apply(self._targets(), now)

    def change_max_in_flight(self, max_in_flight: int, now: Seconds) -> list[ReadyCount[Key]]:
        """Distribute a new total; 0 pauses the consumer."""
        self.max_in_flight = max_in_flight
        return self._apply(self._targets(), now)

    def block(self, now: Seconds) -> list[ReadyCount[Key]]:
        """Backoff blocks: RDY 0 for all connections."""
        self.mode = Mode.BLOCKED
        return self._apply(self._targets(), now)

    def test(self, now: Seconds) -> list[ReadyCount[Key]]:
        """Backoff tests one message: RDY 1 for the connection that has waited longest. Empty without connections."""
        self.mode = Mode.TEST
        return self._apply(self._targets(), now)

    def resume(self, now: Seconds) -> list[ReadyCount[Key]]:
        """Backoff has ended: distribute the full total again."""
        self.mode = Mode.FULL
        return self._apply(self._targets(), now)

    def redistribute(self, now: Seconds) -> list[ReadyCount[Key]]:
        """Pass RDY 1 from connection to connection if there are more connections than ``max_in_flight``.

        Call it several times a second, and when a message from a connection with RDY 0 is answered.
        """
        limit = self._limit()
        if limit == 0 or len(self.slots) <= limit:
            return []
        targets = {key: slot.ready_count for key, slot in self.slots.items()}
        holders = [key for key, count in targets.items() if count]
        waiting = self._waiting()
        # No more connections give up RDY 1 than wait for it; the connections idle for longest give it up first.
        tired = sorted((key for key in holders if self._gives_up(self.slots[key], now)), key=self._active_at)
        for key in tired[: len(waiting)]:
            targets[key] = 0
        for key in waiting[: max(0, limit - self._occupied(targets))]:
            targets[key] = 1
        return self._apply(targets, now)

    def _occupied(self, targets: dict[Key, int]) -> int:
        """Return the part of the limit that is used with the RDY counts of ``targets``."""
        if self.mode is Mode.TEST:  # messages delivered before the block are not part of the test
            return sum(targets.values())
        # An unanswered message counts towards max_in_flight even when its connection has RDY 0 by now.
        return sum(max(targets[key], min(1, slot.in_flight_count)) for key, slot in self.slots.items())

    def _limit(self) -> int:
        if self.mode is Mode.FULL:
            return self.max_in_flight
        return min(1, self.max_in_flight) if self.mode is Mode.TEST else 0

    def _gives_up(self, slot: Slot, now: Seconds) -> bool:
        brought_something = slot.last_message_at >= slot.granted_at
        if self.mode is Mode.TEST and brought_something and slot.in_flight_count:
            return False  # the test message is being processed
        if not brought_something and not slot.in_flight_count:
            return now - slot.granted_at >= min(self._idle_timeout_s, FRUITLESS_SECONDS)
        return now - self._active(slot) >= self._idle_timeout_s or now - slot.granted_at >= self._hold_timeout_s

    def _active(self, slot: Slot) -> float:
        return max(slot.last_message_at, slot.granted_at)

    def _active_at(self, key: Key) -> Seconds:
        return self._active(self.slots[key])

    def _waiting(self) -> list[Key]:
        """Connections with RDY 0, the longest inactive one first."""
        without = [key for key, slot in self.slots.items() if slot.ready_count == 0 and slot.max_rdy_count > 0]
        return sorted(without, key=lambda key: self.slots[key].granted_at)

    def _targets(self) -> dict[Key, int]:
        limit = self._limit()
        # With more connections than the limit, those with an RDY count keep it. Otherwise the oldest ones are first.
        order = list(self.slots)
        if limit < len(order):
            holders = [key for key in order if self.slots[key].ready_count]
            order = holders + self._waiting()
        given = shares(limit, [self.slots[key].max_rdy_count for key in order])
        return {**dict.fromkeys(self.slots, 0), **dict(zip(order, given, strict=True))}

    def _apply(self, targets: dict[Key, int], now: Seconds) -> list[ReadyCount[Key]]:
        changes = [ReadyCount(key, count) for key, count in targets.items() if self.slots[key].ready_count != count]
        changes.sort(key=lambda change: change.ready_count > self.slots[change.key].ready_count)
        for key, count in changes:
            slot = self.slots[key]
            if slot.ready_count == 0:
                slot.granted_at = now
            slot.ready_count = count
        return changes
