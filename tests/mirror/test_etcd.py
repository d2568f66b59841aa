"""The four calls to etcd, against a real one."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from brokerd.arbiter_address import InvalidArbiter, parse_arbiter
from brokerd.mirror.pair import PairRecord
from brokerd.net.etcd import ArbiterFailed, Etcd, Leadership
from tests.harness.etcd import EtcdServer
from tests.harness.waiting import DEADLINE_S, wait_until

T = TypeVar("T")
RECORD = PairRecord(pair="p1", node_id=7, epoch=1, leader="a", in_sync={"a": "boot"})


@pytest.fixture
def server(etcd_server: EtcdServer) -> EtcdServer:
    return etcd_server


@pytest.fixture
def etcd(server: EtcdServer, request: pytest.FixtureRequest) -> Etcd:
    name = "".join(each if each.isalnum() else "-" for each in request.node.name)
    return Etcd(f"etcd://{server.address}/{name}", timeout_s=DEADLINE_S)


def run(call: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(call)


def won(etcd: Etcd, record: PairRecord = RECORD, revision: int = 0, lease_s: int = 600) -> Leadership:
    found = run(etcd.campaign(record.leader, record, revision, lease_s))
    assert found is not None
    return found


def test_a_pair_that_was_never_founded_has_no_record(etcd: Etcd) -> None:
    assert run(etcd.read()) == (None, 0, None)


def test_a_campaign_gives_the_lead_and_writes_the_record(etcd: Etcd) -> None:
    lead = won(etcd)
    assert run(etcd.read()) == (RECORD, lead.revision, "a")


def test_a_second_campaign_is_refused_while_somebody_leads(etcd: Etcd) -> None:
    lead = won(etcd)
    assert run(etcd.campaign("b", RECORD.led_by("b", "boot"), lead.revision, 600)) is None
    assert run(etcd.read()).leader == "a"


def test_a_campaign_is_refused_if_the_record_has_changed(etcd: Etcd) -> None:
    lead = won(etcd)
    run(etcd.resign(lead.lease))
    assert run(etcd.campaign("b", RECORD.led_by("b", "boot"), lead.revision - 1, 600)) is None
    assert run(etcd.read()).record == RECORD


def test_the_lead_ends_with_its_lease(etcd: Etcd) -> None:
    lead = won(etcd)
    assert run(etcd.renew(lead.lease))
    run(etcd.resign(lead.lease))
    assert not run(etcd.renew(lead.lease))
    assert run(etcd.read()) == (RECORD, lead.revision, None)


def test_a_lease_that_is_not_renewed_ends(etcd: Etcd) -> None:
    won(etcd, lease_s=1)
    wait_until(lambda: run(etcd.read()).leader is None, "the lease has ended")


def test_a_record_is_written_only_by_who_leads_and_knows_the_revision(etcd: Etcd) -> None:
    lead = won(etcd)
    grown = RECORD.with_in_sync({"a": "boot", "b": "boot"})
    revision = run(etcd.write(lead.lease, grown, lead.revision))
    assert revision is not None
    assert revision > lead.revision
    assert run(etcd.read()) == (grown, revision, "a")
    assert run(etcd.write(lead.lease, RECORD, lead.revision)) is None  # another one has been written since
    run(etcd.resign(lead.lease))
    assert run(etcd.write(lead.lease, RECORD, revision)) is None
    assert run(etcd.read()).record == grown


def test_an_address_that_nobody_answers_at_is_skipped(server: EtcdServer) -> None:
    etcd = Etcd(f"etcd://{server.host}:1,{server.address}/skipped", timeout_s=DEADLINE_S)
    assert run(etcd.read()) == (None, 0, None)


def test_a_server_whose_machine_is_lost_is_not_asked_first_again(server: EtcdServer) -> None:
    """It takes the whole time-out of one request, not of all."""
    with socket.create_server((server.host, 0)) as silent:
        etcd = Etcd(f"etcd://{server.host}:{silent.getsockname()[1]},{server.address}/lost", timeout_s=2)
        with pytest.raises(ArbiterFailed, match="no answer within 2 s"):
            run(etcd.read())

        def found() -> bool:
            try:
                return run(etcd.read()) == (None, 0, None)
            except ArbiterFailed:
                return False  # the machine is busy

        wait_until(found, "the other server is asked")


def test_no_answer_is_an_error_that_names_the_address(server: EtcdServer) -> None:
    etcd = Etcd(f"etcd://{server.host}:1/away", timeout_s=DEADLINE_S)
    with pytest.raises(ArbiterFailed, match=f"{server.host}:1"):
        run(etcd.read())


def test_a_paused_etcd_is_an_error_in_time(server: EtcdServer) -> None:
    def failure() -> str:
        try:
            run(Etcd(f"etcd://{server.address}/paused", timeout_s=0.5).read())
        except ArbiterFailed as error:
            return str(error)
        return ""  # not paused yet

    server.pause()
    try:
        assert wait_until(failure, "it does not answer") == "no answer within 0.5 s"
    finally:
        server.resume()


def test_an_answer_that_is_no_record_is_an_error(etcd: Etcd, tmp_path: Path) -> None:
    lead = won(etcd)
    run(etcd._transact([], [{"requestPut": {"key": etcd._record, "value": "bm8="}}]))
    with pytest.raises(Exception, match="record of the pair cannot be read"):
        run(etcd.read())
    run(etcd.resign(lead.lease))


@pytest.mark.parametrize("text", ["", "etcd://", "etcd://h:1", "http://h:1/x", "etcd://h/x", "etcd://h:1/a/b"])
def test_a_wrong_address_is_named(text: str) -> None:
    with pytest.raises(InvalidArbiter) as error:
        parse_arbiter(text)
    assert repr(text) in str(error.value)


def test_an_address_may_have_several_servers() -> None:
    assert parse_arbiter("etcd://a:1,[::1]:2/orders") == ([("a", 1), ("::1", 2)], "orders", False)
    assert parse_arbiter("etcds://a:1/orders") == ([("a", 1)], "orders", True)
