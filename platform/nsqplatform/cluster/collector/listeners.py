"""Listeners: code in the collector's process that is called with each snapshot."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from nsqplatform.cluster.readings.reading import Reading
from nsqplatform.cluster.snapshots.snapshot import Snapshot

logger = logging.getLogger(__name__)


class Listener(Protocol):
    """For example, the evaluation of alerts."""

    async def on_snapshot(self, snapshot: Snapshot, before: Snapshot | None) -> None:
        """``before`` is the previous snapshot; None if there is none."""

    async def finish(self) -> None:
        """Called once, after the last call of ``on_snapshot`` has returned."""


@runtime_checkable
class BatchListener(Protocol):
    """A listener that also counts what is archived."""

    def on_batch(self, batch: Sequence[tuple[str, Reading]]) -> None:
        """Called with every batch of the archive: readings and their nodes. It must not block."""


class Listeners:
    """Calls each listener with each snapshot, in a task of its own, so that listeners do not delay the collector.

    A listener that is still busy misses a snapshot. Of consecutive failures of a listener, only the first is logged,
    with a traceback.
    """

    def __init__(self, listeners: Sequence[Listener] = ()) -> None:
        self._listeners = list(listeners)
        self._busy: dict[int, asyncio.Task[None]] = {}
        self._failing: set[int] = set()

    def notify(self, snapshot: Snapshot, before: Snapshot | None) -> None:
        for number, listener in enumerate(self._listeners):
            if number not in self._busy or self._busy[number].done():
                self._busy[number] = asyncio.create_task(self._notify(number, listener, snapshot, before))

    def on_batch(self, batch: Sequence[tuple[str, Reading]]) -> None:
        for listener in self._listeners:
            if isinstance(listener, BatchListener):
                try:
                    listener.on_batch(batch)
                except Exception:
                    logger.exception("a listener failed", extra={"listener": type(listener).__name__})

    async def finish(self) -> None:
        """Wait for the running calls, then call ``finish`` of each listener."""
        await asyncio.gather(*self._busy.values())
        for listener in self._listeners:
            try:
                await listener.finish()
            except Exception:
                logger.exception("a listener failed to finish", extra={"listener": type(listener).__name__})

    async def _notify(self, number: int, listener: Listener, snapshot: Snapshot, before: Snapshot | None) -> None:
        try:
            await listener.on_snapshot(snapshot, before)
        except Exception:  # a defect in a listener must not end the collector
            if number not in self._failing:
                logger.exception("a listener failed", extra={"listener": type(listener).__name__})
            self._failing.add(number)
        else:
            self._failing.discard(number)
