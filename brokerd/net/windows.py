"""The clock of the latency windows."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from brokerd.net.turns import in_portions

if TYPE_CHECKING:
    from brokerd.broker import Broker
    from brokerd.latency import LatencyWindows

_CHANNELS_AT_ONCE: Final = 200


async def turn_windows(broker: Broker, windows: LatencyWindows, window: timedelta) -> None:
    """Begin a new half of ``window`` for every channel, each time one has passed, until cancelled."""
    loop = asyncio.get_running_loop()
    due = loop.time()
    while True:
        due += window.total_seconds() / 2
        await asyncio.sleep(due - loop.time())
        channels = [channel for topic in broker.topics.values() for channel in topic.channels.values()]
        async for portion in in_portions(channels, _CHANNELS_AT_ONCE):
            for channel in portion:
                windows.turn(channel)
