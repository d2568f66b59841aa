"""KEDA's ``nsq`` scaler on our registry and broker: its requests, and what it computes from the responses.

Source: KEDA's pkg/scalers/nsq_scaler.go. It asks each registry for the producers of the topic, then each of these
producers for the topic's statistics, and adds up the depths.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness import web
from tests.harness.daemon import Broker, Registry
from tests.harness.v2 import V2Client
from tests.harness.waiting import wait_until

GO = {"User-Agent": "Go-http-client/1.1", "Accept-Encoding": "gzip"}


class Scaler:
    """A trigger of type ``nsq`` with these registries, topic and channel."""

    def __init__(self, registries: list[str], topic: str, channel: str) -> None:
        self.registries, self.topic, self.channel = registries, topic, channel

    def producers(self) -> set[str]:
        """``host:port`` of the nodes that have the topic. A registry that does not know the topic answers 404."""
        found = set()
        for registry in self.registries:
            headers = {**GO, "Accept": "application/json; charset=utf-8"}
            answer = web.get(f"http://{registry}/lookup?topic={self.topic}", headers=headers)
            if answer.status_code == 404:
                continue
            assert answer.status_code == 200, answer.text
            for producer in answer.json()["producers"]:
                host, port = producer["broadcast_address"], producer["http_port"]
                assert isinstance(port, int)
                found.add(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        return found

    def depth(self) -> int:
        """The metric by which KEDA scales."""
        return sum(self.depth_on(node) for node in self.producers())

    def depth_on(self, node: str) -> int:
        query = f"format=json&include_clients=false&include_mem=false&topic={self.topic}"
        answer = web.get(f"http://{node}/stats?{query}", headers=GO)
        assert answer.status_code == 200, answer.text
        depth = 0
        for topic in answer.json()["topics"]:
            if topic["topic_name"] != self.topic:
                continue
            channels: list[dict[str, Any]] = topic["channels"]
            of_channel = [each for each in channels if each["channel_name"] == self.channel]
            if not of_channel:
                depth += topic["depth"]
            depth += sum(each["depth"] for each in of_channel if not each["paused"])
        return depth


@pytest.fixture(scope="module")
def registries() -> Iterator[list[Registry]]:
    started = [Registry("--broadcast-address=127.0.0.1").launch() for _ in range(2)]
    yield started
    for registry in started:
        registry.close()


@pytest.fixture(scope="module")
def brokers(registries: list[Registry], tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Broker]]:
    flags = ["--broadcast-address=127.0.0.1", *(f"--lookupd-tcp-address={each.tcp_address}" for each in registries)]
    started = [Broker(tmp_path_factory.mktemp("data"), *flags, f"--node-id={n}").launch() for n in range(2)]
    yield started
    for broker in started:
        broker.close()


@pytest.fixture
def scaler(registries: list[Registry], request: pytest.FixtureRequest) -> Scaler:
    """A trigger on a topic of the test's own."""
    topic = request.node.name.replace("test_", "", 1)[:60]
    return Scaler([each.http_address for each in registries], topic, "workers")


def publish(broker: Broker, topic: str, count: int) -> None:
    broker.post("/mpub", b"\n".join(b"%d" % n for n in range(count)), topic=topic)


def when_registered(scaler: Scaler, count: int) -> None:
    wait_until(lambda: len(scaler.producers()) == count, f"{count} nodes with {scaler.topic} in both registries")


def test_a_topic_that_no_registry_knows_has_depth_0(scaler: Scaler) -> None:
    """KEDA scales to 0 then, and does not count a 404 as an error."""
    assert (scaler.producers(), scaler.depth()) == (set(), 0)


def test_the_depths_of_all_nodes_are_added_up(scaler: Scaler, brokers: list[Broker]) -> None:
    for broker, count in zip(brokers, (3, 4), strict=True):
        broker.post("/topic/create", topic=scaler.topic)
        broker.post("/channel/create", topic=scaler.topic, channel=scaler.channel)
        publish(broker, scaler.topic, count)
    when_registered(scaler, 2)
    assert scaler.depth() == 7


def test_without_the_channel_the_topics_depth_counts(scaler: Scaler, brokers: list[Broker]) -> None:
    """So that the first consumer, which creates the channel, is started."""
    publish(brokers[0], scaler.topic, 5)
    when_registered(scaler, 1)
    assert scaler.depth() == 5


def test_a_paused_channel_does_not_count(scaler: Scaler, brokers: list[Broker]) -> None:
    publish(brokers[0], scaler.topic, 5)
    brokers[0].post("/channel/create", topic=scaler.topic, channel=scaler.channel)
    when_registered(scaler, 1)
    wait_until(lambda: scaler.depth() == 5, "messages in the channel")
    brokers[0].post("/channel/pause", topic=scaler.topic, channel=scaler.channel)
    assert scaler.depth() == 0


def test_messages_in_flight_do_not_count(scaler: Scaler, brokers: list[Broker]) -> None:
    """As with nsqd: the depth is what no consumer has received, so it is 0 once consumers keep up."""
    broker = brokers[0]
    publish(broker, scaler.topic, 3)
    with V2Client(broker.tcp) as client:
        client.sub(scaler.topic, scaler.channel, ready_count=2)
        client.message()
        client.message()
        when_registered(scaler, 1)
        assert scaler.depth() == 1
