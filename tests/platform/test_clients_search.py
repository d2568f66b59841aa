"""The first clients of a large cluster, which are known before all nodes have answered about all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bench.server import Server
from nsqplatform.cluster import selectors
from nsqplatform.cluster.clients import search
from nsqplatform.cluster.clients.search import FoundClient
from tests.harness.waiting import wait_until
from tests.platform.operators import Operator

TOPICS, CHANNELS = 100, 2
CLIENTS = 1200
"""Three of each channel on each of its two nodes."""


@pytest.fixture
def simulated(
    settings: Any, collect: Callable[[], object], snapshot: Callable[[], Any]
) -> Iterator[Callable[..., None]]:
    """Starts a simulated cluster of two nodes, and waits until a collector knows its clients."""
    started: list[Server] = []

    def start(topics: int, channels: int) -> None:
        size = {"nodes": 2, "topics": topics, "channels": channels, "clients": CLIENTS}
        words = ["-m", "bench.simulated", *(f"--{name}={value}" for name, value in size.items())]
        started.append(Server(words, ["HTTP"]))
        host, port = started[-1].http
        settings.NSQLOOKUPD_HTTP_ADDRESSES = (f"{host}:{port}",)
        settings.NSQD_HTTP_ADDRESSES = ()
        collect()
        wait_until(lambda: counted(snapshot()) == CLIENTS, "the collector knows all clients")

    yield start
    for server in started:
        server.kill()


def counted(rows: Any) -> int:
    return sum(topic["client_count"] for topic in rows["topics"]) if rows else 0


def in_order(rows: Any) -> list[tuple[str, ...]]:
    def key(row: FoundClient) -> tuple[str, ...]:
        return row["topic"], row["channel"], row["hostname"], row["node"], row["remote_address"]

    return sorted(map(key, rows))


def answered_by_all() -> search.Clients | None:
    found = search.ask_nodes()
    return None if found.unanswered else found


def listed(viewer: Operator) -> dict[str, Any] | None:
    """The answer of the API; None while it is that of another cluster, which is cached for some seconds."""
    answer: dict[str, Any] = viewer.get("clients?limit=100")
    return answer if answer["total"] == CLIENTS else None


def test_the_first_clients_are_those_of_the_first_topics(
    simulated: Callable[..., None], sign_in: Callable[..., Operator]
) -> None:
    """The same rows as of the query of everything, with the number of all clients."""
    simulated(TOPICS, CHANNELS)
    first = wait_until(lambda: search.ask_first(100), "a fresh snapshot")
    every = wait_until(answered_by_all, "both nodes answer in time")
    assert (first.total, len(every.rows)) == (CLIENTS, CLIENTS)
    assert 100 <= len(first.clients.rows) < 200
    assert in_order(first.clients.rows) == in_order(every.rows)[: len(first.clients.rows)]
    viewer = sign_in("viewer")
    answer = wait_until(lambda: listed(viewer), "the clients of this cluster")
    assert (answer["found"], len(answer["clients"])) == (CLIENTS, 100)


def test_many_topics_with_few_clients_are_not_queried_one_by_one(simulated: Callable[..., None]) -> None:
    """Hundreds of requests would take longer than one for everything."""
    simulated(CLIENTS // 2, 1)
    wait_until(lambda: selectors.cluster().seen, "a fresh snapshot")
    assert search.ask_first(100) is None
    assert len(wait_until(answered_by_all, "both nodes answer in time").rows) == CLIENTS
