"""Handing readings to the archive without ever holding up a beat."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

import pyarrow as pa

from cluster.reading import NodeView
from cluster.samples import samples_of

logger = logging.getLogger(__name__)

EVERY_S = 10.0
KEPT_BATCHES = 30
"""While the archive cannot be written, so many batches wait (five minutes' worth); older ones are given up."""


class Writer(Protocol):
    def write_table(self, samples: pa.Table) -> None: ...


class Archiving:
    """Takes a batch every EVERY_S seconds; writes in a worker thread, one batch at a time, oldest first."""

    def __init__(self, open_writer: Callable[[], Writer]) -> None:
        self._open_writer = open_writer
        self._writer: Writer | None = None
        self._waiting: deque[pa.Table] = deque()
        self._archived: dict[str, float] = {}
        self._due = 0.0
        self._work: asyncio.Task[None] | None = None
        self._failing = False

    def beat(self, views: Sequence[NodeView], *, now: float) -> None:
        """Take each node's newest reading, if it is time to. ``now`` is in seconds, monotonic."""
        if now < self._due:
            return
        self._due = now + EVERY_S
        self.take(views)

    def take(self, views: Sequence[NodeView]) -> None:
        """Queue the readings that no batch holds yet, and start writing."""
        taken: list[pa.Table] = []
        for view in views:
            reading = view.latest
            if reading is not None and self._archived.get(view.node.id) != reading.read_at:
                self._archived[view.node.id] = reading.read_at
                taken.append(samples_of(view.node.id, reading))
        if taken:
            self._waiting.append(pa.concat_tables(taken))
        if len(self._waiting) > KEPT_BATCHES:
            lost = self._waiting.popleft()
            logger.error("samples given up: the archive cannot be written", extra={"samples": lost.num_rows})
        if self._waiting and (self._work is None or self._work.done()):
            self._work = asyncio.create_task(self._write_waiting())

    async def finish(self) -> None:
        """Wait until what was taken is written, or has failed."""
        if self._work is not None:
            await self._work

    async def _write_waiting(self) -> None:
        while self._waiting:
            batch = self._waiting.popleft()
            try:
                await asyncio.to_thread(self._write, batch)
            except ValueError:  # trying again would not make it fit
                logger.exception("samples given up: they do not fit the archive", extra={"samples": batch.num_rows})
            except Exception as error:  # whatever the disk has to say
                self._waiting.appendleft(batch)
                if not self._failing:
                    logger.exception("cannot write to the archive; will keep trying", exc_info=error)
                self._failing = True
                return
            else:
                if self._failing:
                    logger.info("the archive can be written again")
                self._failing = False

    def _write(self, batch: pa.Table) -> None:
        if self._writer is None:
            self._writer = self._open_writer()
        self._writer.write_table(batch)
