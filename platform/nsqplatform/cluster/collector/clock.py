"""The collector's clock: unix time that does not go back when the machine's is set back."""

from __future__ import annotations

import time
from collections.abc import Callable

LONGEST_LEAD_S = 3600.0
"""A clock that is set back further than this was wrong before: it is followed at once."""
CATCHING_UP = 0.5
"""Speed of this clock while the machine's is behind it."""


class Clock:
    """Times of readings. While the machine's clock is behind the last one, time goes on at half its speed.

    The machine's clock, and not the monotonic one, is followed otherwise: it is corrected while a collector runs, and
    goes on while a laptop sleeps.
    """

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._last, self._read_at = 0.0, monotonic()

    def now(self) -> float:
        """Unix seconds."""
        wall, monotonic = self._wall(), self._monotonic()
        slowed = self._last + CATCHING_UP * (monotonic - self._read_at)
        self._last = max(wall, slowed) if slowed - wall <= LONGEST_LEAD_S else wall
        self._read_at = monotonic
        return self._last

    def not_before(self, moment: float) -> None:
        """Begin after ``moment``, in unix seconds, the time of another process. It is ignored if it is far ahead."""
        if self._last < moment <= self._wall() + LONGEST_LEAD_S:
            self._last, self._read_at = moment, self._monotonic()
