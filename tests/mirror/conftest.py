"""One etcd for all tests of a process, and pairs of brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.harness.etcd import EtcdServer
from tests.harness.pair import Pair

StartPair = Callable[..., Pair]


@pytest.fixture(scope="session")
def etcd_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """A running etcd."""
    server = EtcdServer(tmp_path_factory.mktemp("etcd"))
    yield server
    server.stop()


@pytest.fixture
def start_pair(tmp_path_factory: pytest.TempPathFactory, etcd_server: EtcdServer) -> Iterator[StartPair]:
    """Start a pair whose members are in sync: ``start_pair(*flags, lease=…)``. Both are killed at the end."""
    pairs: list[Pair] = []

    def start(*flags: str, lease: str = "3s") -> Pair:
        pairs.append(Pair(tmp_path_factory.mktemp("pair"), etcd_server, *flags, lease=lease))
        pairs[-1].start()
        return pairs[-1]

    yield start
    for pair in pairs:
        pair.close()
