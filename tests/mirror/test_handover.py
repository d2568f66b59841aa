"""A primary hands over to its follower because an operator says so."""

from __future__ import annotations

import signal
from subprocess import CompletedProcess
from typing import TYPE_CHECKING

from tests.harness.command import nsq
from tests.harness.daemon import Broker
from tests.harness.pair import LONG_LEASE, Load, Member
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.mirror.conftest import StartPair


def hand_over(broker: Broker) -> tuple[int, str]:
    """Ask for a hand-over. Returns the status and the text of the answer."""
    answer = broker.request("POST", "/mirror/handover")
    return answer.status, answer.text


def epoch(member: Member) -> int | None:
    """The term that the member's address reports; None while nobody answers there."""
    try:
        return int(member.mirror_figures()["epoch"])
    except (OSError, AssertionError, ValueError):
        return None


def test_a_primary_hands_over_under_load_and_follows(start_pair: StartPair) -> None:
    """Nothing is lost, the process of the old primary stays the same, and its address leads to the new one."""
    pair = start_pair(lease=LONG_LEASE)
    primary = pair.wait_for_primary()
    other, before = pair.other(primary), primary.process.pid
    figures = pair.wait_until_in_sync()
    with Load(pair) as load:
        load.wait_for(200)
        pair.wait_until_in_sync()
        status, _ = hand_over(primary)
        assert status == 200
        assert pair.wait_for_takeover(primary)
        wait_until(lambda: epoch(primary) == 2, "the old primary's address leads to the new primary")
        load.wait_for(200)
        after = pair.wait_until_in_sync()
        load.finish()
        assert not load.lost
        assert not load.unexpected
    assert pair.wait_for_primary() is other
    assert (primary.is_running, primary.process.pid) == (True, before)
    assert (after["pair"], after["epoch"]) == (figures["pair"], 2)
    assert after["since"] >= figures["since"]
    assert {figures["member"], after["member"]} == set(after["in_sync"])
    assert [line for line in other.log if "the lease" in line] == []


def test_a_primary_without_a_follower_in_sync_goes_on(start_pair: StartPair) -> None:
    pair = start_pair(lease=LONG_LEASE)
    primary = pair.wait_for_primary()
    pair.other(primary).end(signal.SIGKILL)
    wait_until(lambda: primary.mirror_figures()["under_replicated"], "the primary is alone")
    assert hand_over(primary) == (400, '{"message":"NO_FOLLOWER_IN_SYNC"}')
    primary.post("/pub", b"x", topic="t")
    assert primary.topics()["t"]["depth"] == 1
    assert epoch(primary) == 1


def test_a_primary_that_is_to_end_while_it_hands_over_ends(start_pair: StartPair) -> None:
    """It waits until the other member leads, which cannot reach the arbiter. The signal ends the wait."""
    pair = start_pair(lease=LONG_LEASE)
    primary = pair.wait_for_primary()
    (to_arbiter,) = pair.links(arbiter_of=(pair.other(primary),))
    to_arbiter.cut()
    status, _ = hand_over(primary)
    assert status == 200
    wait_until(lambda: epoch(primary) is None, "the primary does not serve any more")
    assert primary.end(signal.SIGTERM) == 0


def test_the_stop_signal_of_the_image_ends_a_follower_and_drains_a_primary(start_pair: StartPair) -> None:
    """SIGUSR1: a follower has nothing to drain. A primary takes no publishes, and ends when it is empty."""
    pair = start_pair(lease=LONG_LEASE)
    primary = pair.wait_for_primary()
    pair.wait_until_in_sync()
    follower = pair.other(primary)
    assert follower.end(signal.SIGUSR1) == 0
    wait_until(lambda: primary.mirror_figures()["under_replicated"], "the primary is alone")
    follower.start()
    pair.wait_until_in_sync()
    primary.post("/pub", b"x", topic="t")
    primary.signal(signal.SIGUSR1)
    wait_until(lambda: primary.get("/drain")["drain"] is not None, "it drains")
    primary.post("/topic/empty", topic="t")
    assert primary.wait_for_exit() == 0
    assert pair.wait_for_primary() is follower


def test_a_pair_is_handed_over_by_the_command(start_pair: StartPair) -> None:
    """It asks before, prints who leads afterwards, and fails with the reason if no follower is in sync."""
    pair = start_pair(lease=LONG_LEASE)
    primary = pair.wait_for_primary()
    other, node = pair.other(primary), primary.http_address
    (to,) = set(pair.wait_until_in_sync()["in_sync"]) - {member_of(primary)}

    def nodes(*words: str) -> CompletedProcess[str]:
        return nsq("nodes", *words, f"--nsqd-http-address={node}")

    assert f"OK; member {member_of(primary)} leads term 1, follower in sync" in nodes().stdout
    refused = nodes("handover", node)
    assert refused.returncode == 2
    assert f"would hand over node {node} to its follower: its 0 consumers and its producers have to" in refused.stderr
    assert epoch(primary) == 1
    done = nodes("handover", node, "--yes")
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout == f"node {node}: handed over on {node} (member {to} leads term 2)\n"
    assert pair.wait_for_primary() is other
    pair.wait_until_in_sync()

    primary.end(signal.SIGKILL)
    node = other.http_address
    wait_until(lambda: other.mirror_figures()["under_replicated"], "the primary is alone")
    assert f"OK; member {to} leads term 2, under-replicated: no follower is in sync" in nodes().stdout
    failed = nodes("handover", node, "--yes")
    reason = "no follower is in sync, so no other member may lead"
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr == f"nsq nodes: handover node {node}: failed on nsqd {node}: {reason}\n"


def member_of(primary: Member) -> str:
    """The name of a primary, as the arbiter has it."""
    return str(primary.mirror_figures()["member"])


def test_a_node_without_a_mirror_refuses(tmp_path: Path) -> None:
    broker = Broker(tmp_path).launch()
    try:
        assert hand_over(broker) == (400, '{"message":"NOT_MIRRORED"}')
    finally:
        broker.stop()
