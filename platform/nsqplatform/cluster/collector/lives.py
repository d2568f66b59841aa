"""Reads the events of sampled messages from the nodes that have new ones, and writes them to the archive."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

import pyarrow as pa

from nsqanalytics.life_events import EVENT_SCHEMA
from nsqcluster import Client, RequestFailed
from nsqcluster.lives import LifeEvent, LifePage, read_lives
from nsqplatform.cluster.readings.reading import NodeView
from nsqwire.units import Seconds

logger = logging.getLogger(__name__)

EVERY_S: Final = 10.0
SOONER: Final = 8_000
"""If a node has this many unread events, they are read at once: it keeps some 32,000."""
PATIENCE_S: Final = 3.0
MOST_PAGES: Final = 50
"""Pages of one node that are written together."""


class Writer(Protocol):
    def write_table(self, rows: pa.Table) -> None: ...


class _Place(NamedTuple):
    """The process of a node whose events were read, and the number of the next event to read."""

    boot_id: str
    number: int


class LifeReader:
    """Archives the events of all nodes, every EVERY_S seconds.

    Each node's figures include its number of events; only nodes with new ones are asked. What is not written yet stays
    on the node, so that nothing is kept here while the archive cannot be written. A new collector reads all that the
    nodes still have: the archive may have an event twice.
    """

    def __init__(self, open_writer: Callable[[], Writer]) -> None:
        self._open_writer = open_writer
        self._writer: Writer | None = None
        self._places: dict[str, _Place] = {}
        self._due: Seconds = 0.0
        self._work: asyncio.Task[None] | None = None
        self._failing = False

    def add(self, client: Client, views: Sequence[NodeView], *, now: Seconds) -> None:
        """Start reading if it is due. ``now`` is in seconds, monotonic."""
        unread = {view.node.id: self._unread(view) for view in views if view.error is None}
        if now >= self._due or max(unread.values(), default=0) >= SOONER:
            self._due = now + EVERY_S
            self.take(client, views)

    def take(self, client: Client, views: Sequence[NodeView]) -> None:
        """Start reading all nodes with new events, unless that is being done."""
        there = [view for view in views if view.error is None and self._unread(view)]
        if there and (self._work is None or self._work.done()):
            self._work = asyncio.create_task(self._read(client, there))

    async def finish(self) -> None:
        """Wait until what is being read is written or has failed."""
        if self._work is not None:
            await self._work

    def _unread(self, view: NodeView) -> int:
        if view.latest is None or view.latest.stats.boot_id is None:
            return 0
        stats, place = view.latest.stats, self._places.get(view.node.id)
        return stats.lives_end - (place.number if place is not None and place.boot_id == stats.boot_id else 0)

    async def _read(self, client: Client, views: Sequence[NodeView]) -> None:
        for view in views:
            node = view.node.id
            try:
                pages = await self._pages(client, view)
                if pages:
                    await asyncio.to_thread(self._write, events_of(node, pages))
            except RequestFailed as error:
                logger.warning("cannot read the lives of messages", extra={"node": node, "error": error.reason})
            except Exception as error:  # the disk or the object store failed
                if not self._failing:
                    logger.exception("cannot write lives to the archive; retrying", exc_info=error)
                self._failing = True
                return
            else:
                self._failing = False
                if pages:
                    self._places[node] = _Place(pages[-1].boot_id, pages[-1].next)
                if lost := sum(page.lost for page in pages):
                    logger.warning(
                        "events of sampled messages were overwritten before they were read: sample fewer",
                        extra={"node": node, "events": lost},
                    )

    async def _pages(self, client: Client, view: NodeView) -> list[LifePage]:
        """Read the new events of a node, all of one process. Raises RequestFailed."""
        assert view.latest is not None
        place = self._places.get(view.node.id)
        boot_id = view.latest.stats.boot_id
        start = place.number if place is not None and place.boot_id == boot_id else 0
        pages: list[LifePage] = []
        while len(pages) < MOST_PAGES:
            page = await read_lives(client, view.node.address, start, timeout_s=PATIENCE_S)
            if page.boot_id != boot_id:  # it was restarted meanwhile: its next figures say so
                break
            pages.append(page)
            start = page.next
            if start >= page.end:
                break
        return pages

    def _write(self, events: pa.Table) -> None:
        if not events.num_rows:
            return
        if self._writer is None:
            self._writer = self._open_writer()
        self._writer.write_table(events)


def events_of(node: str, pages: Sequence[LifePage]) -> pa.Table:
    """The events as a table of EVENT_SCHEMA."""
    events = [(page.boot_id, each) for page in pages for each in page.events]
    columns = {
        "at": [each.at // 1000 for _, each in events],
        "node": [node] * len(events),
        "boot_id": [boot_id for boot_id, _ in events],
        "message_id": [each.id for _, each in events],
        **{name: [getattr(each, name) for _, each in events] for name in ("number", "topic", "event", "attempts")},
        **{name: [_or_none(each, name) for _, each in events] for name in _NULLABLE},
    }
    return pa.Table.from_arrays(
        [pa.array(columns[field.name], field.type) for field in EVENT_SCHEMA], schema=EVENT_SCHEMA
    )


_NULLABLE: Final = ("channel", "reason", "delay_ms", "client_id", "client_address")


def _or_none(event: LifeEvent, name: str) -> str | int | None:
    value: str | int | None = getattr(event, name)
    return None if value == "" else value
