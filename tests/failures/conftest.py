"""Brokers whose disk, process or clients fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.failures.disk import FaultyDisk
from tests.harness.daemon import Broker, Daemon
from tests.harness.v2 import V2Client

Start = Callable[..., Daemon]
Connect = Callable[[Daemon], V2Client]


@pytest.fixture
def disk(tmp_path: Path) -> FaultyDisk:
    return FaultyDisk(tmp_path)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a broker: ``start(*flags)``, or ``start(broker=…)``; it is killed at the end."""
    with ExitStack() as ends:

        def start_(*flags: str, broker: Daemon | None = None) -> Daemon:
            if broker is None:
                data_path = tmp_path / "data"
                data_path.mkdir(exist_ok=True)
                broker = Broker(data_path, *flags)
            ends.callback(broker.close)
            return broker.launch()

        yield start_


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Connect a V2 client to a broker; it is closed at the end."""
    with ExitStack() as ends:
        yield lambda broker: ends.enter_context(V2Client(broker.tcp))
