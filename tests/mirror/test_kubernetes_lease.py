"""What is particular to a Lease of Kubernetes as an arbiter: conflicts, lost answers, access; a pair that uses it."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from brokerd.arbiter_address import InvalidArbiter, LeaseAddress, parse_arbiter
from brokerd.mirror.pair import PairRecord
from brokerd.net.arbiter import ArbiterFailed
from brokerd.net.arbiter_access import ArbiterAccess, InvalidAccess
from brokerd.net.kubernetes_lease import KubernetesLease
from brokerd.promotion import main as promote
from tests.harness.kubernetes import NAMESPACE, LeaseServer
from tests.harness.pair import Load, Pair
from tests.harness.waiting import DEADLINE_S

T = TypeVar("T")
VERY_LONG_LEASE = "600s"
"""A lease of which no large part passes within a test."""
RECORD = PairRecord(pair="p1", node_id=7, epoch=1, leader="a", in_sync={"a": "boot"})


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LeaseServer]:
    server = LeaseServer(tmp_path)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    yield server
    server.close()


def lease_of(server: LeaseServer, namespace: str = NAMESPACE, timeout_s: float = DEADLINE_S) -> KubernetesLease:
    access = ArbiterAccess(service_account=server.service_account)
    return KubernetesLease(LeaseAddress(namespace, "orders"), timeout_s=timeout_s, access=access)


def run(call: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(call)


def test_a_change_of_the_object_between_read_and_write_is_kept(server: LeaseServer) -> None:
    """Another program adds a label; the change is tried again with it."""
    lease = lease_of(server)

    def label() -> None:
        server.leases["orders"]["metadata"]["labels"] = {"team": "orders"}
        server.leases["orders"]["metadata"]["resourceVersion"] = "changed"

    won = run(lease.campaign("a", RECORD, 0, 600))
    assert won is not None
    server.before_write.append(label)
    assert run(lease.renew(won.lease))
    server.before_write.append(label)
    assert run(lease.write(won.lease, RECORD.with_in_sync({"a": "1", "b": "2"}), won.revision)) == won.revision + 1
    assert server.leases["orders"]["metadata"]["labels"] == {"team": "orders"}


def test_of_two_members_that_campaign_at_once_one_wins(server: LeaseServer) -> None:
    first, second = lease_of(server), lease_of(server)
    server.before_write.append(lambda: campaign(first))
    assert run(second.campaign("b", RECORD.led_by("b", "boot"), 0, 600)) is None
    found = run(second.read())
    assert (found.leader, found.record) == ("a", RECORD)


def campaign(lease: KubernetesLease) -> None:
    """Win as member a, in the thread that serves the other one."""
    assert run(lease.campaign("a", RECORD, 0, 600)) is not None


def test_a_campaign_whose_answer_is_lost_leaves_nobody_waiting(server: LeaseServer) -> None:
    """The member does not know that it has won, and resigns."""
    lease = lease_of(server)
    server.losing = 1
    with pytest.raises(ArbiterFailed, match="closed without an answer"):
        run(lease.campaign("a", RECORD, 0, 600))
    assert run(lease.read()) == (RECORD, 1, None)


def test_a_process_that_has_just_started_waits_for_the_time_of_a_lease(server: LeaseServer) -> None:
    """It cannot know since when the lease was not renewed."""
    won = run(lease_of(server).campaign("a", RECORD, 0, 1))
    assert won is not None
    assert run(lease_of(server).read()).leader == "a"
    assert run(lease_of(server).read_settled()) == (RECORD, won.revision, None)


def test_a_renewal_meanwhile_says_that_the_holder_leads(server: LeaseServer) -> None:
    holder, other = lease_of(server), lease_of(server)

    async def settle() -> str | None:
        won = await holder.campaign("a", RECORD, 0, 1)
        assert won is not None
        settled = asyncio.create_task(other.read_settled())
        while not settled.done():
            assert await holder.renew(won.lease)
            await asyncio.sleep(0.01)
        return (await settled).leader

    assert run(settle()) == "a"


def test_the_lease_names_its_holder_as_other_leases_of_kubernetes_do(server: LeaseServer) -> None:
    run(lease_of(server).campaign("a", RECORD, 0, 15))
    spec = server.leases["orders"]["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("a", 15, 1)


def test_a_token_that_is_replaced_is_read_again(server: LeaseServer) -> None:
    lease = lease_of(server)
    assert run(lease.read()) == (None, 0, None)
    server.use_token("second")
    assert run(lease.read()) == (None, 0, None)


def test_what_the_role_does_not_permit_is_an_error_with_kubernetes_message(server: LeaseServer) -> None:
    with pytest.raises(ArbiterFailed, match='status 403 cannot GET "leases"'):
        run(lease_of(server, "kube-system").read())


def test_an_object_that_is_no_lease_is_an_error(server: LeaseServer) -> None:
    server.leases["orders"] = {"metadata": {"resourceVersion": "1", "annotations": {"nsq.io/pair-revision": "x"}}}
    with pytest.raises(ArbiterFailed, match="Lease orders cannot be read"):
        run(lease_of(server).read())


def test_a_server_that_does_not_answer_is_an_error_in_time(
    server: LeaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(silent.getsockname()[1]))
        with pytest.raises(ArbiterFailed, match=r"no answer within 0\.5 s"):
            run(lease_of(server, timeout_s=0.5).read())


def test_outside_of_a_pod_the_missing_variable_is_named(server: LeaseServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    with pytest.raises(InvalidAccess, match="needs KUBERNETES_SERVICE_HOST"):
        lease_of(server)


def test_a_missing_service_account_is_named(server: LeaseServer) -> None:
    (server.service_account / "ca.crt").unlink()
    with pytest.raises(InvalidAccess, match=r"--arbiter-service-account: open .*ca\.crt: no such file or directory"):
        lease_of(server)


@pytest.mark.parametrize(
    "text", ["kubernetes://queues", "kubernetes://Queues/orders", "kubernetes:///orders", "kubernetes://a/b/c"]
)
def test_a_wrong_address_is_named(text: str) -> None:
    with pytest.raises(InvalidArbiter) as error:
        parse_arbiter(text)
    assert repr(text) in str(error.value)


@pytest.mark.parametrize("how", ["hand-over", "SIGTERM"])
def test_a_lead_that_the_arbiter_did_not_take_back_is_given_up_again(
    how: str, tmp_path_factory: pytest.TempPathFactory, server: LeaseServer
) -> None:
    """The API server fails once, as while its own etcd elects a leader. Nobody waits for the lease to end."""
    flags = [f"--arbiter=kubernetes://{NAMESPACE}/orders", f"--arbiter-service-account={server.service_account}"]
    pair = Pair(tmp_path_factory.mktemp("pair"), None, *flags, lease=VERY_LONG_LEASE)
    try:
        pair.start()
        primary = pair.wait_for_primary()
        server.refusing_to_free = 1
        if how == "SIGTERM":
            primary.terminate()
        else:
            primary.post("/mirror/handover")
        assert pair.wait_for_takeover(primary)
    finally:
        pair.close()


def test_a_primary_whose_lead_was_not_taken_back_does_not_lead_again(
    tmp_path_factory: pytest.TempPathFactory, server: LeaseServer
) -> None:
    """It has handed over, and the API server fails until its lease has ended: it waits until the other one leads."""
    flags = [f"--arbiter=kubernetes://{NAMESPACE}/orders", f"--arbiter-service-account={server.service_account}"]
    pair = Pair(tmp_path_factory.mktemp("pair"), None, *flags, lease="10s")
    try:
        pair.start()
        primary = pair.wait_for_primary()
        pair.wait_until_in_sync()
        before = server.leases["orders"]["spec"]["holderIdentity"]
        server.refusing_to_free = sys.maxsize
        primary.post("/mirror/handover")
        primary.wait_for_log("MIRROR: the lead could not be given up")
        primary.wait_for_log("MIRROR: does not lead any more: it handed over")
        assert server.leases["orders"]["spec"].get("holderIdentity") not in (None, before)
        assert pair.wait_for_takeover(primary)
    finally:
        pair.close()


def test_a_pair_lives_on_a_lease(
    tmp_path_factory: pytest.TempPathFactory, server: LeaseServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """The primary is killed, its follower takes over, and then ends for good; ``nsq promote`` sees who leads."""
    flags = [f"--arbiter=kubernetes://{NAMESPACE}/orders", f"--arbiter-service-account={server.service_account}"]
    pair = Pair(tmp_path_factory.mktemp("pair"), None, *flags, lease="6s")
    try:
        pair.start()
        with Load(pair) as load:
            load.wait_for(500)
            for how in (signal.SIGKILL, signal.SIGTERM):
                pair.lose_primary(how, meanwhile=lambda: load.wait_for(500))
            load.finish()
        assert not load.lost
        assert not load.unexpected
        assert promote([f"--data-path={pair.members[0].data_path}", *flags, "--accept-loss"]) == 1
        assert capsys.readouterr().err.endswith(" leads\n")
    finally:
        pair.close()
