"""Draining a node: it takes nothing new, its consumers finish what is there, and then its process ends."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.brokerd.clockwork import Node
from tests.brokerd.conftest import create_channel, publish
from tests.brokerd.test_dead import consumer_of
from tests.harness.daemon import Registry
from tests.harness.v2 import sized
from tests.harness.waiting import wait_until

Connect = Callable[..., Any]
Start = Callable[..., Any]


@pytest.fixture
def broker(start_broker: Start) -> Any:
    """A broker with a topic ``t`` and its channel ``c``."""
    started = start_broker()
    create_channel(started)
    return started


def drain(broker: Any, path: str = "/drain", **params: str) -> Any:
    return json.loads(broker.post(path, **params))["drain"]


def test_a_drained_node_ends_once_its_consumers_have_finished(broker: Any, connect: Connect) -> None:
    """It refuses publishes and says how far it is, and ends with status 0 after the last FIN."""
    publish(broker, b"a", b"b")
    publish(broker, b"later", defer="300")
    consumer = consumer_of(connect, broker)
    assert drain(broker) == {
        "since": pytest.approx(time.time(), abs=60),
        "ends_within": pytest.approx(600, abs=60),
    } | {
        "takes_publishes": False,
        "messages": 3,
    }
    refused = broker.request("POST", "/pub?topic=t", b"x")
    assert (refused.status, json.loads(refused.text)) == (503, {"message": "DRAINING"})
    assert connect(broker).command(b"PUB t\n" + sized(b"x")) == (
        1,
        b"E_PUB_FAILED PUB failed the node is being drained",
    )
    ping = broker.request("GET", "/ping")
    assert (ping.status, ping.text) == (500, "NOK - the node is being drained: 3 messages are left")
    ids = [consumer.message()[0] for _ in range(3)]
    consumer.finish(*ids[:2])
    assert broker.get("/drain")["drain"]["messages"] == 1
    assert broker.stats(include_histograms="true")["drain"]["messages"] == 1
    consumer.send(b"FIN %b\n" % ids[2])
    assert broker.wait_for_exit() == 0


def test_identify_answers_whether_the_node_drains(broker: Any, connect: Connect) -> None:
    """While publishes are refused, and not if the drain takes them."""
    publish(broker, b"a")

    def draining() -> Any:
        _, answer = connect(broker).command(b"IDENTIFY\n" + sized(b'{"feature_negotiation":true}'))
        return json.loads(answer).get("draining", "no key")

    assert draining() == "no key"
    drain(broker, publishes="true")
    assert draining() == "no key"
    drain(broker)
    assert draining() is True
    drain(broker, "/drain/cancel")
    assert draining() == "no key"


def test_an_empty_node_refuses_publishes_for_a_second_before_it_ends(tmp_path: Path) -> None:
    """Its producers learn from the answer that they must go elsewhere. A shorter timeout ends the node earlier, and
    another request does not begin the second anew."""
    node = Node(tmp_path)
    drain = node.broker.drain
    drain.begin(timeout_s=0, takes_publishes=False)
    node.pass_until(node.now + 0.9)
    assert not drain.is_over
    drain.begin(timeout_s=600, takes_publishes=False)
    node.pass_until(node.now + 0.2)
    assert drain.is_over
    drain.cancel()
    assert not drain.is_over
    drain.begin(timeout_s=0.3, takes_publishes=False)
    assert not drain.is_over
    node.pass_until(node.now + 0.4)
    assert drain.is_over
    node.kill()


def test_at_the_deadline_the_messages_stay_on_the_disk(broker: Any) -> None:
    """Nobody consumes: the process ends, and the next one has them."""
    publish(broker, b"a", b"b")
    drain(broker, timeout="300ms")
    assert broker.wait_for_exit() == 0
    broker.start().wait_until_ready()
    assert broker.topics()["t"]["channels"][0]["depth"] == 2
    assert broker.get("/drain") == {"drain": None}
    publish(broker, b"c")


def test_a_deadline_below_a_microsecond_is_one(broker: Any) -> None:
    """Of all durations, only zero means no deadline."""
    publish(broker, b"a")
    drain(broker, timeout="1ns")
    assert broker.wait_for_exit() == 0


def test_a_drained_node_leaves_the_registries_and_comes_back_when_it_is_cancelled(
    start_broker: Start, connect: Connect
) -> None:
    """Producers and consumers do not find it; connected consumers stay. A kill during the drain loses nothing."""
    with Registry() as lookup:
        lookup.wait_until_ready()
        broker = start_broker(f"--lookupd-tcp-address={lookup.tcp[0]}:{lookup.tcp[1]}")
        create_channel(broker)
        publish(broker, b"a")
        wait_until(lambda: lookup.get("/topics")["topics"] == ["t"], "the topic is registered")
        producers = lambda: lookup.get("/lookup?topic=t")["producers"]  # noqa: E731
        wait_until(lambda: len(producers()) == 1, "it is registered")
        consumer = consumer_of(connect, broker, ready_count=1)
        message_id, _, _ = consumer.message()
        drain(broker)
        wait_until(lambda: producers() == [], "it is not registered")
        assert lookup.get("/nodes")["producers"] == []
        assert drain(broker, "/drain/cancel") is None
        wait_until(lambda: len(producers()) == 1, "it is registered again")
        assert broker.request("GET", "/ping").text == "OK"
        consumer.finish(message_id)
        publish(broker, b"b")
        drain(broker, timeout="0s")
        broker.kill()
        broker.start().wait_until_ready()
        assert broker.topics()["t"]["channels"][0]["depth"] == 1


def test_with_publishes_taken_the_node_ends_when_it_is_empty(start_broker: Start, connect: Connect) -> None:
    """``--drain-publishes``, or the parameter, for producers that cannot move elsewhere."""
    broker = start_broker("--drain-publishes")
    create_channel(broker)
    publish(broker, b"a")
    assert drain(broker)["takes_publishes"]
    publish(broker, b"b")
    assert not drain(broker, publishes="false")["takes_publishes"]
    assert broker.request("POST", "/pub?topic=t", b"x").status == 503
    assert drain(broker, publishes="true")["messages"] == 2
    consumer = consumer_of(connect, broker)
    for _ in range(2):
        consumer.send(b"FIN %b\n" % consumer.message()[0])
    assert broker.wait_for_exit() == 0


def test_a_drained_node_refuses_publishes_after_its_data_path_was_away(broker: Any) -> None:
    """Also if the drain began while it was away."""
    publish(broker, b"a")
    away = broker.data_path.with_name("away")
    for began_before in (True, False):
        if began_before:
            drain(broker)
        broker.data_path.rename(away)
        wait_until(lambda: "the data path is not the directory that was opened" in broker.stats()["health"])
        if not began_before:
            drain(broker)
        away.rename(broker.data_path)
        wait_until(lambda: broker.stats()["health"].startswith("NOK - the node is being drained"))
        assert broker.request("POST", "/pub?topic=t", b"x").status == 503
        drain(broker, "/drain/cancel")
        publish(broker, b"b")


def test_a_refused_publish_creates_no_topic(broker: Any, connect: Connect) -> None:
    """Of a node that is being drained, over HTTP and TCP; it would be registered after the drain."""
    publish(broker, b"a")
    drain(broker)
    assert broker.request("POST", "/pub?topic=new", b"x").status == 503
    client = connect(broker)
    refused = client.command(b"PUB new\n" + sized(b"x"))
    assert refused == (1, b"E_PUB_FAILED PUB failed the node is being drained")
    drain(broker, "/drain/cancel")
    assert list(broker.topics()) == ["t"]


def test_sigusr1_drains_the_node(broker: Any, connect: Connect) -> None:
    """As ``POST /drain`` without parameters; a node without messages ends after a second."""
    publish(broker, b"a")
    broker.signal(signal.SIGUSR1)
    wait_until(lambda: broker.get("/drain")["drain"] is not None, "it drains")
    consumer = consumer_of(connect, broker)
    consumer.send(b"FIN %b\n" % consumer.message()[0])
    assert broker.wait_for_exit() == 0


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/drain?timeout=soon", "INVALID_ARG_TIMEOUT"),
        ("/drain?timeout=-1s", "INVALID_ARG_TIMEOUT"),
        ("/drain?publishes=maybe", "INVALID_ARG_PUBLISHES"),
        ("/drain/cancel", "NOT_DRAINING"),
    ],
)
def test_a_wrong_parameter_is_refused_and_nothing_is_drained(broker: Any, path: str, message: str) -> None:
    """400 with the parameter's name."""
    refused = broker.request("POST", path)
    assert (refused.status, json.loads(refused.text)) == (400, {"message": message})
    assert broker.get("/drain") == {"drain": None}
    publish(broker, b"a")
