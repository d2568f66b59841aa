"""Who wants each beat's picture in the collector's own process: one place for them to hang on to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from cluster.picture import Picture

logger = logging.getLogger(__name__)


class Listener(Protocol):
    """Say, what evaluates alerts. ``before`` is the picture of the last beat, None at the first."""

    async def beat(self, picture: Picture, before: Picture | None) -> None: ...

    async def finish(self) -> None:
        """There are no more beats; one that is under way has ended."""


class Listeners:
    """Hands each picture to every listener, aside from the beats: one that is busy yet misses a beat, one that fails is
    logged, the first of a row of failures in full, and neither keeps a browser waiting."""

    def __init__(self, listeners: Sequence[Listener] = ()) -> None:
        self._listeners = list(listeners)
        self._busy: dict[int, asyncio.Task[None]] = {}
        self._failing: set[int] = set()

    def beat(self, picture: Picture, before: Picture | None) -> None:
        for number, listener in enumerate(self._listeners):
            if number not in self._busy or self._busy[number].done():
                self._busy[number] = asyncio.create_task(self._tell(number, listener, picture, before))

    async def finish(self) -> None:
        """Wait for those that are at it, and let all end."""
        await asyncio.gather(*self._busy.values())
        for listener in self._listeners:
            try:
                await listener.finish()
            except Exception:
                logger.exception("a listener did not end well", extra={"listener": type(listener).__name__})

    async def _tell(self, number: int, listener: Listener, picture: Picture, before: Picture | None) -> None:
        try:
            await listener.beat(picture, before)
        except Exception:  # whatever is wrong with it, beats go on
            if number not in self._failing:
                logger.exception("a listener failed", extra={"listener": type(listener).__name__})
            self._failing.add(number)
        else:
            self._failing.discard(number)
