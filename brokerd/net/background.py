"""Tasks that run as long as the broker does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine

log = logging.getLogger("brokerd")


class Background:
    """Such tasks, to be ended together."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, work: Coroutine[None, None, None]) -> None:
        """Run ``work``. It should not end; if it fails, the log says so and everything else goes on."""
        task = asyncio.create_task(work)
        task.add_done_callback(_tell_of_failure)
        self._tasks.append(task)

    async def close(self) -> None:
        """Cancel all and wait for what they still do."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _tell_of_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("%s failed and does not run any more", task.get_coro(), exc_info=error)
