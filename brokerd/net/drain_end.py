"""Ends the process once a drained node is empty, or at its deadline."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from nsqwire.counted import counted

if TYPE_CHECKING:
    from brokerd.broker import Broker

INTERVAL_S: Final = 0.5
"""Time between two looks at what is left."""

logger = logging.getLogger("brokerd")


async def end_when_drained(broker: Broker, stop: asyncio.Event) -> None:
    """Wait for the end of a drain, and set ``stop`` then."""
    while not broker.drain.is_over:  # noqa: ASYNC110 - a FIN does not show that it was the last
        await asyncio.sleep(INTERVAL_S)
    logger.info("the drain is over: %s left", counted(broker.drain.left, "message is", "messages are"))
    stop.set()
