"""The slots of a worker, which are assigned in the order of the tasks' priorities."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count


class Closed(Exception):
    """The worker is stopping and starts no more tasks."""


class Gate:
    """Limits the number of running tasks. Admits them by priority, and within a priority in order of arrival."""

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._arrivals = count()
        self._is_closed = False

    @asynccontextmanager
    async def slot(self, priority: int) -> AsyncIterator[None]:
        """Occupy a slot in the block, after waiting for a free one. Raises Closed."""
        if self._is_closed:
            raise Closed
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (-priority, next(self._arrivals), turn))
        self._admit()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._release()
            raise
        try:
            yield
        finally:
            self._release()

    def close(self) -> None:
        """Start no more tasks. Callers that wait for a slot get Closed."""
        self._is_closed = True
        for _, _, turn in self._waiting:
            if not turn.done():
                turn.set_exception(Closed())
        self._waiting.clear()

    def _release(self) -> None:
        self._free += 1
        self._admit()

    def _admit(self) -> None:
        while self._free and self._waiting:
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                self._free -= 1
                turn.set_result(None)
