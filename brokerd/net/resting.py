"""Quiet topics let go of their files: each map and each file that is written holds a descriptor."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from brokerd.net.turns import in_portions

if TYPE_CHECKING:
    from brokerd.broker import Broker

EVERY_S: Final = 10.0
_TOPICS_AT_ONCE: Final = 100


async def rest_topics(broker: Broker) -> None:
    """Have every topic that was quiet for a while unmapped, until cancelled."""
    while True:
        await asyncio.sleep(EVERY_S)
        async for portion in in_portions(list(broker.topics.values()), _TOPICS_AT_ONCE):
            for topic in portion:
                topic.rest()
