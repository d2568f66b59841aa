"""Messages that wait too long, or that are too many: they are dropped, die, or are refused."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.brokerd.clockwork import Delivery, Node
from tests.brokerd.conftest import create_channel, publish
from tests.brokerd.test_dead import channel_of, consumer_of, counts, dead_of
from tests.brokerd.test_policies import set_policy
from tests.harness.v2 import sized
from tests.harness.waiting import wait_until

Connect = Callable[..., Any]
Start = Callable[..., Any]

TTL = "300ms"


@pytest.fixture
def broker(start_broker: Start) -> Any:
    """A broker with a topic ``t`` and its channel ``c``."""
    started = start_broker()
    create_channel(started)
    return started


@pytest.fixture
def timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    """A broker whose clocks the test moves."""
    node = Node(tmp_path, patch=monkeypatch)
    yield node
    node.kill()


def dropped(broker: Any) -> dict[str, int]:
    return dict(channel_of(broker)["dropped_by_reason"])


def waiting(connect: Connect, broker: Any) -> list[bytes]:
    """The bodies of all messages that channel ``c`` delivers, which finishes them."""
    depth = channel_of(broker)["depth"]
    consumer = consumer_of(connect, broker, ready_count=1000)
    found = [consumer.message() for _ in range(depth)]
    consumer.finish(*(message_id for message_id, _, _ in found))
    assert consumer.is_silent(0.1)
    consumer.socket.close()
    return [body for _, _, body in found]


# -- age ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", ["drop", "dead"])
def test_a_message_older_than_the_ttl_leaves_its_channel_without_a_consumer(broker: Any, outcome: str) -> None:
    """It is dropped, or dead with the reason ``expired``; younger ones stay."""
    set_policy(broker, "t", msg_ttl=TTL, expired=outcome)
    publish(broker, b"a", b"b")
    wait_until(lambda: counts(broker)[0] == 0, "both have expired")
    assert set(dead_of(broker)) == (set() if outcome == "drop" else {b"a", b"b"})
    assert {each["death"]["reason"] for each in dead_of(broker).values()} <= {"expired"}
    assert dropped(broker) == ({"expired": 2} if outcome == "drop" else {})
    publish(broker, b"c")
    assert counts(broker)[0] == 1
    wait_until(lambda: counts(broker)[0] == 0, "it has expired")


def test_the_flag_applies_to_every_channel_and_a_policy_replaces_it(start_broker: Start) -> None:
    """``--msg-ttl``; a policy with an empty ``msg_ttl`` keeps messages for ever."""
    broker = start_broker(f"--msg-ttl={TTL}")
    create_channel(broker)
    broker.post("/channel/create", topic="t", channel="kept")
    set_policy(broker, "t", "kept", msg_ttl="")
    publish(broker, b"a")
    wait_until(lambda: counts(broker)[0] == 0, "it has expired")
    assert channel_of(broker, "kept")["depth"] == 1


def test_a_channel_that_was_empty_wakes_when_its_first_message_expires_and_not_before(timed: Node) -> None:
    """Ten thousand channels that wake for nothing at one time delay the messages that expire then."""
    timed.broker.set_policy("t", "*", {"msg_ttl": "10s"})
    topic = timed.broker.topic("t")
    channel = topic.channel("c")
    timed.pass_until(timed.now + 4)
    topic.publish([b"first"])
    timed.pass_until(timed.now)
    before = timed.fired
    timed.pass_until(timed.now + 9.9)
    assert (timed.fired - before, channel.depth) == (0, 1)
    timed.pass_until(timed.now + 0.2)
    assert channel.depth == 0


def test_an_expired_message_is_never_delivered(timed: Node) -> None:
    """In flight it does not expire; requeued after its time, it dies instead of being delivered again."""
    timed.broker.set_policy("t", "*", {"msg_ttl": "10s", "expired": "dead"})
    topic, got = timed.broker.topic("t"), list[Delivery]()
    client = timed.subscribe("t", "c", 10, got.append)
    topic.publish([b"a"])
    timed.pass_until(timed.now + 11)
    channel = topic.channels["c"]
    assert (len(got), channel.in_flight_count) == (1, 1)
    channel.requeue(client, memoryview(b"REQ %b 0\n" % got[0].message_id), 1, 0.0, timed.now)
    timed.pass_until(timed.now + 1)
    assert (len(got), channel.in_flight_count, channel.depth) == (1, 0, 0)
    assert [(message.attempts, message.reason) for message in channel.dead] == [(1, "expired")]


def test_a_deferred_message_expires_when_it_is_due(timed: Node) -> None:
    """Its age counts from the publish: a delay longer than the TTL means that it is never delivered."""
    timed.broker.set_policy("t", "*", {"msg_ttl": "10s"})
    topic = timed.broker.topic("t")
    channel = topic.channel("c")
    topic.publish([b"late"], defer_ms=20_000)
    timed.pass_until(timed.now + 19)
    assert (channel.deferred_count, channel.limits.dropped.total()) == (1, 0)
    timed.pass_until(timed.now + 2)
    assert (channel.deferred_count, channel.depth, dict(channel.limits.dropped)) == (0, 0, {"expired": 1})


def test_messages_of_a_paused_channel_expire_too(broker: Any) -> None:
    """A pause stops deliveries, not the clock."""
    set_policy(broker, "t", msg_ttl=TTL)
    broker.post("/channel/pause", topic="t", channel="c")
    publish(broker, b"a")
    wait_until(lambda: dropped(broker) == {"expired": 1}, "it has expired")


def test_a_ttl_applies_to_messages_that_wait_already(timed: Node) -> None:
    """Those that are old enough leave at once; younger ones stay until their own time."""
    topic = timed.broker.topic("t")
    channel = topic.channel("c")
    topic.publish([b"old", b"as old"])
    timed.pass_until(timed.now + 10)
    topic.publish([b"young"])
    timed.broker.set_policy("t", "*", {"msg_ttl": "5s"})
    timed.pass_until(timed.now)
    assert [bytes(channel.frame_of(seq)[34:]) for seq in channel.cursor.ahead()] == [b"young"]
    timed.pass_until(timed.now + 4.9)
    assert channel.depth == 1
    timed.pass_until(timed.now + 0.2)
    assert channel.depth == 0


@pytest.mark.parametrize("outcome", ["drop", "dead"])
def test_messages_that_expired_stay_away_after_a_kill(broker: Any, connect: Connect, outcome: str) -> None:
    """Those that expire while the broker is down leave once it is back."""
    set_policy(broker, "t", msg_ttl="700ms", expired=outcome)
    publish(broker, *(b"%d" % number for number in range(20)))
    wait_until(lambda: counts(broker)[0] == 0, "they have expired")
    publish(broker, b"a", b"b")
    broker.kill()
    time.sleep(0.7)
    broker.start().wait_until_ready()
    wait_until(lambda: counts(broker)[0] == 0, "they have expired")
    assert counts(broker) == (0, 0, 0, 22 if outcome == "dead" else 0)


def test_each_of_many_channels_keeps_its_ttl(start_broker: Start) -> None:
    """Each message leaves its channel; the clock of none is forgotten."""
    broker = start_broker(f"--msg-ttl={TTL}")
    names = [f"t{number}" for number in range(500)]
    for name in names:
        broker.post("/topic/create", topic=name)
        for channel in ("a", "b"):
            broker.post("/channel/create", topic=name, channel=channel)
        broker.post("/pub", b"x", topic=name)
    wait_until(lambda: all(topic["channels"][0]["depth"] == 0 for topic in broker.topics().values()), "all expired")
    assert all(channel["depth"] == 0 for topic in broker.topics().values() for channel in topic["channels"])


def test_an_ephemeral_channel_has_a_ttl_too(broker: Any, connect: Connect) -> None:
    """Its messages are dropped."""
    consumer = connect(broker)
    consumer.ok(b"SUB e#ephemeral c#ephemeral\n")
    set_policy(broker, "e#ephemeral", msg_ttl=TTL)
    consumer.mpub("e#ephemeral", [b"a", b"b"])
    found = lambda: broker.topics()["e#ephemeral"]["channels"][0]["depth"]  # noqa: E731
    wait_until(lambda: found() == 0, "they have expired")


# -- number and size ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", [{"max_depth": 3}, {"max_bytes": 6}])
@pytest.mark.parametrize("outcome", ["drop-oldest", "dead"])
def test_a_full_channel_gives_up_its_oldest_messages(
    broker: Any, connect: Connect, bound: dict[str, int], outcome: str
) -> None:
    """They are dropped, or dead with the reason ``overflow``; other channels of the topic keep all."""
    broker.post("/channel/create", topic="t", channel="all")
    set_policy(broker, "t", "c", overflow=outcome, **bound)
    publish(broker, *(b"%02d" % number for number in range(10)))
    wait_until(lambda: counts(broker)[0] == 3, "three are left")
    assert channel_of(broker, "all")["depth"] == 10
    gone = {b"%02d" % number for number in range(7)}
    if outcome == "dead":
        assert set(dead_of(broker)) == gone
        assert {each["death"]["reason"] for each in dead_of(broker).values()} == {"overflow"}
    else:
        assert dropped(broker) == {"overflow": 7}
    broker.kill()
    broker.start().wait_until_ready()
    wait_until(lambda: counts(broker)[0] == 3, "three are left after a kill")
    assert waiting(connect, broker) == [b"07", b"08", b"09"]


def test_requeued_messages_count_and_go_first(broker: Any, connect: Connect) -> None:
    """They are the oldest. Those in flight are not counted."""
    set_policy(broker, "t", "c", overflow="drop-oldest", max_depth=2)
    consumer = consumer_of(connect, broker, ready_count=2)
    publish(broker, b"a", b"b", b"c", b"d")
    ids = [consumer.message()[0] for _ in range(2)]
    assert counts(broker)[:2] == (2, 2)
    consumer.send(b"RDY 0\n")
    for message_id in ids:
        consumer.send(b"REQ %b 0\n" % message_id)
    wait_until(lambda: dropped(broker) == {"overflow": 2}, "two are gone")
    assert waiting(connect, broker) == [b"c", b"d"]


def test_a_bound_of_bytes_drops_no_requeued_message(broker: Any, connect: Connect) -> None:
    """Only messages that were never delivered count in it."""
    set_policy(broker, "t", "c", overflow="drop-oldest", max_bytes=4)
    consumer = consumer_of(connect, broker, ready_count=1)
    publish(broker, b"aa", b"bb", b"cc", b"dd")
    message_id, _, _ = consumer.message()
    consumer.send(b"RDY 0\n")
    consumer.send(b"REQ %b 0\n" % message_id)
    wait_until(lambda: counts(broker)[:2] == (3, 0), "one is requeued")
    assert sorted(waiting(connect, broker)) == [b"aa", b"cc", b"dd"]


# -- publishes that are refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", [{"max_depth": 3}, {"max_bytes": 3}])
def test_a_full_topic_refuses_publishes_until_there_is_room(
    broker: Any, connect: Connect, bound: dict[str, int]
) -> None:
    """HTTP 503 TOPIC_FULL, E_PUB_FAILED over TCP; what was accepted stays, and a MPUB is refused as a whole."""
    set_policy(broker, "t", overflow="reject", **bound)
    publish(broker, b"a", b"b")
    refused = broker.request("POST", "/mpub?topic=t", b"c\nd")
    assert (refused.status, json.loads(refused.text)) == (503, {"message": "TOPIC_FULL"})
    publish(broker, b"c")
    for path in ("/pub?topic=t", "/pub?topic=t&defer=100", "/mpub?topic=t"):
        refused = broker.request("POST", path, b"d")
        assert (refused.status, json.loads(refused.text)) == (503, {"message": "TOPIC_FULL"})
    ((key, value),) = bound.items()
    for command, code in ((b"PUB t\n", b"E_PUB_FAILED PUB"), (b"DPUB t 5\n", b"E_DPUB_FAILED DPUB")):
        assert connect(broker).command(command + sized(b"d")) == (
            1,
            code + f" failed topic t is full: {key} {value}".encode(),
        )
    publisher = connect(broker)
    assert publisher.command(b"MPUB t\n" + sized(b"\0\0\0\1" + sized(b"d")))[1].startswith(b"E_MPUB_FAILED MPUB failed")
    assert waiting(connect, broker) == [b"a", b"b", b"c"]
    publish(broker, b"d", b"e", b"f")
    assert waiting(connect, broker) == [b"d", b"e", b"f"]


def test_of_pipelined_publishes_those_with_room_are_accepted(broker: Any, connect: Connect) -> None:
    """The first one without room closes the connection, as any failed publish does."""
    set_policy(broker, "t", overflow="reject", max_depth=5)
    publisher = connect(broker)
    publisher.send(b"".join(b"PUB t\n" + sized(b"%d" % number) for number in range(9)))
    answers = [publisher.frame() for _ in range(6)]
    assert [each[1] for each in answers[:5]] == [b"OK"] * 5
    assert answers[5][1].startswith(b"E_PUB_FAILED")
    assert waiting(connect, broker) == [b"%d" % number for number in range(5)]


def test_a_topic_is_full_as_its_fullest_channel_and_its_own_messages(broker: Any, connect: Connect) -> None:
    """A paused topic keeps messages itself; a channel without consumers counts although another has finished all."""
    broker.post("/channel/create", topic="t", channel="idle")
    set_policy(broker, "t", overflow="reject", max_depth=3)
    publish(broker, b"a")
    assert waiting(connect, broker) == [b"a"]
    broker.post("/topic/pause", topic="t")
    publish(broker, b"b", b"c")
    assert broker.request("POST", "/pub?topic=t", b"d").status == 503
    set_policy(broker, "t", overflow="reject", max_depth=4)
    publish(broker, b"d")
    broker.post("/policy/delete", pattern="t")
    publish(broker, b"e")


def test_messages_that_do_not_wait_do_not_fill_a_topic(broker: Any) -> None:
    """Deferred ones, and those that an operator has finished ahead of the consumers."""
    set_policy(broker, "t", overflow="reject", max_bytes=6)
    publish(broker, b"aaa", b"bbb", defer="100000")
    publish(broker, b"cccccc")
    assert broker.request("POST", "/pub?topic=t", b"d").status == 503
    (waiting_id,) = [each["id"] for each in broker.get("/channel/peek?topic=t&channel=c&state=ready")["messages"]]
    broker.post("/channel/finish", topic="t", channel="c", id=waiting_id)
    publish(broker, b"dddddd")


def test_cancelled_messages_do_not_count_towards_a_bound_of_bytes(broker: Any) -> None:
    """Of a channel, which drops no message for them, and of a topic without channels, which takes others."""
    set_policy(broker, "t", overflow="drop-oldest", max_bytes=1000)
    publish(broker, b"k" * 400)
    cancelled = broker.post("/pub", b"a" * 500, topic="t", ids="true")
    broker.request("POST", "/message/cancel?topic=t", json.loads(cancelled)["ids"][0].encode())
    publish(broker, b"b" * 500)
    assert counts(broker)[0] == 2
    set_policy(broker, "alone", overflow="reject", max_bytes=1000)
    for _ in range(3):
        answer = json.loads(broker.post("/pub", b"c" * 900, topic="alone", ids="true"))
        broker.request("POST", "/message/cancel?topic=alone", answer["ids"][0].encode())


def test_a_bound_of_bytes_holds_after_the_topics_files_were_lost(broker: Any) -> None:
    """The messages are lost, and the topic is empty."""
    publish(broker, b"a", b"b")
    set_policy(broker, "t", overflow="reject", max_bytes=6)
    broker.stop()
    for file in broker.data_path.glob("topics/t.*/*"):
        file.unlink()
    broker.start().wait_until_ready()
    publish(broker, b"cccccc")
    assert broker.request("POST", "/pub?topic=t", b"d").status == 503


@pytest.mark.parametrize("values", [{"msg_ttl": "1ms"}, {"max_depth": 1, "overflow": "drop-oldest"}])
def test_dead_messages_are_not_requeued_only_to_be_dropped(
    broker: Any, connect: Connect, values: dict[str, Any]
) -> None:
    """400 WOULD_BE_DROPPED, and they stay dead, until the policy lets them live."""
    set_policy(broker, "t", max_attempts=1)
    consumer = consumer_of(connect, broker)
    publish(broker, b"a", b"b")
    for _ in range(2):
        consumer.send(b"REQ %b 0\n" % consumer.message()[0])
    wait_until(lambda: counts(broker)[3] == 2, "they are dead")
    consumer.socket.close()
    set_policy(broker, "t", **values)
    refused = broker.request("POST", "/channel/requeue?topic=t&channel=c&state=dead")
    assert (refused.status, json.loads(refused.text)) == (400, {"message": "WOULD_BE_DROPPED"})
    assert counts(broker)[3] == 2
    broker.post("/policy/delete", pattern="t")
    broker.post("/channel/requeue", topic="t", channel="c", state="dead")
    assert waiting(connect, broker) == [b"a", b"b"]
