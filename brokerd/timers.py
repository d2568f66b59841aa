"""One timer for all channels: each says when it next has something due, and is called then, to the millisecond."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar


class Handle(Protocol):
    """What ``arm`` gives back: asyncio's TimerHandle, or a test's."""

    def cancel(self) -> None: ...


class Ticking(Protocol):
    """Something with due times. ``wake_at`` belongs to the timers."""

    wake_at: float


NEVER = float("inf")
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

    def schedule(self, owner: Owner, when: float) -> None:
        """Schedule ``tick`` for ``owner`` at ``when``, unless it is scheduled earlier already."""
        if when >= owner.wake_at:
            return
        owner.wake_at = when
        self._order += 1
        heapq.heappush(self._heap, (when, self._order, owner))
        if when < self._armed:
            self._rearm(when)

    def fire(self, now: float) -> None:
        """Call all that are due; each schedules itself again if it has more."""
        heap = self._heap
        self._armed = -NEVER  # what is scheduled meanwhile is armed for below, once
        due = []
        while heap and heap[0][0] <= now:
            due.append(heapq.heappop(heap))
        for when, _, owner in due:  # all that were due; what they schedule, even for now, is for the next time
            if owner.wake_at == when:  # otherwise it was called at an earlier time of its own, and this one is stale
                owner.wake_at = NEVER
                self._tick(owner, now)
        self._rearm(heap[0][0] if heap else NEVER)

    def _rearm(self, when: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._armed = when
        self._handle = None if when == NEVER else self._arm(when)
