"""Ends the process once a drained node is empty, or at its deadline."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from brokerd.broker import Broker

INTERVAL_S: Final = 0.5

logger = logging.getLogger("brokerd")


async def end_when_drained(broker: Broker, stop: asyncio.Event) -> None:
    """Set ``stop`` once the drain is over, until cancelled."""
    while True:
        await asyncio.sleep(INTERVAL_S)
        if broker.drain.is_over:
            logger.info("the node is drained: %d messages are left", broker.drain.left)
            stop.set()
