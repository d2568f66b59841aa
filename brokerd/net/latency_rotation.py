"""The periodic task that rotates the recent latencies."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from brokerd.net.portions import in_portions

if TYPE_CHECKING:
    from brokerd.broker import Broker
    from brokerd.latency import RecentLatencies

_CHANNELS_AT_ONCE: Final = 200


async def rotate_latencies(broker: Broker, latencies: RecentLatencies, period: timedelta) -> None:
    """Call ``rotate`` for every channel each half ``period``, until cancelled."""
    loop = asyncio.get_running_loop()
    due = loop.time()
    while True:
        due += period.total_seconds() / 2
        await asyncio.sleep(due - loop.time())
        channels = [channel for topic in broker.topics.values() for channel in topic.channels.values()]
        async for portion in in_portions(channels, _CHANNELS_AT_ONCE):
            for channel in portion:
                latencies.rotate(channel)
