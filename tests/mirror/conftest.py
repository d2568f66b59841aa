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
    """Start a pair that is in sync: ``start_pair(*flags, lease=…, disks_fail=…)``. All are killed at the end."""
    pairs: list[Pair] = []

    def start(*flags: str, lease: str = "6s", disks_fail: bool = False) -> Pair:
        directory = tmp_path_factory.mktemp("pair")
        pairs.append(Pair(directory, etcd_server, *flags, lease=lease, disks_fail=disks_fail))
        pairs[-1].start()
        return pairs[-1]

    yield start
    for pair in pairs:
        pair.close()
