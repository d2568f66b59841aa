"""A broker process for each test that needs one, and clients of it."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness.daemon import Broker
from tests.harness.v2 import DeflatedSocket, PackedSocket, SnappySocket, V2Client

StartBroker = Callable[..., Broker]


def _starter(directory: Callable[[], Path]) -> Iterator[StartBroker]:
    started: list[Broker] = []
    made: list[Path] = []

    def start(*flags: str, data_path: Path | None = None, ready: bool = True) -> Broker:
        if data_path is None:
            data_path = directory()
            made.append(data_path)
        started.append(Broker(data_path, *flags).start())
        if ready:
            started[-1].wait_until_ready()
        return started[-1]

    yield start
    for broker in started:
        broker.close()
    for path in made:  # thousands of them would fill the disk
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def start_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartBroker]:
    """Start brokers: ``start_broker(*flags, data_path=…, ready=True)``; those still running at the end are killed."""
    yield from _starter(lambda: tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def start_shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartBroker]:
    """As start_broker, for brokers that the tests of a module share."""
    yield from _starter(lambda: tmp_path_factory.mktemp("data"))


@pytest.fixture
def broker(start_broker: StartBroker) -> Broker:
    """A running broker with default settings."""
    return start_broker()


@pytest.fixture
def connect() -> Iterator[Callable[..., V2Client]]:
    """Open V2 connections: ``connect(broker)`` or ``connect(address, magic=…)``; all are closed at the end."""
    opened: list[V2Client] = []

    def open_(target: Broker | tuple[str, int] | str, *, magic: bytes = b"  V2") -> V2Client:
        address = target.tcp if isinstance(target, Broker) else target
        opened.append(V2Client(address, magic=magic))
        return opened[-1]

    yield open_
    for client in opened:
        client.socket.close()


@pytest.fixture
def packed_socket() -> Callable[[str, socket.socket], PackedSocket]:
    """Compress a socket: ``packed_socket("deflate", peer.socket)``, or ``"snappy"``."""
    return lambda codec, under: {"deflate": DeflatedSocket, "snappy": SnappySocket}[codec](under)


def create_channel(broker: Broker) -> None:
    """Create a topic ``t`` and its channel ``c``."""
    broker.post("/topic/create", topic="t")
    broker.post("/channel/create", topic="t", channel="c")


def publish(broker: Broker, *bodies: bytes, **query: str) -> None:
    """Publish to topic ``t``, each body with one request; ``query``: more of its parameters."""
    for body in bodies:
        broker.post("/pub", body, topic="t", **query)


@pytest.fixture
def channel(broker: Broker) -> Broker:
    """A broker with a topic ``t`` and its channel ``c``."""
    create_channel(broker)
    return broker
