"""A lease is kept while the event loop does something else, as long as the disk answers."""

from __future__ import annotations

import asyncio
import threading

import pytest

from brokerd.clock import boot_time
from brokerd.mirror.pair import PairRecord
from brokerd.net.arbiter import Arbiter
from brokerd.net.arbiters import arbiter_at
from brokerd.net.lease_keeper import LeaseKeeper
from tests.harness.etcd import EtcdServer
from tests.harness.waiting import DEADLINE_S, wait_until

LEASE_S = 6
"""No machine stands still for so long."""
SHORT_LEASE_S = 1
"""Of a test that waits for its end."""
RECORD = PairRecord(pair="p", node_id=7, epoch=1, leader="a", in_sync={"a": "boot"})


@pytest.fixture
def etcd(etcd_server: EtcdServer, request: pytest.FixtureRequest) -> Arbiter:
    return arbiter_at(f"etcd://{etcd_server.address}/{request.node.name}", timeout_s=DEADLINE_S)


def won(etcd: Arbiter, lease_s: int = LEASE_S) -> str:
    found = asyncio.run(etcd.campaign("a", RECORD, 0, lease_s))
    assert found is not None
    return found.lease


def test_a_lease_is_kept_for_longer_than_it_lasts(etcd: Arbiter) -> None:
    began = boot_time()
    with LeaseKeeper(etcd, won(etcd), check_disk=lambda: None, interval_s=0.2, now=boot_time) as keeper:
        wait_until(lambda: keeper.sent_at is not None and keeper.sent_at > began + LEASE_S, "it was kept for long")
        assert asyncio.run(etcd.read()).leader == "a"
    assert not keeper.is_lost


def test_a_disk_that_hangs_stops_the_renewals(etcd: Arbiter) -> None:
    answers = threading.Event()
    lease = won(etcd, SHORT_LEASE_S)
    with LeaseKeeper(etcd, lease, check_disk=lambda: hang_until(answers), interval_s=0.1, now=boot_time) as keeper:
        wait_until(lambda: asyncio.run(etcd.read()).leader is None, "the lease has ended")
        assert keeper.sent_at is None
        answers.set()
        wait_until(lambda: keeper.is_lost, "it learns that the lease has ended")


def hang_until(event: threading.Event) -> None:
    """Wait as the check of a disk that hangs does."""
    event.wait(DEADLINE_S)
