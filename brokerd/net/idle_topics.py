"""Periodic unmapping of idle topics, because each map and each file open for writing takes a descriptor."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from brokerd.net.portions import in_portions

if TYPE_CHECKING:
    from brokerd.broker import Broker

INTERVAL_S: Final = 10.0
_TOPICS_AT_ONCE: Final = 100


async def unmap_idle_topics(broker: Broker) -> None:
    """Unmap every topic that was idle during the last interval, until cancelled."""
    while True:
        await asyncio.sleep(INTERVAL_S)
        async for portion in in_portions(list(broker.topics.values()), _TOPICS_AT_ONCE):
            for topic in portion:
                topic.unmap_if_idle()
