"""Reading every message of a channel over HTTP, in the order of publication, and one message by its id."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from tests.brokerd.conftest import publish
from tests.harness import web

Connect = Callable[..., Any]


def get(broker: Any, path: str, **query: object) -> Any:
    return broker.request("GET", f"/channel/{path}?{urlencode({'topic': 't', 'channel': 'c', **query})}")


def scan(broker: Any, **query: object) -> dict[str, Any]:
    answer = get(broker, "scan", **query)
    assert answer.status == 200, answer.text
    return dict(json.loads(answer.text))


def pages(broker: Any, **query: object) -> list[dict[str, Any]]:
    found = [scan(broker, **query)]
    while found[-1]["next"] is not None:
        found.append(scan(broker, **query | {"from": found[-1]["next"]}))
        assert len(found) < 1000
    return found


def shown(page: dict[str, Any]) -> list[tuple[bytes, str, int]]:
    return [(b64decode(each["body"]), each["state"], each["attempts"]) for each in page["messages"]]


def test_a_scan_returns_every_message_with_its_state_and_changes_nothing(channel: Any, connect: Connect) -> None:
    """In flight, requeued, deferred and ready ones, in the order of publication."""
    publish(channel, b"finished", b"held", b"requeued")
    publish(channel, b"deferred", defer="600000")
    publish(channel, b"ready")
    consumer = connect(channel)
    consumer.ok(b"SUB t c\n")
    consumer.send(b"RDY 3\n")
    (first, _, _), _, (third, _, _) = (consumer.message() for _ in range(3))
    consumer.send(b"RDY 0\nFIN " + first + b"\nREQ " + third + b" 0\nNOP\n")
    consumer.ok(b"PUB other\n" + (1).to_bytes(4) + b"x")  # the answer follows what was sent before
    before = channel.stats(topic="t")["topics"]
    page = scan(channel)
    assert shown(page) == [
        (b"held", "in_flight", 1),
        (b"requeued", "ready", 1),
        (b"deferred", "deferred", 0),
        (b"ready", "ready", 0),
    ]
    assert (page["total"], page["next"]) == (4, None)
    assert page["messages"][0]["client"] is not None
    assert page["messages"][2]["due"] > page["messages"][2]["timestamp"]
    assert channel.stats(topic="t")["topics"] == before


def test_a_message_is_on_one_page_even_if_others_are_delivered_in_between(channel: Any, connect: Connect) -> None:
    """Unlike an offset, the position does not depend on the messages before it."""
    publish(channel, *(b"%d" % number for number in range(9)))
    first = scan(channel, limit=3)
    consumer = connect(channel)
    consumer.ok(b"SUB t c\n")
    consumer.send(b"RDY 5\n")
    for _ in range(5):
        consumer.send(b"FIN " + consumer.message()[0] + b"\nRDY 0\nRDY 1\n")
    second = scan(channel, limit=100, **{"from": first["next"]})
    assert [body for body, _, _ in shown(first)] == [b"0", b"1", b"2"]
    assert [body for body, _, _ in shown(second)][-3:] == [b"6", b"7", b"8"]
    assert not {each["id"] for each in first["messages"]} & {each["id"] for each in second["messages"]}


def test_short_pages_have_every_message_once_whatever_its_state(channel: Any, connect: Connect) -> None:
    """Deferred, requeued and in-flight messages between ready ones."""
    for number in range(30):
        publish(channel, b"%d" % number, query="&defer=600000" if number % 3 == 0 else "")
    consumer = connect(channel)
    consumer.ok(b"SUB t c\n")
    consumer.send(b"RDY 6\n")
    for number in range(6):
        message, _, _ = consumer.message()
        if number % 2:
            consumer.send(b"REQ " + message + b" 600000\n")
    found = pages(channel, limit=4)
    assert {len(page["messages"]) for page in found[:-1]} == {4}
    assert [body for page in found for body, _, _ in shown(page)] == [b"%d" % number for number in range(30)]


def test_large_bodies_are_whole_and_a_page_ends_after_a_mebibyte(channel: Any) -> None:
    """So that one response does not delay deliveries; each page has at least one message."""
    sent = [bytes([65 + number]) * 400_000 for number in range(7)]
    publish(channel, *sent)
    found = pages(channel)
    assert [len(page["messages"]) for page in found] == [3, 3, 1]
    assert [body for page in found for body, _, _ in shown(page)] == sent


def test_a_message_and_its_whole_body_are_found_by_id(channel: Any, connect: Connect) -> None:
    """In any state; a finished message is not found."""
    body = bytes(range(256)) * 3000
    publish(channel, b"first", body)
    by_body = {b64decode(each["body"]): each for each in scan(channel)["messages"]}
    wanted = by_body[body]
    query = urlencode({"topic": "t", "channel": "c", "id": wanted["id"]})
    answer = web.get(f"http://{channel.http_address}/channel/message/body?{query}")
    assert (answer.status_code, answer.content) == (200, body)
    assert answer.headers["content-type"] == "application/octet-stream"
    found = json.loads(get(channel, "message", id=wanted["id"]).text)
    assert (found["id"], found["size"], found["state"], found["body"]) == (wanted["id"], len(body), "ready", "")
    consumer = connect(channel)
    consumer.ok(b"SUB t c\n")
    consumer.send(b"RDY 1\n")
    first, _, _ = consumer.message()
    assert json.loads(get(channel, "message", id=first.decode()).text)["state"] == "in_flight"
    consumer.send(b"FIN " + first + b"\nRDY 0\n")
    consumer.ok(b"PUB other\n" + (1).to_bytes(4) + b"x")
    answer = get(channel, "message", id=first.decode())
    assert (answer.status, json.loads(answer.text)) == (404, {"message": "MESSAGE_NOT_FOUND"})


def test_a_deferred_message_is_found_by_id(channel: Any) -> None:
    """It is ahead of the cursor, which skips it."""
    publish(channel, b"later", defer="600000")
    (message,) = scan(channel)["messages"]
    assert json.loads(get(channel, "message", id=message["id"]).text)["state"] == "deferred"
    assert get(channel, "message/body", id=message["id"]).text == "later"


def test_a_scan_ends_where_the_channel_ends(channel: Any) -> None:
    """A start behind the last message, and an empty channel, give an empty last page."""
    assert scan(channel) | {"messages": []} == {"topic": "t", "channel": "c", "total": 0, "next": None, "messages": []}
    publish(channel, b"only")
    assert scan(channel, **{"from": 2**63 - 1})["messages"] == []


def test_mistakes_in_a_scan_are_answered_with_their_codes(channel: Any) -> None:
    """The parameters are bounded, and an unknown or malformed id is not found."""
    for path, query, status, code in (
        ("scan", {"from": "x"}, 400, "INVALID_ARG_FROM"),
        ("scan", {"from": 2**63}, 400, "INVALID_ARG_FROM"),
        ("scan", {"limit": 501}, 400, "INVALID_ARG_LIMIT"),
        ("scan", {"channel": "none"}, 404, "CHANNEL_NOT_FOUND"),
        ("message", {}, 400, "MISSING_ARG_ID"),
        ("message", {"id": "0" * 16}, 404, "MESSAGE_NOT_FOUND"),
        ("message/body", {"id": "é" * 20}, 404, "MESSAGE_NOT_FOUND"),
        ("message/body", {}, 400, "MISSING_ARG_ID"),
    ):
        answer = get(channel, path, **query)
        assert (answer.status, json.loads(answer.text)) == (status, {"message": code}), (path, query)
