"""Polling with a deadline, for tests that wait for other processes and threads.

Only failing tests reach the deadline: passing tests need a fraction of it, even on a busy machine.
"""

from __future__ import annotations

import asyncio
import inspect
import select
import time
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

DEADLINE_S = 60.0
POLL_INTERVAL_S = 0.01

T = TypeVar("T")


class HasFileno(Protocol):
    """A socket, a pipe or a file."""

    def fileno(self) -> int: ...


def wait_until(condition: Callable[[], T | None], what: str = "the condition", *, within_s: float = DEADLINE_S) -> T:
    """Poll until ``condition`` returns a true value, and return that value.

    Raises AssertionError with ``what`` after ``within_s`` seconds.
    """
    deadline = time.monotonic() + within_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}"
        time.sleep(POLL_INTERVAL_S)
    return value


async def until(
    condition: Callable[[], T | Awaitable[T | None] | None],
    what: str = "the condition",
    *,
    within_s: float = DEADLINE_S,
) -> T:
    """Like ``wait_until``, in an event loop. ``condition`` may be a coroutine function."""
    deadline = time.monotonic() + within_s
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}"
        await asyncio.sleep(POLL_INTERVAL_S)


def is_readable(source: HasFileno | int, within_s: float = DEADLINE_S) -> bool:
    """Return whether ``source`` becomes readable within ``within_s`` seconds.

    It uses poll(), because select() refuses descriptors above 1,023.
    """
    poll = select.poll()
    poll.register(source, select.POLLIN)
    return bool(poll.poll(within_s * 1000))
