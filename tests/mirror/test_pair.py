"""A pair of broker processes: what is acknowledged survives the loss of either."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.harness.daemon import Broker
from tests.harness.pair import LONG_LEASE, Load, Pair
from tests.harness.waiting import DEADLINE_S, wait_until

if TYPE_CHECKING:
    from tests.mirror.conftest import StartPair


def contents(data_path: Path) -> dict[str, bytes]:
    """The mirrored files without the zeros at their ends."""
    found = [*data_path.glob("topics/*/*"), *data_path.glob("journal.*"), *data_path.glob("checkpoint*")]
    return {str(path.relative_to(data_path)): path.read_bytes().rstrip(b"\0") for path in found if path.is_file()}


def wait_until_equal(pair: Pair) -> None:
    """Wait until the follower has the bytes of the primary, apart from a journal that is allocated ahead."""

    def equal() -> bool:
        ours, theirs = (contents(member.data_path) for member in pair.members)
        return {path: data for path, data in ours.items() if data} == {
            path: data for path, data in theirs.items() if data
        }

    wait_until(equal, "both members have the same bytes")


def test_a_killed_follower_joins_again_with_the_same_bytes_and_no_publisher_notices(start_pair: StartPair) -> None:
    pair = start_pair(lease=LONG_LEASE)
    primary = pair.wait_for_primary()
    follower = pair.other(primary)
    with Load(pair, publishers=4, consumers=2, timeout_s=DEADLINE_S) as load:
        load.wait_for(500)
        assert load.errors == []
        follower.end(signal.SIGKILL)
        load.wait_for(500)
        follower.start()
        pair.wait_until_in_sync()
        load.wait_for(500)
        load.finish()
        assert not load.lost
        assert not load.unexpected
    # Publishers that were connected through the follower have lost the connection. No publish was refused.
    assert [error for error in load.errors if error.startswith("E_")] == []
    wait_until_equal(pair)


def test_a_primary_that_is_ended_hands_over(start_pair: StartPair) -> None:
    """SIGTERM: the follower leads at once, long before the lease ends."""
    pair = start_pair(lease=LONG_LEASE)
    primary = pair.wait_for_primary()
    for number in range(20):
        primary.post("/pub", b"%d" % number, topic="t")
    assert primary.end(signal.SIGTERM) == 0
    other = pair.wait_for_primary()
    assert other is not primary
    assert other.topics()["t"]["depth"] == 20


def test_what_channels_have_done_is_mirrored(start_pair: StartPair) -> None:
    pair = start_pair(lease=LONG_LEASE)
    primary = pair.wait_for_primary()
    for name in ("paused", "deferred"):
        primary.post("/topic/create", topic=name)
        primary.post("/channel/create", topic=name, channel="c")
    primary.post("/topic/create", topic="gone")
    primary.post("/pub", b"x", topic="gone")
    for number in range(10):
        primary.post("/pub", b"%d" % number, topic="paused")
    primary.post("/pub?topic=deferred&defer=3600000", b"later")
    primary.post("/channel/pause", topic="paused", channel="c")
    primary.post("/topic/delete", topic="gone")
    primary.post("/pub?topic=paused", b"last")
    wait_until_equal(pair)
    primary.end(signal.SIGTERM)
    topics = pair.wait_for_primary().topics()
    assert set(topics) == {"paused", "deferred"}
    [paused], [deferred] = (topics[name]["channels"] for name in ("paused", "deferred"))
    assert (paused["paused"], paused["depth"]) == (True, 11)
    assert deferred["deferred_count"] == 1


def test_segments_that_were_consumed_are_removed_from_the_follower(start_pair: StartPair) -> None:
    pair = start_pair(lease=LONG_LEASE)
    primary = pair.wait_for_primary()
    with Load(pair, consumers=1) as load:
        load.wait_for(100)
        for _ in range(6):
            primary.post("/pub", bytes(300_000), topic="orders")
        load.finish()
    wait_until(lambda: len(list(primary.data_path.glob("topics/orders.*/*.log"))) == 1, "one segment is left")
    wait_until_equal(pair)


def test_headers_are_mirrored(start_pair: StartPair) -> None:
    pair = start_pair(lease=LONG_LEASE)
    primary = pair.wait_for_primary()
    primary.post("/topic/create", topic="t")
    primary.post("/channel/create", topic="t", channel="c")
    for number in range(3):
        primary.request("POST", "/pub?topic=t", b"%d" % number, {"X-NSQ-Header-Number": str(number)})
    assert list(primary.data_path.glob("topics/t.*/*.hdr"))
    wait_until_equal(pair)


def test_a_degraded_pair_says_so(start_pair: StartPair) -> None:
    pair = start_pair(lease=LONG_LEASE)
    primary = pair.wait_for_primary()
    follower = pair.other(primary)
    assert primary.request("GET", "/ping").text == "OK"
    assert "nsq_mirror_under_replicated 0.0" in primary.request("GET", "/metrics").text
    figures = pair.wait_until_in_sync()
    assert (figures["role"], figures["under_replicated"], figures["epoch"]) == ("primary", False, 1)
    follower.end(signal.SIGKILL)
    wait_until(lambda: primary.request("GET", "/ping").text == "OK - under_replicated", "it says so")
    assert primary.request("GET", "/ping").status == 200
    assert "nsq_mirror_under_replicated 1.0" in primary.request("GET", "/metrics").text
    assert primary.post("/pub", b"alone", topic="t") == "OK"


def test_with_min_in_sync_2_a_primary_alone_refuses_publishes(start_pair: StartPair) -> None:
    pair = start_pair("--min-in-sync=2", lease=LONG_LEASE)
    primary = pair.wait_for_primary()
    follower = pair.other(primary)
    assert primary.post("/pub", b"two", topic="t") == "OK"
    follower.end(signal.SIGKILL)
    wait_until(lambda: primary.request("POST", "/pub?topic=t", b"one").status == 503, "publishes are refused")
    ping = primary.request("GET", "/ping")
    assert (ping.status, ping.text) == (500, "NOK - only 1 member of the pair is in sync")
    follower.start()
    pair.wait_until_in_sync()
    assert primary.post("/pub", b"two again", topic="t") == "OK"


def test_a_data_path_with_messages_of_its_own_is_not_overwritten(start_pair: StartPair) -> None:
    pair = start_pair(lease=LONG_LEASE)
    primary = pair.wait_for_primary()
    follower = pair.other(primary)
    follower.end(signal.SIGKILL)
    with Broker(follower.data_path) as alone:  # without a mirror it leaves the pair, and what it gets is its own
        alone.wait_until_ready()
        alone.post("/pub", b"its own", topic="t")
    before = contents(follower.data_path)
    follower.start()
    follower.wait_for_log("its data path has messages and was never a mirror; empty it")
    assert contents(follower.data_path) == before


def test_a_refused_member_logs_the_reason_once_and_joins_once_it_can(start_pair: StartPair) -> None:
    pair = start_pair(lease=LONG_LEASE)
    primary = pair.wait_for_primary()
    primary.post("/pub", b"kept", topic="t")
    follower = pair.other(primary)
    pair.wait_until_in_sync()
    follower.end(signal.SIGKILL)
    state = follower.data_path / "mirror.json"
    own = state.read_text()
    state.write_text(own.replace(json.loads(own)["pair"], "another"))
    links = pair.links(members=True)
    before = sum(link.accepted for link in links)
    follower.start()
    wait_until(lambda: sum(link.accepted for link in links) - before >= 4, "it tries again")
    reason = "its data path or its arbiter is that of another pair"
    assert [sum(reason in line for line in member.log) for member in (primary, follower)] == [1, 1]
    follower.end(signal.SIGKILL)
    state.write_text(own)
    follower.start()
    pair.wait_until_in_sync()


def test_a_member_that_lost_the_founding_joins_before_the_arbiter_says_so(start_pair: StartPair) -> None:
    """Two empty members found a pair at once. The one that came second has stored the pair that it tried to found."""
    pair = start_pair(lease=LONG_LEASE)
    primary = pair.wait_for_primary()
    primary.post("/pub", b"kept", topic="t")
    follower = pair.other(primary)
    follower.end(signal.SIGKILL)
    tried = json.loads((follower.data_path / "mirror.json").read_text()) | {"pair": "tried", "epoch": 0}
    shutil.rmtree(follower.data_path)
    follower.data_path.mkdir()
    (follower.data_path / "mirror.json").write_text(json.dumps(tried))
    (to_arbiter,) = pair.links(arbiter_of=(follower,))
    to_arbiter.cut()
    follower.start()
    follower.wait_for_log("has the primary's files, and follows")
    assert [line for line in (*primary.log, *follower.log) if "another pair" in line] == []


def test_a_member_with_another_lease_joins_and_logs_it(start_pair: StartPair) -> None:
    pair = start_pair(lease=LONG_LEASE)
    primary = pair.wait_for_primary()
    follower = pair.other(primary)
    follower.end(signal.SIGKILL)
    follower.command[follower.command.index(f"--mirror-lease={LONG_LEASE}")] = "--mirror-lease=59s"
    follower.start()
    pair.wait_until_in_sync()
    follower.wait_for_log("--mirror-lease is 59 s here and 60 s at the primary: set it to the same on both")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--mirror-peer=h:1"], "need --mirror-address"),
        (["--mirror-address=h:1"], "--mirror-address needs --mirror-peer and --arbiter"),
        (["--mirror-address=h:1", "--mirror-peer=h:1", "--arbiter=redis://h:1/x"], "--arbiter: 'redis://h:1/x' is not"),
        (["--mirror-address=h:1", "--mirror-peer=h", "--arbiter=etcd://h:1/x"], "--mirror-peer: "),
        (["--mirror-address=h:1", "--mirror-peer=h:1", "--arbiter=etcd://h:1/x"], "the same as --mirror-address"),
    ],
)
def test_wrong_flags_are_named(tmp_path: Path, flags: list[str], message: str) -> None:
    broker = Broker(tmp_path, *flags).start()
    assert broker.wait_for_exit() == 1
    assert message in broker.output
    broker.close()
