"""One event loop timer for all channels. Each schedules its next due time; the resolution is a millisecond."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from nsqwire.units import Seconds


class Handle(Protocol):
    """The result of ``arm``, such as asyncio's TimerHandle."""

    def cancel(self) -> None:
        """Cancel the call."""
        ...


class Ticking(Protocol):
    """An owner of due times. Only the timers set ``wake_at``."""

    wake_at: Seconds


NEVER = float("inf")
ROUNDING_S = 0.00051
"""A little more than half the resolution of uvloop's clock, which is a millisecond."""
CallAt = Callable[[float, Callable[[], None]], Handle]
Owner = TypeVar("Owner", bound=Ticking)


class Timers(Generic[Owner]):
    """Due times on the monotonic clock, in seconds. ``arm(when)`` schedules a cancellable call of ``fire`` at ``when``.

    ``tick(owner, now)`` is called for each owner that is due. It must not raise.
    """

    def __init__(self, arm: Callable[[float], Handle], tick: Callable[[Owner, float], None]) -> None:
        self._arm = arm
        self._tick = tick
        self._armed = NEVER
        self._handle: Handle | None = None
        self._heap: list[tuple[float, int, Owner]] = []
        self._order = 0

    def schedule(self, owner: Owner, when: Seconds) -> None:
        """Schedule ``tick`` for ``owner`` at ``when``, unless it is already scheduled at that time or earlier."""
        if when >= owner.wake_at:
            return
        owner.wake_at = when
        self._order += 1
        heapq.heappush(self._heap, (when, self._order, owner))
        if when < self._armed:
            self._rearm(when)

    def fire(self, now: Seconds) -> None:
        """Call ``tick`` for all owners that are due; each schedules itself again if needed."""
        heap = self._heap
        self._armed = -NEVER  # no arming during the loop; it is armed once, below
        due = []
        while heap and heap[0][0] <= now:
            due.append(heapq.heappop(heap))
        for when, _, owner in due:  # times that these schedule, even ``now``, fire in the next call
            if owner.wake_at == when:  # otherwise it was called earlier, and this entry is stale
                owner.wake_at = NEVER
                self._tick(owner, now)
        self._rearm(heap[0][0] if heap else NEVER)

    def _rearm(self, when: Seconds) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._armed = when
        self._handle = None if when == NEVER else self._arm(when)


def never_early(call_at: CallAt) -> CallAt:
    """Make ``call_at`` round up, for an event loop that rounds to the nearest millisecond.

    ``Timers`` arms again after an early call, so the loop would spin until that millisecond is over.
    """
    return lambda when, run: call_at(when + ROUNDING_S, run)
