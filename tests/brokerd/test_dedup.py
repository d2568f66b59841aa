"""A publisher repeats a publish of which it got no answer; with a ``dedup_id`` the broker stores it once."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.brokerd.conftest import create_channel
from tests.brokerd.test_message_actions import channel_of, consumer_of, ids_of
from tests.brokerd.test_publish_ids import published
from tests.harness.waiting import wait_until

Connect = Callable[..., Any]
Start = Callable[..., Any]


@pytest.fixture
def broker(start_broker: Start) -> Any:
    """A broker with a topic ``t`` and its channel ``c``."""
    started = start_broker()
    create_channel(started)
    return started


@pytest.mark.parametrize("ending", ["none", "stop", "kill"])
def test_a_repeated_publish_is_stored_once_and_gets_the_same_answer(broker: Any, ending: str) -> None:
    """Before and after a restart, of ``/pub``, deferred or not, and of ``/mpub`` as a whole; two checkpoints later
    too."""
    first = published(broker, b"a", dedup_id="order 1")
    batch = published(broker, b"b\nc", path="/mpub", dedup_id="orders 2 and 3")
    later = published(broker, b"later", defer="3600000", dedup_id="order 4")
    for _ in range(2):
        if ending != "none":
            broker.stop() if ending == "stop" else broker.kill()
            broker.start().wait_until_ready()
        assert published(broker, b"a", dedup_id="order 1") == first
        assert published(broker, b"b\nc", path="/mpub", dedup_id="orders 2 and 3") == batch
        assert published(broker, b"later", defer="3600000", dedup_id="order 4") == later
        assert broker.post("/pub", b"a", topic="t", dedup_id="order 1") == "OK"
    assert len(ids_of(broker)) == 4
    assert broker.topics()["t"]["message_count"] == (4 if ending == "none" else 0)


def test_ids_are_of_one_topic(broker: Any) -> None:
    """Another topic stores a publish with the same id; so does a topic that was deleted and created again."""
    published(broker, b"a", dedup_id="1")
    published(broker, b"a", topic="other", dedup_id="1")
    broker.post("/topic/delete", topic="t")
    create_channel(broker)
    published(broker, b"a", dedup_id="1")
    assert {name: topic["message_count"] for name, topic in broker.topics().items()} == {"t": 1, "other": 1}


def test_after_the_window_a_publish_is_stored_again(start_broker: Start) -> None:
    """``--dedup-window``; it begins with the publish that was stored."""
    broker = start_broker("--dedup-window=600ms")
    create_channel(broker)
    first = published(broker, b"a", dedup_id="1")
    wait_until(lambda: published(broker, b"a", dedup_id="1") != first, "it is stored again")
    assert broker.topics()["t"]["message_count"] == 2


def test_a_finished_message_is_not_stored_again(broker: Any, connect: Connect) -> None:
    """The publisher's repetition may come after the consumer has finished the message, even if its file is gone."""
    published(broker, b"a", dedup_id="1")
    consumer = consumer_of(connect, broker)
    consumer.finish(consumer.message()[0])
    wait_until(lambda: channel_of(broker)["in_flight_count"] == 0, "it is finished")
    broker.stop()
    broker.start().wait_until_ready()
    published(broker, b"a", dedup_id="1")
    assert channel_of(broker)["depth"] == 0


def test_a_refused_publish_is_not_remembered(broker: Any) -> None:
    """Once the broker takes messages again, the repetition is stored."""
    policy = json.dumps({"max_depth": 1, "overflow": "reject"}).encode()
    assert broker.request("POST", "/policy?pattern=t&channel=*", policy).status == 200
    published(broker, b"a", dedup_id="1")
    assert broker.request("POST", "/pub?topic=t&dedup_id=2", b"b").status == 503
    published(broker, b"a", dedup_id="1")  # stored already: there needs to be no room
    broker.post("/policy/delete", pattern="t", channel="*")
    published(broker, b"b", dedup_id="2")
    assert list(ids_of(broker)) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("flags", "query", "message"),
    [
        ([], "dedup_id=", "INVALID_ARG_DEDUP_ID"),
        ([], "dedup_id=" + "x" * 257, "INVALID_ARG_DEDUP_ID"),
        (["--dedup-window=0s"], "dedup_id=1", "DEDUP_DISABLED"),
    ],
)
def test_a_wrong_id_is_refused_by_name(start_broker: Start, flags: list[str], query: str, message: str) -> None:
    """Empty, too long, or on a broker that remembers none; nothing is stored."""
    broker = start_broker(*flags)
    answer = broker.request("POST", f"/pub?topic=t&{query}", b"x")
    assert (answer.status, json.loads(answer.text)) == (400, {"message": message})
    assert broker.topics()["t"]["message_count"] == 0
