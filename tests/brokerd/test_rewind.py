"""A channel is rewound to an earlier time, and redelivers the messages accepted since then."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

import brokerd.journal.journal as journal_module
from brokerd.rewind import rewind as rewind_channel
from brokerd.topic import Topic
from nsqwire.errors import PublishFailed
from tests.brokerd.clockwork import Delivery, Node
from tests.brokerd.conftest import create_channel, publish
from tests.harness.waiting import wait_until

Connect = Callable[..., Any]
Start = Callable[..., Any]

ERROR = 1
HOUR = timedelta(hours=1)


def rewind(broker: Any, since: str, *, channel: str = "c") -> dict[str, Any]:
    """Rewind the channel. GET, directly before, has the same answer."""
    path = f"/channel/rewind?{urlencode({'topic': 't', 'channel': channel, 'since': since})}"
    before = broker.request("GET", path)
    answer = broker.request("POST", path)
    assert answer.status == 200, answer.text
    assert (before.status, before.text) == (200, answer.text)
    return dict(json.loads(answer.text))


def channel_of(broker: Any) -> dict[str, Any]:
    return broker.stats(topic="t")["topics"][0]["channels"][0]


def segments_of(broker: Any) -> int:
    return len(list(broker.data_path.rglob("*.log")))


def consumer_of(connect: Connect, broker: Any, *, ready_count: int = 100) -> Any:
    consumer = connect(broker)
    consumer.ok(b"SUB t c\n")
    consumer.send(b"RDY %d\n" % ready_count)
    return consumer


def take(consumer: Any, count: int) -> list[bytes]:
    """Receive and finish ``count`` messages; return their bodies."""
    taken = [consumer.message() for _ in range(count)]
    consumer.send(b"".join(b"FIN " + message_id + b"\n" for message_id, _, _ in taken))
    return [body for _, _, body in taken]


@pytest.fixture
def channel(start_broker: Start) -> Any:
    """A broker that keeps finished messages for an hour, with a topic ``t`` and its channel ``c``."""
    broker = start_broker("--retention=1h")
    create_channel(broker)
    return broker


def test_finished_messages_are_delivered_again(channel: Any, connect: Connect) -> None:
    """They are delivered in the same order as first attempts, before messages that were not delivered yet."""
    before = time.time_ns()
    publish(channel, b"1", b"2", b"3")
    consumer = consumer_of(connect, channel)
    assert take(consumer, 3) == [b"1", b"2", b"3"]
    wait_until(lambda: channel_of(channel)["in_flight_count"] == 0)
    consumer.send(b"RDY 0\n")
    assert consumer.is_silent()
    publish(channel, b"4")
    done = rewind(channel, "10m")
    assert (done["messages"], done["complete"]) == (3, True)
    assert before <= done["oldest_timestamp"] <= time.time_ns()
    assert channel_of(channel)["depth"] == 4
    consumer.send(b"RDY 10\n")
    again = [consumer.message() for _ in range(4)]
    assert [body for _, _, body in again] == [b"1", b"2", b"3", b"4"]
    assert {attempts for _, attempts, _ in again} == {1}


def test_what_a_rewind_would_redeliver_is_counted_without_rewinding(channel: Any, connect: Connect) -> None:
    """GET counts, as often as it is sent, and neither the depth nor messages in flight change."""
    publish(channel, b"1", b"2", b"3")
    consumer = consumer_of(connect, channel, ready_count=2)
    message_id, _, _ = consumer.message()
    consumer.message()
    for _ in range(2):
        answer = channel.request("GET", "/channel/rewind?topic=t&channel=c&since=10m")
        assert json.loads(answer.text)["messages"] == 2
    assert (channel_of(channel)["depth"], channel_of(channel)["in_flight_count"]) == (1, 2)
    consumer.send(b"RDY 0\n")
    consumer.send(b"FIN " + message_id + b"\n")
    wait_until(lambda: channel_of(channel)["in_flight_count"] == 1)
    refused = channel.request("GET", "/channel/rewind?topic=t&channel=c&since=soon")
    assert (refused.status, json.loads(refused.text)) == (400, {"message": "INVALID_ARG_SINCE"})


def test_only_messages_since_the_given_time_are_delivered_again(channel: Any, connect: Connect) -> None:
    """The time may have any zone; other channels are not changed."""
    assert channel.request("POST", "/channel/create?topic=t&channel=other").status == 200
    publish(channel, b"before")
    since = datetime.now(UTC)
    publish(channel, b"after")
    consumer = consumer_of(connect, channel)
    assert take(consumer, 2) == [b"before", b"after"]
    wait_until(lambda: channel_of(channel)["in_flight_count"] == 0)
    assert rewind(channel, since.isoformat())["messages"] == 1
    assert take(consumer, 1) == [b"after"]
    assert rewind(channel, datetime.now(UTC).isoformat()) == {"messages": 0, "oldest_timestamp": None, "complete": True}
    depths = {each["channel_name"]: each["depth"] for each in channel.stats(topic="t")["topics"][0]["channels"]}
    assert depths == {"c": 0, "other": 2}


def test_messages_in_flight_are_redelivered_and_their_old_answers_are_refused(channel: Any, connect: Connect) -> None:
    """Its consumer receives it once more; a FIN from before the rewind is refused."""
    publish(channel, b"x")
    slow = consumer_of(connect, channel, ready_count=1)
    message_id, _, _ = slow.message()
    slow.send(b"RDY 0\n")
    assert slow.is_silent()
    assert rewind(channel, "1h")["messages"] == 1
    assert channel_of(channel)["in_flight_count"] == 0
    kind, text = slow.command(b"FIN " + message_id + b"\n")
    assert (kind, text) == (ERROR, b"E_FIN_FAILED FIN " + message_id + b" failed ID not in flight")
    assert take(consumer_of(connect, channel), 1) == [b"x"]


def test_deferred_messages_are_redelivered_once_their_time_was(channel: Any, connect: Connect) -> None:
    """A finished one is delivered at once; one that is not due yet is delivered once, when it is due."""
    publish(channel, b"soon", defer="50")
    publish(channel, b"late", defer="3000000")
    consumer = consumer_of(connect, channel)
    assert take(consumer, 1) == [b"soon"]
    wait_until(lambda: channel_of(channel)["in_flight_count"] == 0)
    assert rewind(channel, "1h")["messages"] == 1
    assert take(consumer, 1) == [b"soon"]
    wait_until(lambda: channel_of(channel)["in_flight_count"] == 0)
    assert (channel_of(channel)["depth"], channel_of(channel)["deferred_count"]) == (0, 1)


def test_a_deferred_message_finished_ahead_of_the_backlog_is_redelivered(
    channel: Any, start_broker: Start, connect: Connect
) -> None:
    """It was delivered before older messages of the backlog; a rewind redelivers it, also after a kill."""
    publish(channel, b"1", b"2")
    publish(channel, b"early", defer="1")
    wait_until(lambda: channel_of(channel)["deferred_count"] == 0)
    consumer = consumer_of(connect, channel, ready_count=1)  # requeued messages are delivered first
    assert take(consumer, 1) == [b"early"]
    consumer.send(b"RDY 0\n")
    wait_until(lambda: channel_of(channel)["clients"][0]["ready_count"] == 0)
    consumer.socket.close()
    wait_until(lambda: (channel_of(channel)["depth"], channel_of(channel)["client_count"]) == (2, 0))
    done = rewind(channel, "1h")
    assert (done["complete"], channel_of(channel)["depth"]) == (True, 3)
    channel.kill()
    again = start_broker("--retention=1h", data_path=channel.data_path)
    assert sorted(take(consumer_of(connect, again), 3)) == [b"1", b"2", b"early"]


def test_a_rewound_channel_stays_so_after_a_kill(channel: Any, start_broker: Start, connect: Connect) -> None:
    """The rewind is answered when it is recorded."""
    publish(channel, b"1", b"2")
    take(consumer_of(connect, channel), 2)
    wait_until(lambda: channel_of(channel)["in_flight_count"] == 0)
    rewind(channel, "1h")
    channel.kill()
    again = start_broker("--retention=1h", data_path=channel.data_path)
    assert take(consumer_of(connect, again), 2) == [b"1", b"2"]


LARGE = [b"%03d" % number + bytes(100_000) for number in range(30)]
"""In several segments."""


@pytest.mark.parametrize(
    ("flags", "is_complete"),
    [(["--retention=1h"], True), ([], False), (["--retention=1h", "--retention-bytes=1500000"], False)],
)
def test_as_far_back_as_the_log_is_kept(
    flags: list[str], is_complete: bool, start_broker: Start, connect: Connect
) -> None:
    """By age and size; without either, some of the newest. The answer says that older ones are gone."""
    broker = start_broker(*flags)
    assert broker.request("POST", "/topic/create?topic=t").status == 200
    assert broker.request("POST", "/channel/create?topic=t&channel=c").status == 200
    consumer = consumer_of(connect, broker)
    for body in LARGE:
        publish(broker, body)
        assert take(consumer, 1) == [body]
    wait_until(lambda: channel_of(broker)["in_flight_count"] == 0)
    if len(flags) == 2:
        wait_until(lambda: segments_of(broker) == 1)  # retention is checked now and then; the newest messages stay
    assert rewind(broker, "1h")["complete"] is is_complete
    assert (take(consumer, 1) == LARGE[:1]) is is_complete


@pytest.mark.parametrize(
    ("query", "status", "message"),
    [
        ("topic=t&channel=c", 400, "MISSING_ARG_SINCE"),
        ("topic=t&channel=c&since=", 400, "INVALID_ARG_SINCE"),
        ("topic=t&channel=c&since=yesterday", 400, "INVALID_ARG_SINCE"),
        ("topic=t&channel=c&since=-10m", 400, "INVALID_ARG_SINCE"),
        ("topic=t&channel=c&since=2026-11-22T06:30:00", 400, "INVALID_ARG_SINCE"),
        ("topic=t&channel=c&since=9999-12-31T23:59:59Z", 400, "INVALID_ARG_SINCE"),
        ("topic=t&since=1h", 400, "MISSING_ARG_CHANNEL"),
        ("topic=t&channel=none&since=1h", 404, "CHANNEL_NOT_FOUND"),
        ("topic=none&channel=c&since=1h", 404, "TOPIC_NOT_FOUND"),
    ],
)
def test_an_invalid_request_is_refused_and_changes_nothing(query: str, status: int, message: str, channel: Any) -> None:
    """A time that is missing, invalid, without a zone or in the future; a channel that does not exist."""
    publish(channel, b"x")
    answer = channel.request("POST", f"/channel/rewind?{query}")
    assert (answer.status, json.loads(answer.text)) == (status, {"message": message})
    assert channel_of(channel)["depth"] == 1


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    """A broker whose clock the test controls, with an hour's retention; ``t`` has a channel ``c``."""
    made = Node(tmp_path, patch=monkeypatch, retention=HOUR)
    made.broker.topic("t").channel("c")
    yield made
    made.broker.close()


def refusal(topic: Topic, body: bytes) -> PublishFailed | None:
    """Publish; return the error, if any."""
    try:
        topic.publish([body])
    except PublishFailed as error:
        return error
    return None


def fill(node: Node, messages: int) -> None:
    """Publish and finish ``count`` messages of 100 kB each."""
    topic = node.broker.topic("t")
    channel = topic.channel("c")
    for _ in range(messages):
        topic.publish([bytes(100_000)])
    got: list[bytes] = []
    client = node.subscribe("t", "c", messages, lambda each: got.append(each.message_id))
    node.pass_until(node.now)
    lines = b"".join(b"FIN " + message_id + b"\n" for message_id in got)
    assert not channel.finish(client, memoryview(lines), len(got), node.wall_ns())
    channel.unsubscribe(client)


def test_retained_messages_are_removed_when_their_time_is_over(node: Node, tmp_path: Path) -> None:
    """This requires neither a publish nor a consumer; an empty segment remains, as without retention."""
    fill(node, 30)
    topic = node.broker.topic("t")
    kept = sorted(tmp_path.rglob("*.log"))
    assert len(kept) > 2
    node.pass_until(node.now + HOUR.total_seconds() - 10)
    topic.unmap_if_idle()
    assert sorted(tmp_path.rglob("*.log")) == kept
    node.pass_until(node.now + 20)
    topic.unmap_if_idle()
    assert [path.name for path in tmp_path.rglob("*.log")] == [f"{topic.log.next_seq:020d}.log"]


def test_a_full_disk_removes_retained_messages_first(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest messages are removed first, and no more than necessary; then publishes are refused."""
    fill(node, 30)
    topic = node.broker.topic("t")
    allocate = os.posix_fallocate
    room = 3_000_000 + sum(path.stat().st_size for path in tmp_path.rglob("*.log"))

    def full(fd: int, offset: int, size: int) -> None:
        """A disk with room for 3 MB beside the present segments."""
        if size > 1_000_000 and sum(path.stat().st_size for path in tmp_path.rglob("*.log")) + size > room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        allocate(fd, offset, size)

    monkeypatch.setattr(os, "posix_fallocate", full)
    while topic.log.first_seq == 0:
        topic.publish([bytes(1_000_000)])
    assert node.broker.storage.disk_error is None
    assert 0 < topic.log.first_seq < 30
    refusals = [str(error) for _ in range(50) if (error := refusal(topic, bytes(1_000_000))) is not None]
    assert refusals
    assert {"No space left on device" in each for each in refusals} == {True}
    assert node.broker.storage.disk_error is not None
    assert topic.log.first_seq <= 30
    assert topic.channel("c").depth == topic.message_count - 30


@pytest.mark.parametrize("journal_bytes", [4096, 16 * 1024 * 1024])
def test_messages_in_flight_at_a_checkpoint_come_once_after_a_rewind_and_a_kill(
    journal_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are delivered as first attempts, and none of them stays in flight or is redelivered after its FIN.

    With small journals a checkpoint falls due in the middle of the rewind, and of a consumer's leaving.
    """
    monkeypatch.setattr(journal_module, "JOURNAL_BYTES", journal_bytes)
    node = Node(tmp_path, patch=monkeypatch, retention=HOUR)
    topic = node.broker.topic("t")
    channel = topic.channel("c")
    topic.publish([b"%d" % number for number in range(100)])
    got: list[Delivery] = []
    first = node.subscribe("t", "c", 60, got.append)
    node.pass_until(node.now)
    for each in got[::2]:
        channel.requeue(first, memoryview(b"REQ %b 0\n" % each.message_id), 1, 0, node.now)
    node.pass_until(node.now)
    node.broker.storage.checkpoint()
    channel.rewind(20)
    node.pass_until(node.now)
    channel.unsubscribe(first)
    node.kill()
    node.open()
    channel = node.broker.topic("t").channel("c")
    assert (channel.depth, channel.in_flight_count, channel.deferred_count) == (100, 0, 0)
    got.clear()
    client = node.subscribe("t", "c", 1000, got.append)
    node.pass_until(node.now)
    assert sorted(int(each.body) for each in got) == list(range(100))
    lines = b"".join(b"FIN %b\n" % each.message_id for each in got)
    assert not channel.finish(client, memoryview(lines), len(got), node.wall_ns())
    node.kill()
    node.open()
    assert node.broker.topic("t").channel("c").depth == 0


def test_messages_finished_after_a_rewind_stay_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All messages were delivered, rewound, and delivered again at once: a kill after the FINs redelivers none."""
    node = Node(tmp_path, patch=monkeypatch, retention=HOUR)
    topic = node.broker.topic("t")
    channel = topic.channel("c")
    topic.publish([b"%d" % number for number in range(10)])
    for is_rewound in (True, False):
        got: list[Delivery] = []
        client = node.subscribe("t", "c", 100, got.append)
        node.pass_until(node.now)
        lines = b"".join(b"FIN %b\n" % each.message_id for each in got)
        assert not channel.finish(client, memoryview(lines), 10, node.wall_ns())
        channel.unsubscribe(client)
        if is_rewound:
            channel.rewind(0)
    node.kill()
    node.open()
    assert node.broker.topic("t").channel("c").depth == 0


def test_a_rewind_to_before_a_removed_message_is_not_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All were finished and removed: none is redelivered, and the answer says that messages are missing."""
    node = Node(tmp_path)
    monkeypatch.setattr(time, "time_ns", node.wall_ns)
    topic = node.broker.topic("t")
    channel = topic.channel("c")
    before = node.wall_ns()
    topic.publish([b"x" * 50_000] * 8)
    got: list[Delivery] = []
    client = node.subscribe("t", "c", 100, got.append)
    node.pass_until(node.now)
    assert not channel.finish(
        client, memoryview(b"".join(b"FIN %b\n" % each.message_id for each in got)), 8, node.wall_ns()
    )
    channel.unsubscribe(client)
    for _ in range(2):
        topic.unmap_if_idle()
    assert rewind_channel(channel, before) == (0, None, False)
