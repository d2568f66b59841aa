"""Long work in slices, so that everybody else waits for milliseconds at most.

An event loop looks for new input once a turn. Whoever has much to do (a client that sent a thousand commands at once, a
channel that hands out a backlog) does a slice of it and queues the rest; the scheduler runs one queued slice a turn.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Final

SLICE_SECONDS: Final = 0.001
"""Time of one job before another has its turn."""
TURN_SECONDS: Final = 0.004
"""Time of one turn of the event loop from which on large input is queued instead of handled."""

Job = Callable[[float], None]

log = logging.getLogger("brokerd")


class Scheduler:
    """Runs queued jobs in turn, one slice per turn of the event loop.

    A job is called once, with its deadline in seconds of ``clock``. It stops soon after the deadline, and calls
    :meth:`later` again if there is more to do. ``call_soon`` runs a function in the next turn of the event loop.
    """

    def __init__(
        self, call_soon: Callable[[Callable[[], None]], object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.clock = clock
        self._call_soon = call_soon
        self._jobs: deque[Job] = deque()
        self._turn_ends: float | None = None  # None while nobody has asked in this turn

    def later(self, job: Job) -> None:
        """Queue a job behind those that wait already."""
        self._jobs.append(job)
        if len(self._jobs) == 1:
            self._call_soon(self._run)

    def deadline(self) -> float:
        """Return until when a slice may last that begins now."""
        return self.clock() + SLICE_SECONDS

    def is_spent(self) -> bool:
        """Whether this turn of the event loop has lasted so long that large work in it is to be queued.

        The turn is measured from the first call in it.
        """
        now = self.clock()
        if self._turn_ends is None:
            self._turn_ends = now + TURN_SECONDS
            self._call_soon(self._end_turn)
        return now >= self._turn_ends

    def _end_turn(self) -> None:
        self._turn_ends = None

    def _run(self) -> None:
        job = self._jobs[0]
        try:
            job(self.deadline())
        except Exception:  # a defect of ours; the others still have their turn
            log.exception("a piece of work failed")
        self._jobs.popleft()
        if self._jobs:
            self._call_soon(self._run)
