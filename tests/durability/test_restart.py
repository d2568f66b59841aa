"""The state of a broker is the same after it ended and started, by SIGTERM and by kill -9."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.wire import dpub
from brokerd.journal import records
from tests.brokerd.clockwork import Node as SimulatedNode
from tests.harness.waiting import wait_until

EARLY_S = 0.02
Start = Callable[..., Any]

either_end = pytest.mark.parametrize("how", ["SIGTERM", "SIGKILL"])


@either_end
def test_a_backlog_is_served_whole_and_in_order(how: str, node: Any) -> None:
    """Bodies, ids and order; on every channel, and in a topic that has none yet."""
    bodies = [b"%d" % i for i in range(300)]
    peer = node.connect()
    peer.sub("t", "a")
    node.connect().sub("t", "b")
    peer.mpub("t", bodies[:200])
    for body in bodies[200:]:
        peer.pub("t", body)
    peer.mpub("unread", bodies)
    node.restart(how)
    assert set(node.topics()) == {"t", "unread"}
    ids = []
    for topic, channel in (("t", "a"), ("t", "b"), ("unread", "first")):
        consumer = node.connect()
        consumer.sub(topic, channel, 2500)
        got = [consumer.message() for _ in bodies]
        assert [body for _, _, body in got] == bodies
        assert {attempts for _, attempts, _ in got} == {1}
        ids.append([message_id for message_id, _, _ in got])
    assert ids[0] == ids[1]


@either_end
def test_finished_messages_stay_finished(how: str, node: Any) -> None:
    """Every second one was finished; exactly the others are delivered, also after a second restart."""
    peer = node.connect()
    peer.sub("t", "c", 2500)
    publisher = node.connect()
    publisher.mpub("t", [b"%d" % i for i in range(400)])
    ids = [peer.message()[0] for _ in range(400)]
    peer.finish(*ids[0::2])
    for _ in range(2):
        node.restart(how)
        assert node.channel("t", "c")["depth"] == 200
        again = node.connect()
        again.sub("t", "c", 2500)
        assert sorted(again.message()[0] for _ in range(200)) == sorted(ids[1::2])
        assert node.channel("t", "c")["in_flight_count"] == 200


@either_end
def test_messages_in_flight_are_redelivered_and_count_their_attempts(how: str, node: Any) -> None:
    """Attempts continue; a kill may lose at most the last delivery."""
    peer = node.connect()
    peer.sub("t", "c", 10)
    node.connect().mpub("t", [b"once", b"often"])
    (once, _, _), (often, _, _) = peer.message(), peer.message()
    for attempts in range(2, 6):
        peer.send(b"REQ %b 0\n" % often)
        assert peer.message() == (often, attempts, b"often")
    peer.settle()
    node.restart(how)
    again = node.connect()
    again.sub("t", "c", 10)
    came = {message_id: attempts for message_id, attempts, _ in (again.message(), again.message())}
    if how == "SIGTERM":
        assert came == {once: 2, often: 6}
    else:
        assert came[once] in (1, 2)
        assert came[often] in (5, 6)


@either_end
def test_a_deferred_message_stays_deferred_until_it_is_due(how: str, node: Any) -> None:
    """After a DPUB or a requeue with a delay; neither delivered right after the start, nor lost."""
    peer = node.connect()
    peer.sub("t", "c", 1)
    publisher = node.connect()
    publisher.pub("t", b"requeued")
    message_id, _, _ = peer.message()
    began = time.monotonic()
    peer.send(b"RDY 0\nREQ %b 1500\n" % message_id)
    peer.settle()
    publisher.dpub("t", 1800, b"published")
    node.restart(how)
    again = node.connect()
    again.sub("t", "c", 10)
    first = again.message()
    requeued_after = time.monotonic() - began
    second = again.message()
    published_after = time.monotonic() - began
    assert (first, second[1:]) == ((message_id, 2, b"requeued"), (1, b"published"))
    assert requeued_after >= 1.5 - EARLY_S
    assert published_after >= 1.8 - EARLY_S


@either_end
def test_deferred_publishes_sent_together_keep_their_delays(how: str, node: Any) -> None:
    """After the start, due messages are delivered, and the others stay deferred."""
    peer = node.connect()
    peer.sub("t", "c", 0)
    delays = [(100 + at * 37 % 400) if at % 2 else 60_000 + at for at in range(200)]
    peer.send(b"".join(dpub("t", ms, b"%d" % ms) for ms in delays))
    assert [peer.frame() for _ in delays] == [(0, b"OK")] * len(delays)
    node.restart(how)
    assert node.channel("t", "c")["deferred_count"] >= 100
    again = node.connect()
    again.sub("t", "c", 1000)
    arrived = [int(again.message()[2]) for _ in range(100)]
    assert sorted(arrived) == sorted(ms for ms in delays if ms < 1000)
    assert node.channel("t", "c")["deferred_count"] == 100


@either_end
def test_deferred_messages_count_as_deferred_after_a_restart(how: str, node: Any) -> None:
    """By a publish or by a requeue; none of them counts as ready."""
    peer = node.connect()
    peer.sub("t", "c", 1)
    peer.dpub("t", 60_000, b"published")
    node.connect().pub("t", b"requeued")
    message_id, _, _ = peer.message()
    peer.send(b"REQ %b 60000\n" % message_id)
    peer.settle()
    node.restart(how)
    channel = node.channel("t", "c")
    assert (channel["deferred_count"], channel["depth"], channel["in_flight_count"]) == (2, 0, 0)


@either_end
def test_messages_that_became_due_meanwhile_come_at_once(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time during which the broker does not run counts."""
    node = SimulatedNode(tmp_path, patch=monkeypatch)
    topic = node.broker.topic("t")
    topic.channel("c")
    topic.publish([b"due"], defer_ms=60_000)
    topic.publish([b"not due"], defer_ms=120_000)
    if how == "SIGTERM":
        node.broker.close()
    else:
        node.kill()
    node.now += 61
    node.wall += 61
    node.open()
    got = node.consumer("t", "c")
    node.pass_until(node.now)
    assert [(attempts, body) for _, attempts, body in got] == [(1, b"due")]
    node.kill()


@either_end
def test_topics_channels_and_pauses_are_remembered(how: str, node: Any) -> None:
    """Empty ones too; ephemeral ones are gone."""
    node.post("/topic/create", topic="empty")
    node.post("/topic/create", topic="t")
    node.post("/channel/create", topic="t", channel="running")
    node.post("/channel/create", topic="t", channel="paused")
    node.post("/channel/pause", topic="t", channel="paused")
    node.post("/topic/create", topic="held")
    node.post("/channel/create", topic="held", channel="c")
    node.post("/topic/pause", topic="held")
    node.connect().sub("t", "passing#ephemeral")
    node.connect().pub("held", b"waiting")
    node.connect().pub("t", b"x")
    node.restart(how)
    topics = node.topics()
    assert {name: sorted(topic["channels"]) for name, topic in topics.items()} == {
        "empty": [],
        "held": ["c"],
        "t": ["paused", "running"],
    }
    assert [topics[name]["paused"] for name in ("empty", "held", "t")] == [False, True, False]
    assert topics["t"]["channels"]["paused"]["paused"] is True
    assert topics["t"]["channels"]["running"]["paused"] is False
    assert (topics["held"]["depth"], topics["held"]["channels"]["c"]["depth"]) == (1, 0)
    assert topics["t"]["channels"]["paused"]["depth"] == 1
    node.post("/topic/unpause", topic="held")
    consumer = node.connect()
    consumer.sub("held", "c", 1)
    assert consumer.message()[2] == b"waiting"


@either_end
def test_deleted_and_emptied_messages_are_not_redelivered(how: str, node: Any) -> None:
    """A topic, a channel, a channel's messages, its in-flight ones, a topic's own messages."""
    peer = node.connect()
    for channel in ("gone", "emptied", "kept"):
        node.connect().sub("t", channel)
    peer.sub("t", "emptied", 1)
    publisher = node.connect()
    publisher.mpub("t", [b"a", b"b"])
    peer.message()
    publisher.dpub("t", 60_000, b"later")
    publisher.pub("deleted", b"x")
    publisher.mpub("drained", [b"x", b"y"])
    node.post("/channel/delete", topic="t", channel="gone")
    node.post("/channel/empty", topic="t", channel="emptied")
    node.post("/topic/delete", topic="deleted")
    node.post("/topic/empty", topic="drained")
    node.restart(how)
    topics = node.topics()
    assert {name: sorted(topic["channels"]) for name, topic in topics.items()} == {
        "drained": [],
        "t": ["emptied", "kept"],
    }
    assert topics["drained"]["depth"] == 0
    emptied, kept = topics["t"]["channels"]["emptied"], topics["t"]["channels"]["kept"]
    assert (emptied["depth"], emptied["deferred_count"]) == (0, 0)
    assert (kept["depth"], kept["deferred_count"]) == (2, 1)


@either_end
def test_an_id_is_never_used_twice(how: str, node: Any) -> None:
    """Neither after a restart nor by a topic that was deleted and created again."""
    ids: list[bytes] = []

    def publish_and_read() -> None:
        peer = node.connect()
        peer.sub("t", "c", 100)
        node.connect().mpub("t", [b"x"] * 20)
        fresh = [peer.message()[0] for _ in range(20)]
        peer.finish(*fresh)
        ids.extend(fresh)

    publish_and_read()
    node.restart(how)
    publish_and_read()
    node.post("/topic/delete", topic="t")
    publish_and_read()
    node.restart(how)
    publish_and_read()
    assert len(set(ids)) == len(ids) == 80


@either_end
def test_a_log_of_many_segments_is_read_on_where_it_was_left(how: str, node: Any) -> None:
    """Eight megabytes, a third of them finished; segments that all channels have finished are removed."""
    body = bytes(range(256)) * 16
    publisher = node.connect()
    node.connect().sub("t", "c")
    for i in range(20):
        publisher.mpub("t", [b"%d:%d:" % (i, j) + body for j in range(100)])
    peer = node.connect()
    peer.sub("t", "c", 100)
    ids = []
    for _ in range(700):
        message_id, _, _ = peer.message()
        peer.send(b"FIN %b\n" % message_id)
        ids.append(message_id)
    peer.send(b"RDY 0\n")
    node.restart(how)
    again = node.connect()
    again.sub("t", "c", 2500)
    channel = node.channel("t", "c")
    depth = channel["depth"] + channel["in_flight_count"]
    assert 2000 - 800 <= depth <= 2000 - 600  # at most RDY more were in flight, or their FINs not read yet
    got = [again.message() for _ in range(depth)]
    assert all(text.partition(b":")[2].partition(b":")[2] == body for _, _, text in got)
    labels = {text[: -len(body)] for _, _, text in got}
    assert len(labels) == depth
    assert b"19:99:" in labels
    again.finish(*(message_id for message_id, _, _ in got))
    wait_until(
        lambda: len(list(node.data_path.glob("topics/*/*.log"))) == 1,
        "segments that every channel has passed are removed",
    )


def test_a_topic_created_again_survives_damage_to_the_record_of_its_deletion(node: Any) -> None:
    """The journal has two topics of one name; the broker starts, and the later topic is complete."""
    publisher = node.connect()
    publisher.pub("t", b"old")
    node.post("/channel/create", topic="t", channel="c")
    node.post("/topic/delete", topic="t")
    publisher.mpub("t", [b"new", b"newer"])
    node.post("/channel/create", topic="t", channel="c")
    node.end("SIGKILL")
    [journal] = (path for path in node.data_path.glob("journal.*") if path.read_bytes().strip(b"\0"))
    data = bytearray(journal.read_bytes())
    deleted = records.topic_deleted(0)
    data[data.index(len(deleted).to_bytes(4)) + 8] ^= 1
    journal.write_bytes(data)
    node.broker.launch()
    assert node.channel("t", "c")["depth"] == 2
    consumer = node.connect()
    consumer.sub("t", "c", 10)
    assert [consumer.message()[2] for _ in range(2)] == [b"new", b"newer"]


def test_a_topic_created_again_survives_damage_to_all_records_of_that(node: Any) -> None:
    """With its deletion and its creation lost, messages acknowledged since are still delivered."""
    publisher = node.connect()
    publisher.pub("t", b"old")
    node.post("/topic/delete", topic="t")
    publisher.mpub("t", [b"new", b"newer"])
    node.end("SIGKILL")
    [journal] = (path for path in node.data_path.glob("journal.*") if path.read_bytes().strip(b"\0"))
    data = bytearray(journal.read_bytes())
    for record in (records.topic_deleted(0), records.topic_created(1, 0, "t")):
        data[data.index(record) + len(record) - 1] ^= 1
    journal.write_bytes(data)
    node.broker.launch()
    node.post("/channel/create", topic="t", channel="c")
    consumer = node.connect()
    consumer.sub("t", "c", 10)
    assert [consumer.message()[2] for _ in range(2)] == [b"new", b"newer"]


def test_two_brokers_do_not_share_a_data_path(node: Any, start: Start) -> None:
    """The second reports it and exits; the first goes on; and a killed one leaves no lock."""
    with pytest.raises(Exception, match="failed to lock data-path"):
        start(data_path=node.data_path)
    node.connect().pub("t", b"x")
    node.end("SIGKILL")
    again = start(data_path=node.data_path)
    assert again.topics()["t"]["depth"] == 1


def test_a_broker_survives_being_killed_while_it_starts(node: Any, start: Start) -> None:
    """At whatever point of its start."""
    peer = node.connect()
    peer.sub("t", "c")
    peer.mpub("t", [b"%d" % i for i in range(100)])
    peer.dpub("t", 60_000, b"later")
    node.end("SIGKILL")
    for _ in range(5):
        start(data_path=node.data_path).broker.kill()
    last = start(data_path=node.data_path)
    assert (last.channel("t", "c")["depth"], last.channel("t", "c")["deferred_count"]) == (100, 1)
