"""Search of all consumers of the cluster. The nodes are queried on demand, not with every poll."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from asgiref.sync import async_to_sync

from nsqcluster import Client, RequestFailed, reads
from nsqplatform.cluster import node_client, selectors
from nsqplatform.cluster.clients.rows import rows_of
from nsqplatform.cluster.readings.poller import PATIENCE_S
from nsqplatform.cluster.readings.stats import PolledStats, checked
from nsqplatform.cluster.snapshots.rows import ClientRow
from nsqplatform.clusters.current import PerCluster

MANY = 1000
"""With fewer clients, all are queried at once."""
MAX_QUESTIONS = 64
"""Maximum number of requests for the first clients. Above it, one request per node for all clients is cheaper."""
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
            found = self.kept
            if found is None:
                found = self._ask()
                self._kept = (time.monotonic(), found)
            return found

    @property
    def kept(self) -> Clients | None:
        """The cached result; None if there is none, or if it is too old."""
        kept = self._kept
        return kept[1] if kept is not None and time.monotonic() - kept[0] <= KEPT_S else None


def ask_nodes() -> Clients:
    """Query every node that the collector knows."""
    addresses = selectors.cluster().addresses
    return async_to_sync(_ask)([Question(node, address) for node, address in addresses.items()])


@dataclass(frozen=True)
class First:
    """The first clients in the order of topics, and the number of all clients as of the newest snapshot."""

    clients: Clients
    total: int


def ask_first(limit: int) -> First | None:
    """Query the nodes about the first topics only, which together have ``limit`` clients.

    None if that saves nothing: there are few clients, or many topics with few clients each.
    """
    latest, known = selectors.snapshot(), selectors.cluster()
    if latest is None or not known.seen:  # it is too old
        return None
    counts: list[int] = latest.topics.columns["client_count"]
    total = sum(counts)
    if total < MANY:
        return None
    questions: list[Question] = []
    left = limit
    for topic, count in zip(latest.topics, counts, strict=True):
        if left <= 0:
            break
        if count > 0:
            left -= count
            nodes = [node for node in known.seen.get(topic, ()) if node in known.addresses]
            questions += [Question(node, known.addresses[node], topic) for node in nodes]
    return First(async_to_sync(_ask)(questions), total) if len(questions) <= MAX_QUESTIONS else None


class Question(NamedTuple):
    """A query of one node about all of its clients, or those of one topic."""

    node: str
    address: str
    topic: str = ""


async def _ask(questions: Sequence[Question]) -> Clients:
    rows: list[FoundClient] = []
    unanswered: dict[str, str] = {}

    async def ask(question: Question) -> None:
        try:
            rows.extend(await _answer(client, question))
        except RequestFailed as error:
            unanswered[question.node] = error.reason

    async with node_client.client() as client:
        await asyncio.gather(*map(ask, questions))
    return Clients(rows, unanswered)


async def _answer(client: Client, question: Question) -> list[FoundClient]:
    """Raises RequestFailed. Without histograms, which would take more time than the clients."""
    node, address, wanted = question
    stats = checked(
        await reads.node_stats(client, address, PolledStats, topic=wanted, include_clients=True, timeout_s=PATIENCE_S)
    )
    now = time.time()
    return [
        FoundClient(**row, topic=topic.topic_name, channel=channel.channel_name)
        for topic in stats.topics
        if wanted in ("", topic.topic_name)  # an old nsqd answers with all topics
        for channel in topic.channels
        for row in rows_of(node, channel.clients, now=now)
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
