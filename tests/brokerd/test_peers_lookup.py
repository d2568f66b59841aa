"""A broker and a real registry."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.daemon import Registry
from tests.harness.waiting import wait_until


@pytest.fixture
def registry() -> Iterator[Registry]:
    """A registry on free ports."""
    running = Registry("--broadcast-address=127.0.0.1").launch()
    yield running
    running.close()


def test_consumers_find_the_broker_of_a_topic(start_broker, registry):
    """Topics created on the broker can be looked up; deleted ones, and those of a stopped broker, cannot."""
    broker = start_broker(f"--lookupd-tcp-address={registry.tcp_address}", "--broadcast-address=127.0.0.1")
    wait_until(lambda: registry.get("/nodes")["producers"])
    broker.request("POST", "/topic/create?topic=t")
    broker.request("POST", "/channel/create?topic=t&channel=c")
    wait_until(
        lambda: "t" in registry.get("/topics")["topics"] and registry.get("/lookup?topic=t")["channels"] == ["c"]
    )
    (producer,) = registry.get("/lookup?topic=t")["producers"]
    assert (producer["broadcast_address"], producer["tcp_port"], producer["http_port"]) == (
        "127.0.0.1",
        broker.tcp[1],
        broker.http[1],
    )
    broker.request("POST", "/topic/delete?topic=t")
    wait_until(lambda: registry.get("/lookup?topic=t")["producers"] == [])
    assert broker.terminate() == 0
    wait_until(lambda: registry.get("/nodes")["producers"] == [])


def test_a_new_topic_gets_the_channels_it_has_elsewhere_from_its_first_message_on(start_broker, registry, connect):
    """Every known channel receives all messages, also those published before the registry answered; ephemeral
    channels are left to their consumers."""
    for channel in ("a", "b", "e%23ephemeral"):
        registry.post(f"/channel/create?topic=t&channel={channel}")
    broker = start_broker(f"--lookupd-tcp-address={registry.tcp_address}", "--broadcast-address=127.0.0.1")
    broker.wait_for_log(r"LOOKUPD\(.*\): peer info")
    for number in range(5):
        assert broker.request("POST", "/pub?topic=t", b"%d" % number).text == "OK"
    wait_until(lambda: len(broker.stats()["topics"][0]["channels"]) == 2)
    for channel in (b"a", b"b"):
        consumer = connect(broker)
        consumer.ok(b"SUB t " + channel + b"\n")
        consumer.send(b"RDY 10\n")
        assert sorted(consumer.message()[2] for _ in range(5)) == [b"%d" % number for number in range(5)]


def test_a_consumer_that_creates_the_topic_gets_its_messages_as_well(start_broker, registry, connect):
    """Subscribing to a new topic works as ever, beside the channels that the registry knows."""
    registry.post("/channel/create?topic=t&channel=a")
    broker = start_broker(f"--lookupd-tcp-address={registry.tcp_address}", "--broadcast-address=127.0.0.1")
    broker.wait_for_log(r"LOOKUPD\(.*\): peer info")
    consumer = connect(broker)
    consumer.ok(b"SUB t mine\n")
    consumer.send(b"RDY 10\n")
    producer = connect(broker)
    producer.ok(b"DPUB t 50\n\x00\x00\x00\x05later")
    producer.ok(b"PUB t\n\x00\x00\x00\x03now")
    assert sorted(consumer.message()[2] for _ in range(2)) == [b"later", b"now"]
    wait_until(lambda: [c["channel_name"] for c in broker.stats()["topics"][0]["channels"]] == ["a", "mine"])


def test_without_time_limits_for_http_a_registrys_channels_are_created(start_broker, registry):
    """0 means no limit, as in nsqd."""
    registry.post("/channel/create", topic="t", channel="known")
    broker = start_broker(
        f"--lookupd-tcp-address={registry.tcp_address}",
        "--http-client-connect-timeout=0s",
        "--http-client-request-timeout=0s",
    )
    broker.wait_for_log(r"LOOKUPD\(.*\): peer info")
    broker.post("/topic/create", topic="t")
    wait_until(lambda: [each["channel_name"] for each in broker.topics()["t"]["channels"]] == ["known"])
