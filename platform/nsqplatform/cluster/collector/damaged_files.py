"""A metric of the collector: the number of archive files that maintenance set aside as damaged."""

from __future__ import annotations

import asyncio
import logging

from nsqanalytics import damage
from nsqplatform.cluster import metrics

logger = logging.getLogger(__name__)

EVERY_S = 60.0


async def watch(root: str, *, every_s: float = EVERY_S) -> None:
    """Update the metric every ``every_s`` seconds. It keeps its value while the archive cannot be listed."""
    while True:
        try:
            metrics.damaged_files.set(await asyncio.to_thread(damage.count, root))
        except OSError as error:
            logger.warning("cannot count the damaged files of the archive", extra={"error": str(error)})
        await asyncio.sleep(every_s)
