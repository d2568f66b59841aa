"""One timer for all channels: each says when it next has something due, and is called then, to the millisecond."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable
from typing import Protocol


class Handle(Protocol):
    """What ``arm`` gives back: asyncio's TimerHandle, or a test's."""

    def cancel(self) -> None: ...


class Ticking(Protocol):
    """Something with due times. ``wake_at`` belongs to the timers."""

    wake_at: float

    def tick(self, now: float) -> None: ...


logger = logging.getLogger("brokerd")
NEVER = float("inf")


class Timers:
    """Due times on the monotonic clock, in seconds. ``arm(when)`` has ``fire`` called at ``when``, unless cancelled."""

    def __init__(self, arm: Callable[[float], Handle]) -> None:
        self._arm = arm
        self._armed = NEVER
        self._handle: Handle | None = None
        self._heap: list[tuple[float, int, Ticking]] = []
        self._order = 0

    def schedule(self, owner: Ticking, when: float) -> None:
        """Have ``owner.tick`` called at ``when``, unless it is going to be called before that anyway."""
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
                try:
                    owner.tick(now)
                except Exception:  # a defect of ours; the other channels still get theirs
                    logger.exception("a channel's timer failed")
        self._rearm(heap[0][0] if heap else NEVER)

    def _rearm(self, when: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._armed = when
        self._handle = None if when == NEVER else self._arm(when)
