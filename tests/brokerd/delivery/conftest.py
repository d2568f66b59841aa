"""Fixtures of the tests of delivery: a broker, a topic for each test, consumers and a publisher."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from bench.wire import identify
from tests.harness import web
from tests.harness.daemon import Broker

Connect = Callable[..., Any]
Subscribe = Callable[..., Any]
NEXT = count()


@pytest.fixture(scope="package")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for all tests in this folder; each has a topic of its own."""
    server = Broker(tmp_path_factory.mktemp("delivery"), "--max-msg-timeout=3s", "--max-req-timeout=2s").launch()
    yield server
    server.stop()


@pytest.fixture
def topic() -> str:
    return f"delivery{next(NEXT)}"


class Board:
    """The broker's HTTP side, for one topic."""

    def __init__(self, server: Broker, topic: str) -> None:
        self.url = "http://{}:{}".format(*server.http)
        self.topic = topic

    def topic_stats(self) -> dict[str, Any]:
        query = {"format": "json", "topic": self.topic}
        [topic] = web.get(f"{self.url}/stats", params=query, trust_env=False).json()["topics"]
        return dict(topic)

    def channel(self, name: str = "c") -> dict[str, Any]:
        return {each["channel_name"]: each for each in self.topic_stats()["channels"]}[name]

    def post(self, path: str, channel: str | None = None) -> None:
        query = {"topic": self.topic} | ({"channel": channel} if channel else {})
        assert web.post(self.url + path, params=query, trust_env=False).status_code == 200


@pytest.fixture
def board(shared: Broker, topic: str) -> Board:
    return Board(shared, topic)


@pytest.fixture
def subscribe(shared: Broker, topic: str, connect: Connect) -> Subscribe:
    """Open a consumer on channel ``c`` of the test's topic: ``subscribe(ready_count, channel=…, **identify)``."""

    def open_(ready_count: int = 0, *, channel: str = "c", **fields: object) -> Any:
        peer = connect(shared.tcp)
        if fields:
            peer.ok(identify(**fields))
        peer.ok(f"SUB {topic} {channel}\n".encode())
        if ready_count:
            peer.send(b"RDY %d\n" % ready_count)
        return peer

    return open_


@pytest.fixture
def publisher(shared: Broker, connect: Connect) -> Any:
    return connect(shared.tcp)
