"""A publisher gets the ids of its messages, and cancels or defers them by these ids."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.brokerd.conftest import create_channel, publish
from tests.brokerd.test_message_actions import channel_of, consumer_of, counts, ids_of
from tests.harness.v2 import RESPONSE, sized
from tests.harness.waiting import wait_until

Connect = Callable[..., Any]
Start = Callable[..., Any]

HOUR_MS = "3600000"


@pytest.fixture
def broker(start_broker: Start) -> Any:
    """A broker with a topic ``t`` and its channel ``c``."""
    started = start_broker("--retention=1h")
    create_channel(started)
    return started


def published(broker: Any, body: bytes, *, path: str = "/pub", topic: str = "t", **query: str) -> list[str]:
    """Publish with ``ids=true``, and return the ids."""
    found = json.loads(broker.post(path, body, topic=topic, ids="true", **query))
    assert found.keys() == {"ids"}
    return list(found["ids"])


def act(broker: Any, verb: str, ids: list[str], **query: str) -> dict[str, Any]:
    """POST the ids, one a line."""
    answer = broker.request("POST", f"/message/{verb}?{urlencode({'topic': 't', **query})}", "\n".join(ids).encode())
    assert answer.status == 200, answer.text
    return dict(json.loads(answer.text))


def done(message_id: str, topic: str | None = None, **channels: str) -> dict[str, Any]:
    """The answer for one message."""
    return {"messages": [{"id": message_id, "topic": topic, "channels": channels}], "not_found": []}


def connect_with_ids(connect: Connect, broker: Any) -> Any:
    client = connect(broker)
    kind, answer = client.command(b"IDENTIFY\n" + sized(b'{"feature_negotiation":true,"publish_ids":true}'))
    assert (kind, json.loads(answer)["publish_ids"]) == (RESPONSE, True)
    return client


def test_a_publish_over_http_is_answered_with_the_ids_of_its_messages(broker: Any) -> None:
    """Of ``/pub``, deferred or not, and of ``/mpub`` in both forms; a publish without ``ids`` is answered with OK."""
    binary = struct.pack(">I", 2) + sized(b"d") + sized(b"e")
    found = [
        *published(broker, b"a"),
        *published(broker, b"b\nc\n", path="/mpub"),
        *published(broker, binary, path="/mpub", binary="true"),
        *published(broker, b"later", defer=HOUR_MS),
    ]
    assert published(broker, b"\n\n", path="/mpub") == []
    ids = ids_of(broker)
    assert found == [ids[body] for body in (b"a", b"b", b"c", b"d", b"e", b"later")]
    assert broker.post("/pub", b"f", topic="t", ids="false") == "OK"
    for query in ("topic=t&ids=perhaps", "ids=perhaps"):
        for head in ({}, {"Connection": "close"}):  # the second is parsed in another way
            refused = broker.request("POST", f"/pub?{query}", b"x", head)
            assert (refused.status, json.loads(refused.text)) == (400, {"message": "INVALID_ARG_IDS"})


def test_a_publish_over_tcp_is_answered_with_the_ids_if_the_client_asked(broker: Any, connect: Connect) -> None:
    """Each command of a run by itself, in whatever way they arrive; others are answered with OK alone."""
    client = connect_with_ids(connect, broker)
    for _ in range(3):  # the second and third time on the broker's fast path, if it took these
        client.send(b"PUB t\n" + sized(b"a") + b"PUB t\n" + sized(b"b"))
        answers = [client.frame()[1] for _ in range(2)]
        assert [each.split()[0] for each in answers] == [b"OK", b"OK"]
        first, second = (int(each.split()[1], 16) for each in answers)
        assert second == first + 1
    answer = client.command(b"MPUB t\n" + sized(struct.pack(">I", 2) + sized(b"c") + sized(b"d")))[1]
    ids = ids_of(broker)
    assert answer == f"OK {ids[b'c']} {ids[b'd']}".encode()
    client.send((b"MPUB t\n" + sized(struct.pack(">I", 1) + sized(b"e"))) * 2)
    assert [len(client.frame()[1].split()) for _ in range(2)] == [2, 2]
    client.send(b"DPUB t 3600000\n" + sized(b"f") + b"DPUB t 1800000\n" + sized(b"g"))
    answers = [client.frame()[1] for _ in range(2)]
    ids = ids_of(broker)
    assert answers == [f"OK {ids[body]}".encode() for body in (b"f", b"g")]
    assert connect(broker).command(b"PUB t\n" + sized(b"h")) == (RESPONSE, b"OK")


def test_without_the_agreement_answers_are_those_of_nsqd(broker: Any, connect: Connect) -> None:
    """Without ``feature_negotiation`` there is no agreement; nsqd's answer to IDENTIFY has no ``publish_ids``."""
    client = connect(broker)
    client.ok(b"IDENTIFY\n" + sized(b'{"publish_ids":true}'))
    assert client.command(b"PUB t\n" + sized(b"a")) == (RESPONSE, b"OK")
    plain = connect(broker)
    _, answer = plain.command(b"IDENTIFY\n" + sized(b'{"feature_negotiation":true}'))
    assert "publish_ids" not in json.loads(answer)


def test_a_cancelled_message_is_delivered_nowhere(broker: Any, connect: Connect) -> None:
    """In whatever state it waits; its neighbours are delivered, and the depths are right at once."""
    broker.post("/channel/create", topic="t", channel="d")
    [first], [second] = published(broker, b"a"), published(broker, b"b")
    [later] = published(broker, b"later", defer=HOUR_MS)
    assert act(broker, "cancel", [second]) == done(second, c="cancelled", d="cancelled")
    assert act(broker, "cancel", [later]) == done(later, c="cancelled", d="cancelled")
    assert [counts(broker, name) for name in "cd"] == [(1, 0, 0), (1, 0, 0)]
    publish(broker, b"c")
    for name in (b"c", b"d"):
        consumer = consumer_of(connect, broker, channel=name)
        assert [consumer.message()[2] for _ in range(2)] == [b"a", b"c"]
        assert consumer.is_silent()
    assert act(broker, "cancel", [first]) == done(first, c="in_flight", d="in_flight")


def test_of_a_cancel_and_a_delivery_one_wins_and_the_answer_says_which(broker: Any, connect: Connect) -> None:
    """A message in flight stays with its client; one that came back is cancelled; a finished one is not found."""
    broker.post("/channel/create", topic="t", channel="d")
    [message_id] = published(broker, b"a")
    consumer = consumer_of(connect, broker)
    assert consumer.message()[0] == message_id.encode()
    assert act(broker, "cancel", [message_id]) == done(message_id, c="in_flight", d="cancelled")
    consumer.send(b"REQ %b 3600000\n" % message_id.encode())
    wait_until(lambda: counts(broker) == (0, 0, 1), "it is deferred")
    assert act(broker, "cancel", [message_id]) == done(message_id, c="cancelled", d="finished")
    assert act(broker, "cancel", [message_id]) == {"messages": [], "not_found": [message_id]}


def test_a_message_that_waits_in_the_topic_is_cancelled(broker: Any, connect: Connect) -> None:
    """Of a paused topic, deferred or not, after a restart too: no channel gets it when it is routed."""
    broker.post("/topic/pause", topic="t")
    ids = published(broker, b"a\nb\nc\nd", path="/mpub")
    later = [published(broker, body, defer="300")[0] for body in (b"x", b"y", b"z")]
    for message_id in (ids[0], ids[2], later[1]):
        assert act(broker, "cancel", [message_id]) == done(message_id, topic="cancelled")
    assert broker.topics()["t"]["depth"] == 4
    assert act(broker, "cancel", [ids[2]]) == {"messages": [], "not_found": [ids[2]]}
    broker.kill()
    broker.start().wait_until_ready()
    assert broker.topics()["t"]["depth"] == 4
    broker.stop()
    broker.start().wait_until_ready()
    assert act(broker, "cancel", [ids[3]]) == done(ids[3], topic="cancelled")
    broker.post("/topic/unpause", topic="t")
    consumer = consumer_of(connect, broker)
    assert sorted(consumer.message()[2] for _ in range(3)) == [b"b", b"x", b"z"]
    assert consumer.is_silent()
    assert channel_of(broker)["depth"] == 0


def test_a_part_of_a_deferred_batch_that_waits_in_the_topic_is_cancelled(broker: Any, connect: Connect) -> None:
    """The rest of the batch stays deferred, after a restart too, whichever part it was."""
    broker.post("/topic/pause", topic="t")
    client = connect_with_ids(connect, broker)
    client.send(b"".join(b"DPUB t 200\n" + sized(b"%d" % number) for number in range(5)))
    ids = [client.frame()[1].split()[1].decode() for _ in range(5)]
    for message_id in (ids[0], ids[3]):
        assert act(broker, "cancel", [message_id]) == done(message_id, topic="cancelled")
    for _ in range(2):
        broker.stop()
        broker.start().wait_until_ready()
        assert broker.topics()["t"]["depth"] == 3
    broker.post("/topic/unpause", topic="t")
    consumer = consumer_of(connect, broker)
    assert sorted(consumer.message()[2] for _ in range(3)) == [b"1", b"2", b"4"]
    assert consumer.is_silent()


def test_a_message_is_deferred_anew(broker: Any, connect: Connect) -> None:
    """One that is ready, never delivered or requeued, and one that was deferred; those of a restart too."""
    ids = published(broker, b"a\nb\nc", path="/mpub")
    [later] = published(broker, b"later", defer=HOUR_MS)
    assert act(broker, "defer", [ids[0]], defer=HOUR_MS) == done(ids[0], c="deferred")
    assert act(broker, "defer", [ids[1]], defer="400") == done(ids[1], c="deferred")
    assert act(broker, "defer", [later], defer="0") == done(later, c="deferred")
    wait_until(lambda: counts(broker) == (3, 0, 1), "two are due")
    consumer = consumer_of(connect, broker)
    assert sorted(consumer.message()[2] for _ in range(3)) == [b"b", b"c", b"later"]
    assert act(broker, "defer", [ids[2]], defer="0") == done(ids[2], c="in_flight")
    consumer.finish(*(each.encode() for each in (ids[1], ids[2], later)))
    broker.kill()
    broker.start().wait_until_ready()
    assert counts(broker) == (0, 0, 1)
    assert act(broker, "defer", [ids[0]], defer="0") == done(ids[0], c="deferred")
    assert consumer_of(connect, broker).message() == (ids[0].encode(), 1, b"a")


def test_a_deferral_leaves_dead_messages_and_those_of_the_topic_as_they_are(broker: Any) -> None:
    """The answer says so."""
    [message_id] = published(broker, b"a")
    broker.request("POST", "/channel/bury?topic=t&channel=c", message_id.encode())
    assert act(broker, "defer", [message_id], defer="0") == done(message_id, c="dead")
    assert act(broker, "cancel", [message_id]) == done(message_id, c="cancelled")
    broker.post("/topic/pause", topic="t")
    [waiting] = published(broker, b"b")
    assert act(broker, "defer", [waiting], defer="0") == done(waiting, topic="waiting")


def test_a_rewind_returns_a_cancelled_message(broker: Any, connect: Connect) -> None:
    """As it returns finished ones."""
    [message_id] = published(broker, b"a")
    act(broker, "cancel", [message_id])
    broker.post("/channel/rewind", topic="t", channel="c", since="1m")
    assert consumer_of(connect, broker).message()[2] == b"a"


def test_a_rewind_never_returns_what_was_cancelled_in_the_topic(start_broker: Start, connect: Connect) -> None:
    """Without ``--retention``, too, when every channel has passed it; a deferred message comes again."""
    broker = start_broker()
    create_channel(broker)
    broker.post("/topic/pause", topic="t")
    ids = published(broker, b"a\nb\nc", path="/mpub")
    publish(broker, b"later", defer="1")
    act(broker, "cancel", [ids[1]])
    broker.post("/topic/unpause", topic="t")
    for is_restarted in (False, True):
        consumer = consumer_of(connect, broker)
        messages = [consumer.message() for _ in range(3)]
        assert sorted(body for _, _, body in messages) == [b"a", b"c", b"later"]
        consumer.finish(*(message_id for message_id, _, _ in messages))
        wait_until(lambda: counts(broker)[1] == 0, "they are finished")
        consumer.socket.close()
        broker.post("/channel/rewind", topic="t", channel="c", since="1h")
        if not is_restarted:
            broker.stop()
            broker.start().wait_until_ready()
            assert sum(counts(broker)) == 3


@pytest.mark.parametrize(
    ("target", "status", "message"),
    [
        ("/message/cancel?id=0000000000000000", 400, "MISSING_ARG_TOPIC"),
        ("/message/cancel?topic=a%20b&id=1", 400, "INVALID_TOPIC"),
        ("/message/cancel?topic=none&id=1", 404, "TOPIC_NOT_FOUND"),
        ("/message/cancel?topic=t", 400, "MISSING_ARG_ID"),
        ("/message/defer?topic=t&id=1", 400, "MISSING_ARG_DEFER"),
        ("/message/defer?topic=t&id=1&defer=soon", 400, "INVALID_DEFER"),
        ("/message/defer?topic=t&id=1&defer=3600001", 400, "INVALID_DEFER"),
    ],
)
def test_a_wrong_request_is_refused_by_name(broker: Any, target: str, status: int, message: str) -> None:
    """An unknown id is no error: it is listed."""
    answer = broker.request("POST", target)
    assert (answer.status, json.loads(answer.text)) == (status, {"message": message})
    assert act(broker, "cancel", ["nonsense"]) == {"messages": [], "not_found": ["nonsense"]}


def test_an_ephemeral_topic_answers_ids_and_cancels_too(start_broker: Start) -> None:
    """Those that it drops have no id."""
    broker = start_broker("--mem-queue-size=2")
    broker.post("/topic/create", topic="e#ephemeral")
    found = [published(broker, body, topic="e#ephemeral") for body in (b"a", b"b", b"c")]
    assert [len(ids) for ids in found] == [1, 1, 0]
    [message_id], [other], _ = found
    assert act(broker, "cancel", [message_id], topic="e#ephemeral") == done(message_id, topic="cancelled")
    broker.post("/channel/create", topic="e#ephemeral", channel="c")
    assert act(broker, "defer", [other], topic="e#ephemeral", defer="3600000") == done(other, c="deferred")
    assert act(broker, "cancel", [other], topic="e#ephemeral") == done(other, c="cancelled")
