"""A thread of the collector's process for the work of one listener with the database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from django.db import close_old_connections, connections

T = TypeVar("T")


class DatabaseThread:
    """Does one piece of work after the other, so that neither polls nor other listeners wait for the database."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def run(self, work: Callable[[], T]) -> T:
        """Call ``work`` in the thread, with a new connection if the last one is unusable."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, _called, work)

    def end(self) -> None:
        """Close the thread's connection, and wait for its end."""
        self._executor.submit(connections.close_all)
        self._executor.shutdown(wait=True)


def _called(work: Callable[[], T]) -> T:
    close_old_connections()
    try:
        return work()
    finally:
        close_old_connections()
