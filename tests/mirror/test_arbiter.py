"""What every arbiter does: etcd, a real one, and a Lease of Kubernetes."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

from brokerd.mirror.pair import PairRecord
from brokerd.net.arbiter import Arbiter, ArbiterFailed, Leadership, give_back_lead
from brokerd.net.arbiter_access import ArbiterAccess
from brokerd.net.arbiters import arbiter_at
from tests.harness.etcd import EtcdServer
from tests.harness.kubernetes import NAMESPACE, LeaseServer
from tests.harness.waiting import DEADLINE_S, wait_until

T = TypeVar("T")
RECORD = PairRecord(pair="p1", node_id=7, epoch=1, leader="a", in_sync={"a": "boot"})


@pytest.fixture(params=["etcd", "kubernetes"])
def arbiter(
    request: pytest.FixtureRequest, etcd_server: EtcdServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Arbiter]:
    if request.param == "etcd":
        name = "".join(each if each.isalnum() else "-" for each in request.node.name)
        yield arbiter_at(f"etcd://{etcd_server.address}/{name}", timeout_s=DEADLINE_S)
        return
    server = LeaseServer(tmp_path)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    access = ArbiterAccess(service_account=server.service_account)
    yield arbiter_at(f"kubernetes://{NAMESPACE}/orders", timeout_s=DEADLINE_S, access=access)
    server.close()


def run(call: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(call)


def won(arbiter: Arbiter, record: PairRecord = RECORD, revision: int = 0, lease_s: int = 600) -> Leadership:
    found = run(arbiter.campaign(record.leader, record, revision, lease_s))
    assert found is not None
    return found


def test_a_pair_that_was_never_founded_has_no_record(arbiter: Arbiter) -> None:
    assert run(arbiter.read()) == (None, 0, None)


def test_a_campaign_gives_the_lead_and_writes_the_record(arbiter: Arbiter) -> None:
    lead = won(arbiter)
    assert run(arbiter.read()) == (RECORD, lead.revision, "a")


def test_a_second_campaign_is_refused_while_somebody_leads(arbiter: Arbiter) -> None:
    lead = won(arbiter)
    assert run(arbiter.campaign("b", RECORD.led_by("b", "boot"), lead.revision, 600)) is None
    assert run(arbiter.read()).leader == "a"


def test_a_campaign_is_refused_if_the_record_has_changed(arbiter: Arbiter) -> None:
    lead = won(arbiter)
    run(arbiter.resign(lead.lease))
    assert run(arbiter.campaign("b", RECORD.led_by("b", "boot"), lead.revision - 1, 600)) is None
    assert run(arbiter.read()).record == RECORD


def test_the_lead_ends_with_its_lease(arbiter: Arbiter) -> None:
    lead = won(arbiter)
    assert run(arbiter.renew(lead.lease))
    run(arbiter.resign(lead.lease))
    assert not run(arbiter.renew(lead.lease))
    assert run(arbiter.read()) == (RECORD, lead.revision, None)


def test_a_lease_that_is_not_renewed_ends(arbiter: Arbiter) -> None:
    won(arbiter, lease_s=1)
    wait_until(lambda: run(arbiter.read()).leader is None, "the lease has ended")


def test_a_record_is_written_only_by_who_leads_and_knows_the_revision(arbiter: Arbiter) -> None:
    lead = won(arbiter)
    grown = RECORD.with_in_sync({"a": "boot", "b": "boot"})
    revision = run(arbiter.write(lead.lease, grown, lead.revision))
    assert revision is not None
    assert revision > lead.revision
    assert run(arbiter.read()) == (grown, revision, "a")
    assert run(arbiter.write(lead.lease, RECORD, lead.revision)) is None  # another one has been written since
    run(arbiter.resign(lead.lease))
    assert run(arbiter.write(lead.lease, RECORD, revision)) is None
    assert run(arbiter.read()).record == grown


def test_a_process_that_has_just_started_knows_that_a_lease_has_ended(arbiter: Arbiter) -> None:
    lead = won(arbiter, lease_s=1)
    wait_until(lambda: run(arbiter.read()).leader is None, "the lease has ended")
    assert run(arbiter.read_settled()) == (RECORD, lead.revision, None)


def test_a_lead_that_nobody_renewed_is_taken_by_another(arbiter: Arbiter) -> None:
    """What the first one then writes is refused."""
    first = won(arbiter, lease_s=1)
    wait_until(lambda: run(arbiter.read()).leader is None, "the lease has ended")
    second = won(arbiter, RECORD.led_by("b", "boot"), first.revision)
    assert not run(arbiter.renew(first.lease))
    assert run(arbiter.write(first.lease, RECORD, second.revision)) is None
    with suppress(ArbiterFailed):  # etcd no longer knows the lease
        run(arbiter.resign(first.lease))
    assert run(arbiter.read()).leader == "b"


def test_a_record_is_written_without_a_lead_only_while_nobody_leads(arbiter: Arbiter) -> None:
    lead = won(arbiter)
    promoted = RECORD.with_in_sync({"b": "boot"})
    assert run(arbiter.write_without_lead(promoted, lead.revision)) is None
    run(arbiter.resign(lead.lease))
    assert run(arbiter.write_without_lead(promoted, lead.revision - 1)) is None
    revision = run(arbiter.write_without_lead(promoted, lead.revision))
    assert revision is not None
    assert run(arbiter.read()) == (promoted, revision, None)


def test_a_lead_that_is_given_back_may_be_taken_by_the_members_of_the_record(arbiter: Arbiter) -> None:
    lead, others = won(arbiter), RECORD.with_in_sync({"b": "boot"})
    assert run(give_back_lead(arbiter, lead.lease, others, lead.revision))
    found = run(arbiter.read())
    assert (found.record, found.leader) == (others, None)


@pytest.mark.parametrize("call", ["write", "resign"])
def test_a_member_does_not_lead_on_if_the_arbiter_may_let_another_lead(
    arbiter: Arbiter, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it acknowledged would be lost with the lead of the other one."""
    lead, others = won(arbiter), RECORD.with_in_sync({"b": "boot"})
    answered = getattr(arbiter, call)

    async def unanswered(*arguments: object) -> None:
        await answered(*arguments)
        raise ArbiterFailed("no answer")

    monkeypatch.setattr(arbiter, call, unanswered)
    assert run(give_back_lead(arbiter, lead.lease, others, lead.revision))
    assert run(arbiter.read()).record == others


def test_a_request_to_give_back_the_lead_that_is_lost_is_made_again(
    arbiter: Arbiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the record, the other member would wait as long as this one might be recovering."""
    lead, others = won(arbiter), RECORD.with_in_sync({"b": "boot"})
    write, lost = arbiter.write, ["the first"]

    async def losing(*arguments: Any) -> int | None:
        if lost:
            lost.pop()
            raise ArbiterFailed("no answer")
        return await write(*arguments)

    monkeypatch.setattr(arbiter, "write", losing)
    assert run(give_back_lead(arbiter, lead.lease, others, lead.revision))
    found = run(arbiter.read())
    assert (found.record, found.leader) == (others, None)


def test_a_member_leads_on_if_the_arbiter_does_not_take_the_lead_back(arbiter: Arbiter) -> None:
    lead = won(arbiter)
    assert not run(give_back_lead(arbiter, lead.lease, RECORD.with_in_sync({"b": "boot"}), lead.revision - 1))
    assert run(arbiter.read()) == (RECORD, lead.revision, "a")
