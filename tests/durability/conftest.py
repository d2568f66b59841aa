"""Brokers that are stopped and started again on one data path."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.daemon import Broker
from tests.harness.v2 import V2Client


class Node:
    """A data path and its running broker. Each start gives the broker new ports."""

    def __init__(self, data_path: Path, *flags: str) -> None:
        self.data_path = data_path
        self.clients: list[V2Client] = []
        self.broker = Broker(data_path, "--broadcast-address=127.0.0.1", *flags)
        self.broker.launch()

    def connect(self) -> V2Client:
        self.clients.append(V2Client(self.broker.tcp))
        return self.clients[-1]

    def end(self, how: str) -> None:
        """``SIGTERM`` and a clean exit, or ``SIGKILL``."""
        if how == "SIGTERM":
            assert self.broker.terminate() == 0, self.broker.output
        self.broker.close()
        for client in self.clients:
            client.socket.close()
        self.clients.clear()

    def restart(self, how: str) -> None:
        self.end(how)
        self.broker.launch()

    def post(self, path: str, **query: str) -> None:
        self.broker.post(path, **query)

    def ping(self) -> int:
        """The status of ``/ping``."""
        return self.broker.request("GET", "/ping").status

    def topics(self) -> dict[str, dict[str, Any]]:
        """The topics of ``/stats`` by name, each with its channels by name."""
        return {
            name: topic | {"channels": {each["channel_name"]: each for each in topic["channels"]}}
            for name, topic in self.broker.topics().items()
        }

    def channel(self, topic: str, channel: str) -> dict[str, Any]:
        return dict(self.topics()[topic]["channels"][channel])


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Node]]:
    """Start a broker: ``start(*flags, data_path=…)``; it is killed at the end."""
    nodes: list[Node] = []

    def start_(*flags: str, data_path: Path | None = None) -> Node:
        if data_path is None:
            data_path = tmp_path / f"data{len(nodes)}"
            data_path.mkdir()
        nodes.append(Node(data_path, *flags))
        return nodes[-1]

    yield start_
    for node in nodes:
        node.end("SIGKILL")


@pytest.fixture
def node(start: Callable[..., Node]) -> Node:
    return start()
