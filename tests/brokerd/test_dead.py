"""Messages whose deliveries fail are delivered again later, and die in the end; operators decide about dead ones."""

from __future__ import annotations

import json
import re
import time
from base64 import b64decode
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

import brokerd.log.log as log_module
from brokerd.settings import BrokerSettings, InvalidSettings
from tests.brokerd.clockwork import Delivery, Node
from tests.brokerd.conftest import create_channel, publish
from tests.harness.v2 import sized
from tests.harness.waiting import wait_until

Connect = Callable[..., Any]
Start = Callable[..., Any]

ERROR = 1


def call(broker: Any, method: str, path: str, ids: list[str] | None = None, **params: object) -> dict[str, Any]:
    query = urlencode({"topic": "t", "channel": "c"} | params)
    answer = broker.request(method, f"/channel/{path}?{query}", "\n".join(ids or []).encode())
    assert answer.status == 200, answer.text
    return dict(json.loads(answer.text))


def channel_of(broker: Any, name: str = "c") -> dict[str, Any]:
    channels = broker.stats(topic="t", include_histograms="true")["topics"][0]["channels"]
    return next(each for each in channels if each["channel_name"] == name)


def counts(broker: Any) -> tuple[int, int, int, int]:
    """depth, in flight, deferred, dead."""
    found = channel_of(broker)
    return found["depth"], found["in_flight_count"], found["deferred_count"], found["dead_count"]


def dead_of(broker: Any) -> dict[bytes, dict[str, Any]]:
    """The dead messages by body, as ``peek`` returns them."""
    return {b64decode(each["body"]): each for each in call(broker, "GET", "peek", state="dead")["messages"]}


def consumer_of(
    connect: Connect, broker: Any, *, ready_count: int = 100, channel: bytes = b"c", **terms: object
) -> Any:
    consumer = connect(broker)
    if terms:
        consumer.command(b"IDENTIFY\n" + sized(json.dumps(terms).encode()))
    consumer.ok(b"SUB t %b\n" % channel)
    consumer.send(b"RDY %d\n" % ready_count)
    return consumer


def restart(broker: Any, *, killed: bool) -> None:
    broker.kill() if killed else broker.stop()
    broker.start().wait_until_ready()


def requeue(consumer: Any, message_id: bytes, delay_ms: int = 0) -> None:
    consumer.send(b"REQ %b %d\n" % (message_id, delay_ms))


@pytest.fixture
def broker(start_broker: Start) -> Any:
    """A broker whose messages die at their third failed delivery, with a topic ``t`` and its channel ``c``."""
    started = start_broker("--max-attempts=3", "--retention=1h")
    create_channel(started)
    return started


def kill_by_requeues(broker: Any, connect: Connect, *bodies: bytes) -> None:
    publish(broker, *bodies)
    consumer = consumer_of(connect, broker)
    for _ in range(3 * len(bodies)):
        requeue(consumer, consumer.message()[0])
    wait_until(lambda: counts(broker)[3] == len(bodies), "the messages are dead")
    consumer.send(b"CLS\n")
    consumer.socket.close()
    wait_until(lambda: channel_of(broker)["client_count"] == 0, "the consumer left")


def test_a_message_dies_at_its_last_failed_delivery(broker: Any, connect: Connect) -> None:
    """The others go on; it has its reason, times, failures, last client and its whole body."""
    before = time.time_ns()
    publish(broker, b"poison")
    consumer = consumer_of(connect, broker, client_id="worker-7")
    for attempts in (1, 2, 3):
        message_id, delivered, body = consumer.message()
        assert (delivered, body) == (attempts, b"poison")
        requeue(consumer, message_id, 0 if attempts < 3 else 60_000)
    publish(broker, b"fine")
    assert consumer.message()[2] == b"fine"
    assert counts(broker) == (0, 1, 0, 1)
    found = dead_of(broker)[b"poison"]
    assert (found["id"], found["state"], found["attempts"], found["client"]) == (message_id.decode(), "dead", 3, None)
    death = found["death"]
    assert (death["reason"], death["failures"], death["client_id"]) == ("attempts", 3, "worker-7")
    assert before < death["first_failure"] <= death["died"] < time.time_ns()
    stats = channel_of(broker)
    assert (stats["died_count"], stats["dead_by_reason"], stats["requeue_count"]) == (1, {"attempts": 1}, 3)
    text = broker.request("GET", "/metrics").text
    assert 'nsq_channel_dead{channel="c",topic="t",reason="attempts"} 1' in text
    assert 'nsq_channel_died_messages_total{channel="c",topic="t",reason="attempts"} 1' in text
    consumer.send(b"FIN " + message_id + b"\n")
    assert consumer.frame() == (ERROR, b"E_FIN_FAILED FIN %b failed ID not in flight" % message_id)


def test_timeouts_count_as_failures(broker: Any, connect: Connect) -> None:
    """At first and at later deliveries."""
    publish(broker, b"a", b"b")
    consumer = consumer_of(connect, broker, msg_timeout=1000)
    got = [consumer.message()[1:] for _ in range(6)]
    assert sorted(got) == [(1, b"a"), (1, b"b"), (2, b"a"), (2, b"b"), (3, b"a"), (3, b"b")]
    wait_until(lambda: counts(broker) == (0, 0, 0, 2), "both are dead")
    assert {each["death"]["failures"] for each in dead_of(broker).values()} == {3}


def test_a_lost_connection_counts_and_a_closed_one_does_not(broker: Any, connect: Connect) -> None:
    """A consumer that sent CLS gives its messages back."""
    publish(broker, b"a")
    for _ in range(4):
        consumer = consumer_of(connect, broker)
        consumer.message()
        consumer.send(b"CLS\n")
        assert consumer.frame()[1] == b"CLOSE_WAIT"
        consumer.socket.close()
        wait_until(lambda: counts(broker) == (1, 0, 0, 0), "it waits again")
    for _ in range(3):
        consumer = consumer_of(connect, broker)
        consumer.message()
        consumer.socket.close()
        wait_until(lambda: channel_of(broker)["client_count"] == 0, "the consumer left")
    assert counts(broker) == (0, 0, 0, 1)
    assert dead_of(broker)[b"a"]["attempts"] == 7


@pytest.mark.parametrize("killed", [False, True])
def test_a_restart_keeps_failures_and_dead_messages(broker: Any, connect: Connect, killed: bool) -> None:
    """A restart is no failure: a message that was in flight needs as many failures as before."""
    kill_by_requeues(broker, connect, b"dead")
    publish(broker, b"a")
    consumer = consumer_of(connect, broker)
    for _ in range(2):
        requeue(consumer, consumer.message()[0])
    assert consumer.message()[1:] == (3, b"a")
    before = dead_of(broker)
    restart(broker, killed=killed)
    assert dead_of(broker) == before
    assert counts(broker) == (1, 0, 0, 1)
    consumer = consumer_of(connect, broker)
    message_id, attempts, _ = consumer.message()
    assert attempts == 4
    requeue(consumer, message_id)
    wait_until(lambda: counts(broker) == (0, 0, 0, 2), "the third failure is its last")
    assert dead_of(broker)[b"a"]["death"]["failures"] == 3


def test_dead_messages_are_requeued_as_new_ones(broker: Any, connect: Connect) -> None:
    """By id, or all; their attempts begin anew, and so do their failures."""
    kill_by_requeues(broker, connect, b"a", b"b", b"c")
    ids = {body: each["id"] for body, each in dead_of(broker).items()}
    assert call(broker, "POST", "requeue", [ids[b"b"], "nonsense"]) == {"requeued": 1, "not_found": ["nonsense"]}
    assert counts(broker) == (1, 0, 0, 2)
    assert call(broker, "POST", "requeue", state="dead") == {"requeued": 2}
    assert counts(broker) == (3, 0, 0, 0)
    consumer = consumer_of(connect, broker)
    got = [consumer.message() for _ in range(3)]
    assert [each[1:] for each in got] == [(1, b"b"), (1, b"a"), (1, b"c")]
    requeue(consumer, got[0][0])
    assert consumer.message()[1:] == (2, b"b")


def test_dead_messages_are_chosen_by_reason_and_time(broker: Any, connect: Connect) -> None:
    """``reason`` and ``since`` (of the death) of a requeue; wrong values are refused by name."""
    kill_by_requeues(broker, connect, b"a")
    publish(broker, b"b")
    ids = {b64decode(each["body"]): each["id"] for each in call(broker, "GET", "peek")["messages"]}
    assert call(broker, "POST", "bury", [ids[b"b"]]) == {"buried": 1, "not_found": []}
    assert dead_of(broker)[b"b"]["death"] | {"first_failure": 0, "died": 0} == {
        "reason": "operator", "failures": 0, "first_failure": 0, "died": 0, "client_id": "",
    }  # fmt: skip
    assert call(broker, "POST", "requeue", state="dead", since="0s") == {"requeued": 0}
    assert call(broker, "POST", "requeue", state="dead", reason="operator", since="1h") == {"requeued": 1}
    assert counts(broker) == (1, 0, 0, 1)
    for params, message in (
        ({"state": "lost"}, "INVALID_ARG_STATE"),
        ({"state": "dead", "reason": "boredom"}, "INVALID_ARG_REASON"),
        ({"state": "dead", "since": "soon"}, "INVALID_ARG_SINCE"),
        ({"state": "dead", "rate": "-1"}, "INVALID_ARG_RATE"),
        ({"state": "dead", "id": ids[b"b"]}, "INVALID_ARG_ID"),
        ({}, "MISSING_ARG_ID"),
    ):
        query = urlencode({"topic": "t", "channel": "c"} | params)
        answer = broker.request("POST", f"/channel/requeue?{query}")
        assert (answer.status, json.loads(answer.text)) == (400, {"message": message})
    assert counts(broker) == (1, 0, 0, 1)


def test_a_requeue_of_dead_messages_has_a_rate(broker: Any, connect: Connect) -> None:
    """They are deferred: the first is ready at once, the next ones at even distances; a restart does not change it."""
    kill_by_requeues(broker, connect, *(b"%d" % number for number in range(5)))
    assert call(broker, "POST", "requeue", state="dead", rate=1) == {"requeued": 5}
    wait_until(lambda: counts(broker)[0] == 1, "the first is ready")
    assert counts(broker)[2:] == (4, 0)
    dues = [each["due"] for each in call(broker, "GET", "peek", state="deferred")["messages"]]
    gaps = [later - earlier for earlier, later in pairwise(dues)]
    assert all(abs(gap - 1e9) < 1e7 for gap in gaps)
    restart(broker, killed=True)
    again = [each["due"] for each in call(broker, "GET", "peek", state="deferred")["messages"]][-3:]
    assert all(abs(now - before) < 1e8 for now, before in zip(again, dues[-3:], strict=True))


def test_dead_messages_are_removed(broker: Any, connect: Connect) -> None:
    """By id, or all; emptying the channel keeps them, because they are no backlog."""
    kill_by_requeues(broker, connect, b"a", b"b", b"c")
    publish(broker, b"new")
    query = urlencode({"topic": "t", "channel": "c"})
    assert broker.request("POST", f"/channel/empty?{query}").status == 200
    assert counts(broker) == (0, 0, 0, 3)
    ids = {body: each["id"] for body, each in dead_of(broker).items()}
    assert call(broker, "POST", "finish", [ids[b"a"]]) == {"finished": 1, "not_found": []}
    assert dead_of(broker).keys() == {b"b", b"c"}
    assert call(broker, "POST", "empty", state="dead", reason="operator") == {"finished": 0}
    assert call(broker, "POST", "empty", state="dead") == {"finished": 2}
    assert (counts(broker), channel_of(broker)["emptied_count"]) == ((0, 0, 0, 0), 4)
    restart(broker, killed=True)
    assert counts(broker) == (0, 0, 0, 0)


@pytest.mark.parametrize("killed", [False, True])
def test_a_rewind_returns_dead_messages(broker: Any, connect: Connect, killed: bool) -> None:
    """They come again as new ones, once."""
    kill_by_requeues(broker, connect, b"a", b"b")
    publish(broker, b"c")
    assert call(broker, "POST", "rewind", since="1h")["messages"] == 2
    if killed:
        restart(broker, killed=True)
    assert counts(broker) == (3, 0, 0, 0)
    consumer = consumer_of(connect, broker)
    assert sorted(consumer.message()[1:] for _ in range(3)) == [(1, b"a"), (1, b"b"), (1, b"c")]


def test_dead_messages_are_found_by_scan_and_id(broker: Any, connect: Connect) -> None:
    """``scan`` has them with ``state=dead`` only; their bodies can be downloaded."""
    kill_by_requeues(broker, connect, b"a", b"b")
    publish(broker, b"c")
    assert [b64decode(each["body"]) for each in call(broker, "GET", "scan")["messages"]] == [b"c"]
    page = call(broker, "GET", "scan", state="dead", limit=1)
    assert (b64decode(page["messages"][0]["body"]), page["total"]) == (b"a", 2)
    rest = call(broker, "GET", "scan", state="dead", **{"from": page["next"]})
    assert ([b64decode(each["body"]) for each in rest["messages"]], rest["next"]) == ([b"b"], None)
    message_id = page["messages"][0]["id"]
    assert call(broker, "GET", "message", id=message_id)["state"] == "dead"
    query = urlencode({"topic": "t", "channel": "c", "id": message_id})
    assert broker.request("GET", f"/channel/message/body?{query}").text == "a"


def test_a_failed_message_is_delivered_later(start_broker: Start, connect: Connect) -> None:
    """After the least delay times its failures, at most the greatest; a client's own delay wins."""
    broker = start_broker("--retry-delay=1000s..2500s")
    create_channel(broker)
    publish(broker, b"a")
    consumer = consumer_of(connect, broker)
    delays_s = []
    for delay_ms in (0, 0, 0, 600_000):
        message_id, _, _ = consumer.message()
        requeue(consumer, message_id, delay_ms)
        wait_until(lambda: counts(broker)[2] == 1, "it is deferred")
        (message,) = call(broker, "GET", "peek", state="deferred")["messages"]
        delays_s.append(round((message["due"] - time.time_ns()) / 1e9, -2))
        call(broker, "POST", "requeue", [message["id"]])
    assert delays_s == [1000, 2000, 2500, 600]
    assert consumer.message()[1] == 5


def test_a_timed_out_message_is_delivered_later(start_broker: Start, connect: Connect) -> None:
    """As a requeued one without a delay of its own."""
    broker = start_broker("--retry-delay=1000s..2500s")
    create_channel(broker)
    publish(broker, b"a")
    consumer_of(connect, broker, msg_timeout=1000).message()
    wait_until(lambda: counts(broker) == (0, 0, 1, 0), "it is deferred")


def test_any_client_id_is_kept(broker: Any, connect: Connect) -> None:
    """Long ones are cut, and what is not UTF-8 is replaced; a restart reads them."""
    ids = ["\ud800x", "é" * 200]
    for number, client_id in enumerate(ids):
        publish(broker, b"%d" % number)
        consumer = consumer_of(connect, broker, client_id=client_id)
        for _ in range(3):
            requeue(consumer, consumer.message()[0])
        wait_until(lambda: counts(broker)[3] == number + 1, "it is dead")  # noqa: B023
        consumer.socket.close()
    restart(broker, killed=True)
    found = {body: each["death"]["client_id"] for body, each in dead_of(broker).items()}
    assert found[b"1"] == "é" * 127
    assert found[b"0"] == "\ufffdx"


def test_without_a_policy_nothing_dies(start_broker: Start, connect: Connect) -> None:
    """As nsqd: a message is delivered for ever, at once."""
    broker = start_broker()
    create_channel(broker)
    publish(broker, b"a")
    consumer = consumer_of(connect, broker)
    for attempts in range(1, 30):
        message_id, delivered, _ = consumer.message()
        assert delivered == attempts
        requeue(consumer, message_id)
    assert counts(broker)[3] == 0


def test_dead_messages_of_ephemeral_channels(broker: Any, connect: Connect) -> None:
    """They die too, and go with the channel."""
    consumer = consumer_of(connect, broker, channel=b"e#ephemeral")
    publish(broker, b"a")
    for _ in range(3):
        requeue(consumer, consumer.message()[0])
    wait_until(lambda: channel_of(broker, "e#ephemeral")["dead_count"] == 1, "it is dead")
    consumer.socket.close()
    wait_until(lambda: len(broker.stats(topic="t")["topics"][0]["channels"]) == 1, "the channel is gone")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("5s", "'5s' is not MIN..MAX, such as 1s..5m"),
        ("1..5m", "the duration '1' needs a unit"),
        ("5m..1s", "MIN must be above 0 and at most MAX"),
        ("0s..1s", "MIN must be above 0 and at most MAX"),
    ],
)
def test_a_wrong_retry_delay_is_refused(text: str, problem: str) -> None:
    """With the flag's name and the reason."""
    with pytest.raises(InvalidSettings, match=re.escape("--retry-delay: ") + ".*" + re.escape(problem)):
        BrokerSettings(retry_delay=text).check()


def test_dead_messages_of_ephemeral_topics_survive_the_removal_of_old_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their bodies are copied, whether they died before or after the segment became old."""
    monkeypatch.setattr(log_module, "FIRST_SEGMENT_BYTES", 4096)
    monkeypatch.setattr(log_module, "LAST_SEGMENT_BYTES", 4096)
    node = Node(tmp_path, max_attempts=2)
    topic = node.broker.topic("t#ephemeral")
    channel = topic.channel("c")
    got: list[Delivery] = []
    client = node.subscribe("t#ephemeral", "c", 100, got.append)

    def answer(line: bytes, body: bytes) -> None:
        message_id = next(each.message_id for each in reversed(got) if each.body == body)
        act = channel.requeue if line.startswith(b"REQ") else channel.finish
        arguments = (0.0, node.now) if line.startswith(b"REQ") else (node.wall_ns(),)
        assert not act(client, memoryview(line % message_id), 1, *arguments)
        node.pass_until(node.now)

    topic.publish([b"early", b"late"])
    node.pass_until(node.now)
    for body in (b"early", b"early", b"late"):
        answer(b"REQ %b 0\n", body)
    for number in range(50):
        topic.publish([b"%d" % number + b"x" * 500])
        node.pass_until(node.now)
        answer(b"FIN %b\n", b"%d" % number + b"x" * 500)
    answer(b"REQ %b 0\n", b"late")
    assert topic.log.first_seq > 1, "old segments are gone"
    assert [bytes(channel.frame_of(each.seq) or b"")[34:] for each in channel.dead] == [b"early", b"late"]
    got.clear()
    channel.revive([each.seq for each in channel.dead], [0.0, 0.0])
    node.pass_until(node.now)
    assert [(each.attempts, each.body) for each in got] == [(1, b"early"), (1, b"late")]
