"""Reading the messages of a channel over HTTP without consuming them."""

from __future__ import annotations

import json
import time
from base64 import b64decode
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.brokerd.conftest import publish
from tests.harness.waiting import wait_until

Connect = Callable[..., Any]


def peek(broker: Any, *, topic: str = "t", channel: str = "c", **query: object) -> dict[str, Any]:
    answer = broker.request("GET", f"/channel/peek?{urlencode({'topic': topic, 'channel': channel, **query})}")
    assert answer.status == 200, answer.text
    assert answer.headers["content-type"] == "application/json; charset=utf-8"
    return dict(json.loads(answer.text))


def bodies(page: dict[str, Any]) -> list[bytes]:
    return [b64decode(message["body"]) for message in page["messages"]]


def test_ready_messages_are_shown_in_the_order_of_delivery(channel: Any) -> None:
    """Each with its id, publish time, attempts 0, and its body, which may be any bytes."""
    before = time.time_ns()
    sent = [b"one", bytes(range(256)), "zwölf".encode()]
    publish(channel, *sent)
    page = peek(channel)
    assert (page["topic"], page["channel"], page["state"]) == ("t", "c", "ready")
    assert (page["total"], page["offset"], bodies(page)) == (3, 0, sent)
    for message, body in zip(page["messages"], sent, strict=True):
        assert before <= message["timestamp"] <= time.time_ns()
        assert (message["attempts"], message["size"], message["truncated"]) == (0, len(body), False)
        assert (message["state"], message["due"], message["deadline"], message["client"]) == ("ready", None, None, None)
    assert len({message["id"] for message in page["messages"]}) == 3


def test_a_page_begins_at_its_offset_and_is_no_longer_than_its_limit(channel: Any) -> None:
    """The total counts all messages; an offset behind the end gives none. Deferred publishes are not counted."""
    publish(channel, b"0", b"1")
    publish(channel, b"later", defer="60000")
    publish(channel, *(b"%d" % number for number in range(2, 30)))
    assert bodies(peek(channel)) == [b"%d" % number for number in range(20)]
    assert bodies(peek(channel, offset=1, limit=3)) == [b"1", b"2", b"3"]
    assert bodies(peek(channel, offset=25, limit=100)) == [b"%d" % number for number in range(25, 30)]
    page = peek(channel, offset=30)
    assert (page["total"], page["offset"], page["messages"]) == (30, 30, [])
    assert peek(channel, limit=0)["messages"] == []


def test_a_long_body_is_cut_and_its_size_is_given(channel: Any) -> None:
    """At 1,024 bytes by default; with 0 no body is sent."""
    publish(channel, b"x" * 5000)
    [message] = peek(channel)["messages"]
    assert (b64decode(message["body"]), message["size"], message["truncated"]) == (b"x" * 1024, 5000, True)
    [message] = peek(channel, max_body_bytes=5000)["messages"]
    assert (b64decode(message["body"]), message["truncated"]) == (b"x" * 5000, False)
    [message] = peek(channel, max_body_bytes=0)["messages"]
    assert (message["body"], message["size"], message["truncated"]) == ("", 5000, True)


def test_messages_in_flight_are_shown_with_consumer_and_deadline(channel: Any, connect: Connect) -> None:
    """After a first delivery and after a later one, with its age."""
    publish(channel, b"a", b"b")
    consumer = connect(channel)
    identity = json.dumps({"client_id": "worker-7", "hostname": "box", "msg_timeout": 30_000}).encode()
    consumer.ok(b"IDENTIFY\n" + len(identity).to_bytes(4) + identity)
    consumer.ok(b"SUB t c\n")
    consumer.send(b"RDY 1\n")
    first, _, _ = consumer.message()
    consumer.send(b"REQ " + first + b" 0\nRDY 2\n")
    again = {consumer.message()[0], consumer.message()[0]}
    page = peek(channel, state="in_flight")
    assert (page["total"], bodies(page)) == (2, [b"a", b"b"])
    assert {message["id"].encode() for message in page["messages"]} == again
    assert [message["attempts"] for message in page["messages"]] == [2, 1]
    for message in page["messages"]:
        assert message["client"]["client_id"] == "worker-7"
        assert message["client"]["hostname"] == "box"
        assert message["client"]["remote_address"].startswith("127.0.0.1:")
        assert 20e9 < message["deadline"] - time.time_ns() <= 30e9
        assert (message["state"], message["due"]) == ("in_flight", None)


def test_deferred_messages_are_shown_by_due_time(channel: Any, connect: Connect) -> None:
    """After a DPUB or a requeue with a delay; a redelivered message keeps its attempts."""
    publish(channel, b"late", defer="600000")
    publish(channel, b"soon", defer="60000")
    publish(channel, b"back")
    consumer = connect(channel)
    consumer.ok(b"SUB t c\n")
    consumer.send(b"RDY 1\n")
    message_id, _, _ = consumer.message()
    consumer.send(b"REQ " + message_id + b" 120000\n")
    page = wait_until(lambda: (found := peek(channel, state="deferred"))["total"] == 3 and found)
    assert bodies(page) == [b"soon", b"back", b"late"]
    assert [message["attempts"] for message in page["messages"]] == [0, 1, 0]
    due_in_s = [(message["due"] - time.time_ns()) / 1e9 for message in page["messages"]]
    assert due_in_s == pytest.approx([60, 120, 600], abs=15)
    assert bodies(peek(channel, state="deferred", offset=1, limit=1)) == [b"back"]


def test_requeued_messages_are_shown_before_undelivered_ones(channel: Any, connect: Connect) -> None:
    """Its consumer has disconnected; its attempt is counted."""
    publish(channel, b"a", b"b", b"c")
    consumer = connect(channel)
    consumer.ok(b"SUB t c\n")
    consumer.send(b"RDY 2\n")
    _, (second, _, _) = consumer.message(), consumer.message()
    consumer.send(b"RDY 0\nREQ " + second + b" 0\nCLS\n")
    assert consumer.frame() == (0, b"CLOSE_WAIT")
    page = peek(channel)
    assert bodies(page) == [b"b", b"c"]
    assert [message["attempts"] for message in page["messages"]] == [1, 0]
    assert bodies(peek(channel, offset=1)) == [b"c"]


def test_looking_changes_nothing(channel: Any, connect: Connect) -> None:
    """The counters are unchanged, and the consumer receives all messages, in order, at their first attempt."""
    sent = [b"%d" % number for number in range(10)]
    publish(channel, *sent)
    before = channel.stats()["topics"]
    for state in ("ready", "in_flight", "deferred"):
        for offset in range(3):
            peek(channel, state=state, offset=offset, limit=100)
    assert channel.stats()["topics"] == before
    consumer = connect(channel)
    consumer.ok(b"SUB t c\n")
    consumer.send(b"RDY 10\n")
    assert [consumer.message()[1:] for _ in sent] == [(1, body) for body in sent]


def test_a_paused_topic_keeps_its_messages_from_being_shown(channel: Any) -> None:
    """They are not in the channel yet; messages of the paused channel itself are shown."""
    publish(channel, b"mine")
    assert channel.request("POST", "/channel/pause?topic=t&channel=c").status == 200
    assert channel.request("POST", "/topic/pause?topic=t").status == 200
    publish(channel, b"not yet")
    assert bodies(peek(channel)) == [b"mine"]


MISTAKES = [
    ("topic=%&channel=c", 400, "INVALID_REQUEST"),
    ("channel=c", 400, "MISSING_ARG_TOPIC"),
    ("topic=a+b&channel=c", 400, "INVALID_ARG_TOPIC"),
    ("topic=t", 400, "MISSING_ARG_CHANNEL"),
    ("topic=t&channel=*", 400, "INVALID_ARG_CHANNEL"),
    ("topic=none&channel=c", 404, "TOPIC_NOT_FOUND"),
    ("topic=t&channel=none", 404, "CHANNEL_NOT_FOUND"),
    ("topic=t&channel=c&state=", 400, "INVALID_ARG_STATE"),
    ("topic=t&channel=c&state=READY", 400, "INVALID_ARG_STATE"),
    *(
        (f"topic=t&channel=c&{name}={value}", 400, f"INVALID_ARG_{name.upper()}")
        for name, too_many in {"limit": 101, "offset": 1_000_000_001, "max_body_bytes": 65_537}.items()
        for value in ("", "-1", "x", "1.5", "%C2%B2", too_many, "9" * 5000)
    ),
]


def test_each_mistake_is_answered_with_its_code(channel: Any) -> None:
    """Numbers are bounded; the answer names the mistake."""
    for query, status, code in MISTAKES:
        answer = channel.request("GET", f"/channel/peek?{query}")
        assert (answer.status, json.loads(answer.text)) == (status, {"message": code}), query
    assert channel.request("POST", "/channel/peek?topic=t&channel=c").status == 405
