"""Pauses between connection attempts: first none, then growing and random, so that clients do not reconnect at once."""

from __future__ import annotations

import random
from datetime import timedelta

FIRST_SECONDS = 0.1
STEADY_SECONDS = 1.0


class Reconnect:
    """Computes the pauses between attempts to reach one nsqd."""

    def __init__(self, max_delay: timedelta) -> None:
        self._max_s = max_delay.total_seconds()
        self._attempt = 0

    def next_delay_s(self) -> float:
        """The pause before the next attempt: 0, then a random 50 to 100 % of 0.1, 0.2, 0.4 … up to the maximum."""
        attempt, self._attempt = self._attempt, self._attempt + 1
        if attempt == 0:
            return 0.0
        longest: float = FIRST_SECONDS * 2 ** min(attempt - 1, 20)
        return min(self._max_s, longest) * random.uniform(0.5, 1.0)

    def lasted(self, seconds: float) -> None:
        """Record that a connection lasted ``seconds``. From STEADY_SECONDS on, the pauses start again at 0."""
        if seconds >= STEADY_SECONDS:
            self._attempt = 0
