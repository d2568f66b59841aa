"""A publisher repeats a publish of which it got no answer; with a ``dedup_id`` the broker stores it once."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from brokerd.dedup import digest_of
from nsqwire.errors import PublishFailed
from tests.brokerd.clockwork import Node
from tests.brokerd.conftest import create_channel
from tests.brokerd.test_message_actions import channel_of, consumer_of, ids_of
from tests.brokerd.test_publish_ids import act, done, published
from tests.harness.waiting import wait_until

Connect = Callable[..., Any]
Start = Callable[..., Any]


def fails_with(error: OSError) -> Callable[..., NoReturn]:
    def fail(*args: object) -> NoReturn:
        raise error

    return fail


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A broker in this process, whose clock the test controls."""
    made = Node(tmp_path)
    yield made
    made.broker.close()


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
    """Empty, too long, or on a broker that remembers none; no topic is created."""
    broker = start_broker(*flags)
    answer = broker.request("POST", f"/pub?topic=t&{query}", b"x")
    assert (answer.status, json.loads(answer.text)) == (400, {"message": message})
    assert broker.topics() == {}


def test_a_broker_starts_with_a_shorter_window(tmp_path: Path, start_broker: Start) -> None:
    """Of any length, also with none; what is older is forgotten."""
    broker = start_broker(data_path=tmp_path)
    create_channel(broker)
    published(broker, b"a", dedup_id="1")
    broker.stop()
    shorter = start_broker("--dedup-window=1ms", data_path=tmp_path)
    published(shorter, b"a", dedup_id="1")
    shorter.stop()
    none = start_broker("--dedup-window=0s", data_path=tmp_path)
    assert none.topics()["t"]["channels"][0]["depth"] == 2


def test_a_repetition_after_a_change_of_the_node_id_gets_the_same_ids(tmp_path: Path, start_broker: Start) -> None:
    """They are in the messages, and can be cancelled."""
    broker = start_broker("--node-id=1", data_path=tmp_path)
    create_channel(broker)
    first = published(broker, b"a", dedup_id="1")
    broker.stop()
    renamed = start_broker("--node-id=2", data_path=tmp_path)
    assert published(renamed, b"a", dedup_id="1") == first
    assert act(renamed, "cancel", first) == done(first[0], c="cancelled")


@pytest.mark.parametrize("step_s", [-3600.0, 3600.0])
def test_the_window_does_not_change_with_the_wall_clock(node: Node, step_s: float) -> None:
    """A step forward forgets nothing early, one back keeps nothing longer; a restart changes nothing."""
    topic, digest = node.broker.topic("t"), digest_of(b"1")
    topic.publish([b"a"], dedup_digest=digest)
    node.wall += step_s
    node.now += 60
    assert topic.publish([b"a"], dedup_digest=digest) == range(1)
    node.kill()
    node.open()
    topic = node.broker.topic("t")
    assert topic.publish([b"a"], dedup_digest=digest) == range(1)
    node.now += 61
    assert topic.publish([b"a"], dedup_digest=digest) == range(1, 2)


def test_refused_publishes_do_not_fill_the_journal(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk: changes of messages still have its room."""
    topic = node.broker.topic("t")
    monkeypatch.setattr(os, "posix_fallocate", fails_with(OSError(errno.ENOSPC, "No space left on device")))
    before = node.broker.storage.journal_bytes
    for number in range(100):
        with pytest.raises(PublishFailed):
            topic.publish([b"a"], dedup_digest=digest_of(b"%d" % number))
    assert node.broker.storage.journal_bytes == before


def test_a_publish_that_failed_is_stored_when_it_is_repeated(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk; after a restart too, when other messages have taken its numbers and are gone from the log."""
    topic, digest = node.broker.topic("t"), digest_of(b"1")
    channel = topic.channel("c")
    with monkeypatch.context() as full:
        full.setattr(topic.log, "append", fails_with(OSError(errno.ENOSPC, "No space left on device")))
        with pytest.raises(PublishFailed):
            topic.publish([b"a"], dedup_digest=digest)
    for _ in range(3):
        topic.publish([bytes(200_000)])
    channel.empty()
    topic.unmap_if_idle()
    topic.unmap_if_idle()  # idle for a while: the log is shrunk
    assert topic.log.first_seq == 3
    node.kill()
    node.open()
    assert node.broker.topic("t").publish([b"a"], dedup_digest=digest) == range(3, 4)
