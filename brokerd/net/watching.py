"""Periodic check that the data path was not moved."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from brokerd.broker import Broker

EVERY_S: Final = 1.0


async def watch_data_path(broker: Broker) -> None:
    """Check once a second that the data path is the directory that was opened, until cancelled."""
    while True:
        await asyncio.sleep(EVERY_S)
        broker.check_data_path()
