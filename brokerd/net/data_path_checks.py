"""Periodic checks of the data path: was it moved, and does its disk answer, have free space and accept writes?"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from brokerd.broker import Broker

INTERVAL_S: Final = 1.0

logger = logging.getLogger("brokerd")


async def check_data_path(broker: Broker) -> None:
    """Check every second that the disk answers, that the data path is the directory that was opened, and the disk's
    reserve, until cancelled."""
    while True:
        await asyncio.sleep(INTERVAL_S)
        if broker.storage.syncer is not None:
            broker.storage.syncer.check(INTERVAL_S)
        broker.storage.check_data_path()
        broker.storage.check_reserve()


async def retry_refused_writes(broker: Broker) -> None:
    """Every second, retry the write that the disk refused, and clear the error when it succeeds, until cancelled.

    Only a successful write clears the error, and a load balancer that follows ``/ping`` sends no publish meanwhile.
    """
    while True:
        await asyncio.sleep(INTERVAL_S)
        refused = broker.storage.refused_write
        if refused is None or broker.storage.refusal is not None:
            continue
        try:
            await asyncio.to_thread(refused.retry)
        except (OSError, RuntimeError) as error:  # RuntimeError: no memory for a thread
            logger.debug("the disk still refuses a write of %d bytes: %s", refused.nbytes, error)
        else:
            broker.storage.write_succeeds(refused)
