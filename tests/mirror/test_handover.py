"""A primary hands over to its follower because an operator says so."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from tests.harness.daemon import Broker
from tests.harness.pair import Load, Member
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.mirror.conftest import StartPair

LONG_LEASE = "60s"
"""A lease that does not end within a test, however slow the machine is."""


def hand_over(broker: Broker) -> tuple[int, str]:
    """The status and the text of the answer."""
    answer = broker.request("POST", "/mirror/handover")
    return answer.status, answer.text


def epoch(member: Member) -> int | None:
    """The term, as it is told at the member's address; None while nobody answers there."""
    try:
        return int(member.stats(include_histograms="true")["mirror"]["epoch"])
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

    def alone() -> bool:
        return bool(primary.stats(include_histograms="true")["mirror"]["under_replicated"])

    wait_until(alone, "the primary is alone")
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


def test_a_node_without_a_mirror_refuses(tmp_path: Path) -> None:
    broker = Broker(tmp_path).launch()
    try:
        assert hand_over(broker) == (400, '{"message":"NOT_MIRRORED"}')
    finally:
        broker.stop()
