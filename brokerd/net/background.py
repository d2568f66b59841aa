"""Tasks that run as long as the broker does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine

log = logging.getLogger("brokerd")


class Background:
    """The background tasks, which are cancelled together."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, work: Coroutine[None, None, None]) -> None:
        """Run ``work``, which should not end. If it fails, the failure is logged and other tasks continue."""
        task = asyncio.create_task(work)
        task.add_done_callback(_log_failure)
        self._tasks.append(task)

    async def close(self) -> None:
        """Cancel all tasks and wait until they have ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("%s failed and does not run any more", task.get_coro(), exc_info=error)
