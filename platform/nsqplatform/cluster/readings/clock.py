"""The collector's clock: Unix time that does not go back when the machine's is set back."""

from __future__ import annotations

import time
from collections.abc import Callable

from nsqwire.units import Seconds

MAX_LEAD_S = 3600.0
"""If the machine's clock is set back by more than this, it was wrong before, and this clock follows it at once."""
CATCHING_UP = 0.5
"""Speed of this clock while the machine's is behind it."""


class Clock:
    """The time of readings. While the machine's clock is behind the last time returned, this clock runs at half speed.

    Otherwise it follows the machine's clock and not the monotonic one, because the machine's clock is corrected while a
    collector runs, and advances while a laptop sleeps.
    """

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._last, self._read_at = 0.0, monotonic()

    def now(self) -> Seconds:
        """Unix seconds."""
        wall, monotonic = self._wall(), self._monotonic()
        slowed = self._last + CATCHING_UP * (monotonic - self._read_at)
        self._last = max(wall, slowed) if slowed - wall <= MAX_LEAD_S else wall
        self._read_at = monotonic
        return self._last

    def not_before(self, moment: Seconds) -> None:
        """Continue from ``moment``, in Unix seconds, a time that another collector has returned. A moment that is far
        ahead of the machine's clock is ignored."""
        if self._last < moment <= self._wall() + MAX_LEAD_S:
            self._last, self._read_at = moment, self._monotonic()
