"""Connections that are refused because too few descriptors are left."""

from __future__ import annotations

import logging
from typing import Final

from nsqwire.units import Seconds

SILENCE_S: Final = 10.0
"""At most one line is logged in this time: clients connect again and again."""

logger = logging.getLogger("brokerd")


class RefusedConnections:
    """Counts refused connections, and logs how many there were."""

    def __init__(self) -> None:
        self._count = 0
        self._logged_at: Seconds | None = None

    def add(self, now: Seconds) -> None:
        """Count one."""
        self._count += 1
        if self._logged_at is None or now >= self._logged_at + SILENCE_S:
            logger.error("TCP: %d connections refused: the last descriptors are kept for files and syncs", self._count)
            self._count, self._logged_at = 0, now
