"""Search of all consumers of the cluster. The nodes are queried on demand, not with every poll."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from asgiref.sync import async_to_sync

from nsqplatform.cluster import node_client, selectors
from nsqplatform.cluster.clients.rows import client_rows
from nsqplatform.cluster.readings.node import Node
from nsqplatform.cluster.readings.poller import NodePoller
from nsqplatform.cluster.readings.reading import NodeView
from nsqplatform.cluster.snapshots.rows import ClientRow
from nsqplatform.clusters.current import PerCluster
from nsqwire.units import Seconds

KEPT_S = 3.0
"""Time for which a result is cached, so that typing into the search does not query the nodes for each letter."""


class FoundClient(ClientRow):
    """A consumer, with its topic and channel."""

    topic: str
    channel: str


@dataclass(frozen=True)
class Clients:
    """The consumers of the cluster. ``unanswered``: the nodes that did not answer, with the reasons."""

    rows: Sequence[FoundClient]
    unanswered: Mapping[str, str]


class ClientDirectory:
    """Queries all nodes concurrently, and caches the result. Thread-safe."""

    def __init__(self, ask: Callable[[], Clients]) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._kept: tuple[float, Clients] | None = None

    def clients(self) -> Clients:
        with self._lock:  # concurrent callers wait for the same result
            if self._kept is None or time.monotonic() - self._kept[0] > KEPT_S:
                found = self._ask()
                self._kept = (time.monotonic(), found)
            return self._kept[1]


def ask_nodes() -> Clients:
    """Query every node that the collector knows."""
    return async_to_sync(_ask_nodes)(selectors.cluster().addresses)


async def _ask_nodes(addresses: Mapping[str, str]) -> Clients:
    pollers = [NodePoller(Node(id=name, address=address)) for name, address in addresses.items()]
    async with node_client.client() as client:
        await asyncio.gather(*(poller.ask(client, with_clients=True) for poller in pollers))
    views = [poller.view for poller in pollers]
    return Clients(
        rows=[row for view in views for row in _rows_of(view, now=time.time())],
        unanswered={view.node.id: view.error for view in views if view.error is not None},
    )


def _rows_of(view: NodeView, *, now: Seconds) -> list[FoundClient]:
    if view.latest is None or view.error is not None:
        return []
    return [
        FoundClient(**row, topic=topic, channel=channel)
        for topic, channel in view.latest.channels.keys
        for row in client_rows([view], topic, channel, now=now)
    ]


def matching(rows: Sequence[FoundClient], query: str) -> list[FoundClient]:
    """The consumers whose names, addresses, topic or channel contain every word of ``query``, case-insensitively."""
    words = query.lower().split()
    if not words:
        return list(rows)
    return [row for row in rows if all(word in _text(row) for word in words)]


def _text(row: FoundClient) -> str:
    return "\n".join(
        (
            row["client_id"],
            row["hostname"],
            row["remote_address"],
            row["user_agent"],
            row["node"],
            row["topic"],
            row["channel"],
        )
    ).lower()


directory = PerCluster(lambda: ClientDirectory(ask_nodes))
