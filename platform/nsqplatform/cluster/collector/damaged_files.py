"""Counts the archive files that maintenance set aside as damaged, for a metric and for alerts."""

from __future__ import annotations

import asyncio
import logging

from nsqanalytics import damage
from nsqplatform.cluster import metrics
from nsqplatform.cluster.store import DamagedFiles

logger = logging.getLogger(__name__)

EVERY_S = 60.0


class DamagedFilesWatch:
    """Lists the damaged files of an archive every EVERY_S seconds. ``latest`` is None while it cannot be listed; the
    metric keeps its value."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.latest: DamagedFiles | None = None

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            try:
                self.latest = await asyncio.to_thread(self._list)
                metrics.damaged_files.set(self.latest.file_count)
            except OSError as error:
                self.latest = None
                logger.warning("cannot count the damaged files of the archive", extra={"error": str(error)})
            await asyncio.sleep(EVERY_S)

    def _list(self) -> DamagedFiles:
        names = damage.names(self.root)
        return DamagedFiles(len(names), names[0] if names else "")
