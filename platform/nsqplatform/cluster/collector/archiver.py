"""Writes readings to the archive without delaying polls."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

import pyarrow as pa

from nsqplatform.cluster.collector.samples import samples_of
from nsqplatform.cluster.readings.reading import NodeView, Reading
from nsqwire.units import Seconds

logger = logging.getLogger(__name__)

EVERY_S = 10.0
KEPT_BATCHES = 30
"""Maximum number of batches kept while the archive cannot be written, those of five minutes. Older ones are dropped."""


class Writer(Protocol):
    def write_table(self, samples: pa.Table) -> None: ...


class Archiver:
    """Makes a batch every EVERY_S seconds, and writes batches in a thread, one at a time, oldest first."""

    def __init__(self, open_writer: Callable[[], Writer]) -> None:
        self._open_writer = open_writer
        self.on_batch: Callable[[Sequence[tuple[str, Reading]]], None] = lambda batch: None
        """Called with the readings of each batch, and their nodes. It must not block."""
        self._writer: Writer | None = None
        self._waiting: deque[pa.Table] = deque()
        self._archived: dict[str, float] = {}
        """``read_at`` of the last archived reading of each node."""
        self._last: dict[str, Reading] = {}
        """The newest reading of each node."""
        self._previous: dict[str, float] = {}
        """``read_at`` of the last reading of each node's previous process."""
        self._ended: list[tuple[str, Reading]] = []
        """The last readings of ended processes and removed nodes that are not in a batch yet."""
        self._due: Seconds = 0.0
        self._work: asyncio.Task[None] | None = None
        self._failing = False

    def add(self, views: Sequence[NodeView], *, now: Seconds) -> None:
        """Make a batch of the newest readings if one is due. ``now`` is in seconds, monotonic.

        The last reading of an ended process or removed node is always included.
        """
        self._record_readings(views)
        if now < self._due:
            return
        self._due = now + EVERY_S
        self.take(views)

    def take(self, views: Sequence[NodeView]) -> None:
        """Queue the readings that are in no batch yet, and start writing."""
        self._record_readings(views)
        batch, self._ended = self._ended, []
        for node, reading in self._last.items():
            if self._archived.get(node) != reading.read_at:
                self._archived[node] = reading.read_at
                batch.append((node, reading))
        if batch:
            self.on_batch(batch)
            self._waiting.append(pa.concat_tables([samples_of(node, reading) for node, reading in batch]))
        if len(self._waiting) > KEPT_BATCHES:
            lost = self._waiting.popleft()
            logger.error("samples dropped: the archive cannot be written", extra={"samples": lost.num_rows})
        if self._waiting and (self._work is None or self._work.done()):
            self._work = asyncio.create_task(self._write_waiting())

    def _record_readings(self, views: Sequence[NodeView]) -> None:
        """Record new readings, and the last reading of each ended process and removed node."""
        there = {view.node.id: view for view in views if view.latest is not None}
        for node in [node for node in self._last if node not in there]:
            self._keep(node, self._last.pop(node))
        for node, view in there.items():
            before, latest = self._last.get(node), view.latest
            assert latest is not None
            ended = view.previous_boot
            if ended is not None and self._previous.get(node) != ended.read_at:
                self._previous[node] = ended.read_at
                self._keep(node, ended)
            elif before is not None and before.stats.boot != latest.stats.boot:
                self._keep(node, before)
            self._last[node] = latest

    def _keep(self, node: str, reading: Reading) -> None:
        if self._archived.get(node) != reading.read_at:
            self._archived[node] = reading.read_at
            self._ended.append((node, reading))

    async def finish(self) -> None:
        """Wait until the queued batches are written or have failed."""
        if self._work is not None:
            await self._work

    async def _write_waiting(self) -> None:
        while self._waiting:
            batch = self._waiting.popleft()
            try:
                await asyncio.to_thread(self._write, batch)
            except ValueError:  # it would fail again
                logger.exception(
                    "samples dropped: they do not match the archive's schema", extra={"samples": batch.num_rows}
                )
            except Exception as error:  # the disk or the object store failed
                self._waiting.appendleft(batch)
                if not self._failing:
                    logger.exception("cannot write to the archive; retrying", exc_info=error)
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
