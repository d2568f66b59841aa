"""Detection of a connection reset while reading is paused."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable

HAS_EPOLL = hasattr(select, "epoll")
"""Only Linux can poll for resets alone; on other systems the next heartbeat detects them."""


class ResetWatch:
    """Calls ``reset`` if the connection of ``descriptor`` is reset before the watch is closed.

    A client that only closed its sending side does not count, because it may wait for a response.
    """

    def __init__(self, descriptor: int, reset: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._epoll = select.epoll()
        self._epoll.register(descriptor, 0)  # errors and hang-ups are always reported
        self._loop.add_reader(self._epoll.fileno(), self._happened, reset)

    def _happened(self, reset: Callable[[], None]) -> None:
        self.close()
        reset()

    def close(self) -> None:
        """Stop watching."""
        if not self._epoll.closed:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
