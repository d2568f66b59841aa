"""A member whose lease ends while it recovers its data path leads nevertheless, if nobody else has led since."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from pathlib import Path

from brokerd.clock import boot_time
from brokerd.mirror.election import Role
from brokerd.mirror.pair import PairRecord
from brokerd.net.arbiter import Arbiter, ArbiterFailed
from brokerd.net.arbiters import arbiter_at
from brokerd.net.mirror import Mirror
from brokerd.net.stop import Stop
from brokerd.settings import BrokerSettings
from tests.harness.etcd import EtcdServer
from tests.harness.loopback import own_address
from tests.harness.waiting import DEADLINE_S, wait_until

LEASE_S = 4
LONG_LEASE_S = 60


def settings(address: str, lease_s: int = LEASE_S) -> BrokerSettings:
    return BrokerSettings(
        mirror_address=f"{own_address()}:0",
        mirror_peer=f"{own_address()}:1",
        arbiter=address,
        mirror_lease=timedelta(seconds=lease_s),
    )


async def lead(mirror: Mirror) -> PairRecord:
    """Win the lead, and wait until the lease, which nobody renews, has ended."""
    record = await mirror.until_leading((None, None, None), Stop())
    assert record is not None
    while mirror.election.may_answer(boot_time()):  # noqa: ASYNC110  (time alone changes it)
        await asyncio.sleep(0.1)
    return record


async def answers(etcd: Arbiter) -> bool:
    try:
        await etcd.read()
    except ArbiterFailed:
        return False
    return True


def test_a_lease_that_ended_during_the_recovery_is_taken_again(tmp_path: Path, etcd_server: EtcdServer) -> None:
    (tmp_path / "topics").mkdir()  # with data, it founds the pair at once
    address = f"etcd://{etcd_server.address}/recovery"

    async def recover() -> None:
        mirror, etcd = Mirror(settings(address), tmp_path, (0, 0)), arbiter_at(address, timeout_s=DEADLINE_S)
        try:
            record = await lead(mirror)
            await etcd.resign(mirror._lease)
            assert (await etcd.read()).leader is None
            await mirror.recovered()
            mirror.close()  # before its lease can end: then it would replace this process
            found = await etcd.read()
            assert (found.record, found.leader) == (record, mirror.election.member)
            assert mirror.election.role is Role.PRIMARY
        finally:
            mirror.close()

    asyncio.run(asyncio.wait_for(recover(), DEADLINE_S))


def test_nobody_is_served_if_the_arbiter_has_ended_the_lease_before_its_time(
    tmp_path: Path, etcd_server: EtcdServer
) -> None:
    """As when an operator has removed the election key: another member may lead meanwhile."""
    (tmp_path / "topics").mkdir()
    address = f"etcd://{etcd_server.address}/removed"

    async def recover() -> None:
        mirror = Mirror(settings(address, LONG_LEASE_S), tmp_path, (0, 0))
        etcd = arbiter_at(address, timeout_s=DEADLINE_S)
        try:
            record = await mirror.until_leading((None, None, None), Stop())
            await etcd.resign(mirror._lease)
            with mirror.kept_lease():
                wait_until(lambda: "lease" not in [each.name for each in threading.enumerate()], "the end is noticed")
            assert not mirror.election.may_answer(boot_time())
            await mirror.recovered()
            assert mirror.election.may_answer(boot_time())
            assert await etcd.read() == (record, mirror._revision, mirror.election.member)
        finally:
            mirror.close()

    asyncio.run(asyncio.wait_for(recover(), DEADLINE_S))


def test_an_arbiter_that_is_away_after_the_recovery_is_asked_again(tmp_path: Path, etcd_server: EtcdServer) -> None:
    (tmp_path / "topics").mkdir()
    address = f"etcd://{etcd_server.address}/away"

    async def recover() -> None:
        mirror = Mirror(settings(address), tmp_path, (0, 0))
        try:
            await lead(mirror)
            etcd_server.pause()
            recovering = asyncio.ensure_future(mirror.recovered())
            while await answers(arbiter_at(address, timeout_s=LEASE_S / 2)):
                pass  # it is not paused yet
            etcd_server.resume()
            await recovering
            mirror.close()
            assert mirror.election.role is Role.PRIMARY
        finally:
            etcd_server.resume()
            mirror.close()

    asyncio.run(asyncio.wait_for(recover(), DEADLINE_S))
