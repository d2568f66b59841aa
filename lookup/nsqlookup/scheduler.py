"""Runs long work in short steps, so that it does not block other clients."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Generator, Iterator
from typing import Final, TypeVar

from nsqwire.units import Seconds

log = logging.getLogger(__name__)

T = TypeVar("T")

TURN_S: Final = 0.002
"""Time for all long work in one turn of the event loop, in seconds."""


class Scheduler:
    """Runs iterators with short steps, for about TURN_S in total in each turn of the event loop.

    A new iterator runs at least one step at once, so that short work does not wait for long work. The rest is queued,
    and queued iterators alternate.
    """

    def __init__(self) -> None:
        self._waiting: deque[Iterator[None]] = deque()
        self._until: Seconds = 0.0
        """Deadline of this turn, on the monotonic clock."""
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop in which the next turn is scheduled; None if none is."""

    def begin(self, work: Iterator[None]) -> bool:
        """Run the work until this turn's deadline, and the rest in later turns. True if the work is already done."""
        if _run(work, self._this_turn()):
            return True
        self._waiting.append(work)
        return False

    def answer(self, work: Generator[None, None, T]) -> T | asyncio.Future[T]:
        """Run ``work`` and return its result, or a future of it. Its exception is raised here or by the future."""
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


def _run(work: Iterator[None], until: Seconds) -> bool:
    """Run the work until ``until``, but at least one step. True if the work is done."""
    try:
        while True:
            next(work)
            if time.monotonic() >= until:
                return False
    except StopIteration:
        return True
    except Exception:  # a bug; other work continues
        log.exception("work failed")
        return True


def _fulfilled(work: Generator[None, None, T], future: asyncio.Future[T]) -> Iterator[None]:
    """Run the work in steps, and set its result in ``future``. Ends early if ``future`` is cancelled."""
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


def sorted_in_steps(items: list[str]) -> Generator[None, None, list[str]]:
    """Sort the items in steps. Sorting 100,000 names at once takes 30 ms; merging two sorted halves takes 4 ms."""
    runs = []
    for start in range(0, len(items), _RUN):
        runs.append(sorted(items[start : start + _RUN]))
        if len(items) > _RUN:
            yield
    while len(runs) > 1:
        merged = []
        for at in range(0, len(runs), 2):
            run = runs[at] + runs[at + 1] if at + 1 < len(runs) else runs[at]
            run.sort()  # sort() detects the two runs and merges them
            merged.append(run)
            yield
        runs = merged
    return runs[0] if runs else []


_RUN: Final = 2048
