"""Requests that act on many topics or channels of a broker."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from brokerd.net.http_names import TURN_S, in_turns
from nsqdaemon.http import Request
from nsqdaemon.http.names import MAX_NAMES, act_on_each
from tests.harness.waiting import wait_until


def act(broker, verb: str, *names: str) -> dict:
    """The response to a POST of the names."""
    answer = broker.request("POST", f"/{verb}", "\n".join(names).encode())
    assert answer.status == 200, answer.text
    return json.loads(answer.text)


def test_many_topics_are_deleted_and_each_error_is_that_of_a_request_of_its_own(broker):
    """A name that fails does not affect the others; a repeated one counts once."""
    for topic in ("orders", "invoices", "kept"):
        broker.post("/pub", b"a message", topic=topic)
    answer = act(broker, "topics/delete", "orders", "none", "invoices", "orders", "a*b")
    unknown = {"status": 404, "message": "TOPIC_NOT_FOUND"}
    assert answer == {"done": 2, "errors": [{"name": "none", **unknown}, {"name": "a*b", **unknown}]}
    assert list(broker.topics()) == ["kept"]
    for name in ("none", "a*b"):
        alone = broker.request("POST", f"/topic/delete?topic={name}")
        assert (alone.status, json.loads(alone.text)) == (404, {"message": "TOPIC_NOT_FOUND"})


def test_deleted_topics_stay_deleted_after_a_kill(start_broker, tmp_path):
    """As those of single requests."""
    broker = start_broker(data_path=tmp_path)
    for number in range(5):
        broker.post("/pub", b"a message", topic=f"orders.{number}")
    assert act(broker, "topics/delete", *(f"orders.{number}" for number in range(1, 5)))["done"] == 4
    broker.kill()
    broker = start_broker(data_path=tmp_path)
    assert list(broker.topics()) == ["orders.0"]


def test_many_topics_are_paused_emptied_and_found(broker):
    """Finding changes nothing, and its errors are the topics that the node does not have."""
    for topic in ("orders", "invoices"):
        broker.post("/pub", b"a message", topic=topic)
    assert act(broker, "topics/pause", "orders", "invoices") == {"done": 2, "errors": []}
    assert [topic["paused"] for topic in broker.topics().values()] == [True, True]
    assert act(broker, "topics/unpause", "orders") == {"done": 1, "errors": []}
    assert act(broker, "topics/empty", "orders", "none")["done"] == 1
    found = act(broker, "topics/find", "orders", "none", "invoices")
    assert found == {"done": 2, "errors": [{"name": "none", "status": 404, "message": "TOPIC_NOT_FOUND"}]}
    topics = broker.topics()
    assert [(topics[name]["paused"], topics[name]["depth"]) for name in ("orders", "invoices")] == [
        (False, 0),
        (True, 1),
    ]


def test_many_channels_are_paused_emptied_and_deleted(broker):
    """They are written topic/channel; one without a channel is that name's error."""
    for topic in ("orders", "invoices"):
        broker.post("/topic/create", topic=topic)
        broker.post("/channel/create", topic=topic, channel="billing")
        broker.post("/pub", b"a message", topic=topic)
    both = ("orders/billing", "invoices/billing")

    def channels() -> list[dict]:
        return [topic["channels"][0] for topic in broker.topics().values()]

    wait_until(lambda: [channel["depth"] for channel in channels()] == [1, 1], "the messages are in the channels")
    assert act(broker, "channels/pause", *both)["done"] == 2
    assert [channel["paused"] for channel in channels()] == [True, True]
    assert act(broker, "channels/unpause", *both)["done"] == 2
    assert act(broker, "channels/empty", *both)["done"] == 2
    assert [(channel["paused"], channel["depth"]) for channel in channels()] == [(False, 0), (False, 0)]
    answer = act(broker, "channels/delete", *both, "orders", "orders/none", "none/billing")
    assert answer == {
        "done": 2,
        "errors": [
            {"name": "orders", "status": 400, "message": "MISSING_ARG_CHANNEL"},
            {"name": "orders/none", "status": 404, "message": "CHANNEL_NOT_FOUND"},
            {"name": "none/billing", "status": 404, "message": "TOPIC_NOT_FOUND"},
        ],
    }
    assert [topic["channels"] for topic in broker.topics().values()] == [[], []]


@pytest.mark.parametrize("path", ["/topics/delete", "/topics/find", "/channels/empty"])
def test_a_request_without_names_or_with_too_many_is_refused(broker, path):
    """Nothing is changed then."""
    broker.post("/topic/create", topic="t0")
    for body, code in (
        (b" \n", "MISSING_NAMES"),
        (b"\n".join(b"t%d" % n for n in range(MAX_NAMES + 1)), "TOO_MANY_NAMES"),
    ):
        answer = broker.request("POST", path, body)
        assert (answer.status, json.loads(answer.text)) == (400, {"message": code})
    assert list(broker.topics()) == ["t0"]


async def test_the_event_loop_does_other_work_between_names():
    """However many names a request has."""
    others, ended = 0, False

    async def other_work() -> None:
        nonlocal others
        while not ended:
            others += 1
            await asyncio.sleep(0)

    def slow(_: str) -> None:
        until = time.monotonic() + TURN_S / 2
        while time.monotonic() < until:
            pass

    beside = asyncio.create_task(other_work())
    request = Request("POST", b"/topics/delete", [], b"")
    response = await in_turns(act_on_each(request, [str(number) for number in range(20)], slow))
    ended = True
    await beside
    assert response.body == b'{"done":20,"errors":[]}'
    assert others >= 10  # two names take a turn
