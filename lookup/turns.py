"""Long work in short pieces, so that nobody waits for it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Generator, Iterator
from typing import Final, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")

TURN_S: Final = 0.002
"""Time for all long work together in one turn of the event loop, in seconds."""


class Turns:
    """Runs iterators whose every step is short, all of them together for about TURN_S in each turn of the event loop.

    New work does at least one step at once, so that what is short is not behind what is long. The rest waits in a
    queue, and its works take their turns in it.
    """

    def __init__(self) -> None:
        self._waiting: deque[Iterator[None]] = deque()
        self._until = 0.0
        """When this turn's time is spent, on the monotonic clock."""
        self._loop: asyncio.AbstractEventLoop | None = None
        """Where the next turn is scheduled; None if it is not."""

    def begin(self, work: Iterator[None]) -> bool:
        """Do what this turn has time for, and the rest in later turns. True if the work is done already."""
        if _run(work, self._this_turn()):
            return True
        self._waiting.append(work)
        return False

    def answer(self, work: Generator[None, None, T]) -> T | asyncio.Future[T]:
        """What ``work`` returns, or a future of it. What it raises is raised, here or by the future."""
        until = self._this_turn()
        try:
            while True:
                next(work)
                if time.monotonic() >= until:
                    break
        except StopIteration as stopped:
            value: T = stopped.value
            return value
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append(_fulfilled(work, future))
        return future

    def _this_turn(self) -> float:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            self._until = time.monotonic() + TURN_S
            loop.call_soon(self._next_turn)
        return self._until

    def _next_turn(self) -> None:
        self._loop = None
        if not self._waiting:
            return
        until = self._this_turn()
        while self._waiting and time.monotonic() < until:
            work = self._waiting.popleft()
            if not _run(work, until):
                self._waiting.append(work)


def _run(work: Iterator[None], until: float) -> bool:
    """Whether it came to its end before that time. At least one step is done."""
    try:
        while True:
            next(work)
            if time.monotonic() >= until:
                return False
    except StopIteration:
        return True
    except Exception:  # the others go on
        log.exception("work failed")
        return True


def _fulfilled(work: Generator[None, None, T], future: asyncio.Future[T]) -> Iterator[None]:
    """Go on with the work while somebody waits for what it returns."""
    while not future.done():
        try:
            next(work)
        except StopIteration as stopped:
            future.set_result(stopped.value)
            return
        except Exception as error:
            future.set_exception(error)
            return
        yield


def sorted_in_turns(items: list[str]) -> Generator[None, None, list[str]]:
    """The items, sorted. Sorting a hundred thousand names at once takes 30 ms; merging two sorted halves takes 4."""
    runs = []
    for start in range(0, len(items), _RUN):
        runs.append(sorted(items[start : start + _RUN]))
        if len(items) > _RUN:
            yield
    while len(runs) > 1:
        merged = []
        for at in range(0, len(runs), 2):
            run = runs[at] + runs[at + 1] if at + 1 < len(runs) else runs[at]
            run.sort()  # it finds the two runs and merges them
            merged.append(run)
            yield
        runs = merged
    return runs[0] if runs else []


_RUN: Final = 2048
