"""Runs long work in slices, so that other clients wait milliseconds at most.

The event loop polls for new input once per turn. Long work, such as a thousand commands of one client or a large
backlog, does one slice and queues the rest; the scheduler runs one queued slice per turn.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from nsqwire.units import Seconds

SLICE_SECONDS: Final = 0.001
"""Length of a slice."""
TURN_SECONDS: Final = 0.004
"""Length of a turn of the event loop after which large input is queued instead of handled."""

Job = Callable[[float], None]

log = logging.getLogger("brokerd")


class Scheduler:
    """Runs queued jobs in order, one per turn of the event loop.

    A job is called once, with its deadline in seconds of ``clock``. It returns soon after the deadline, and calls
    :meth:`later` again if it has more to do. ``call_soon`` runs a function in the next turn of the event loop.
    """

    def __init__(
        self, call_soon: Callable[[Callable[[], None]], object], clock: Callable[[], Seconds] = time.monotonic
    ) -> None:
        self.clock = clock
        self._call_soon = call_soon
        self._jobs: deque[Job] = deque()
        self._turn_ends: Seconds | None = None  # None before the first is_spent() of a turn

    def later(self, job: Job) -> None:
        """Queue a job."""
        self._jobs.append(job)
        if len(self._jobs) == 1:
            self._call_soon(self._run)

    def deadline(self) -> Seconds:
        """Return the deadline of a slice that begins now."""
        return self.clock() + SLICE_SECONDS

    def is_spent(self) -> bool:
        """Return whether large input should be queued, because this turn of the event loop has lasted TURN_SECONDS.

        The time is measured from the first call in the turn.
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
        except Exception:  # a bug; the other jobs still run
            log.exception("a scheduled job failed")
        self._jobs.popleft()
        if self._jobs:
            self._call_soon(self._run)
