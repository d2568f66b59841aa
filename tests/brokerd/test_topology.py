"""Topology-aware consumption: consumers that are near are served first, and deliveries are counted by distance."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

import pytest

from tests.harness.waiting import wait_until

EXPERIMENT = "--enable-experiment=topology-aware-consumption"
COUNTS = ("zone_local_msg_count", "region_local_msg_count", "global_msg_count")


@pytest.fixture
def consume(connect: Callable[..., Any]) -> Callable[..., Any]:
    """Subscribe a consumer with this region and zone."""

    def subscribe(broker: Any, *, region: str = "", zone: str = "", rdy: int = 5) -> Any:
        client = connect(broker)
        body = json.dumps({"topology_region": region, "topology_zone": zone}).encode()
        client.ok(b"IDENTIFY\n" + struct.pack(">i", len(body)) + body)
        client.ok(b"SUB t c\n")
        client.send(b"RDY %d\n" % rdy)
        return client

    return subscribe


def counts(broker: Any) -> list[int]:
    """Deliveries of the channel: in the zone, in the region, elsewhere."""
    channel = broker.stats(topic="t")["topics"][0]["channels"][0]
    return [channel.get(key, 0) for key in COUNTS]


def ready(broker: Any, clients: int) -> None:
    wait_until(
        lambda: (
            [c["ready_count"] for c in broker.stats(topic="t")["topics"][0]["channels"][0]["clients"]] == [5] * clients
        )
    )


def publish(broker: Any, messages: int) -> None:
    for _ in range(messages):
        assert broker.request("POST", "/pub?topic=t", b"x").status == 200


def test_the_zone_comes_first_then_the_region_then_anybody(
    start_broker: Callable[..., Any], consume: Callable[..., Any]
) -> None:
    """Each receives what its RDY count permits before the next one receives any."""
    broker = start_broker(EXPERIMENT, "--topology-region=north", "--topology-zone=n1")
    far = consume(broker, region="south", zone="s1")
    region = consume(broker, region="north", zone="n2")
    zone = consume(broker, region="elsewhere", zone="n1")
    ready(broker, 3)
    for taker, expected in ((zone, [5, 0, 0]), (region, [5, 5, 0]), (far, [5, 5, 5])):
        publish(broker, 5)
        for _ in range(5):
            taker.message()
        assert counts(broker) == expected


def test_without_the_experiment_all_are_equally_far(
    start_broker: Callable[..., Any], consume: Callable[..., Any]
) -> None:
    """The zone has no effect, and every delivery counts as global."""
    broker = start_broker("--topology-region=north", "--topology-zone=n1")
    consumers = [consume(broker, region="north", zone="n1"), consume(broker, region="south", zone="s1")]
    ready(broker, 2)
    publish(broker, 10)
    for consumer in consumers:
        for _ in range(5):
            consumer.message()
    assert counts(broker) == [0, 0, 10]


def test_consumers_equally_near_take_turns(start_broker: Callable[..., Any], consume: Callable[..., Any]) -> None:
    """No consumer in a zone is starved by another; a broker without a zone prefers nobody."""
    broker = start_broker(EXPERIMENT)
    consumers = [consume(broker), consume(broker, zone="n1")]
    ready(broker, 2)
    publish(broker, 4)
    for consumer in consumers:
        consumer.message()
        consumer.message()
    assert counts(broker) == [2, 2, 0]


def test_an_unknown_experiment_is_named_in_the_log(start_broker: Callable[..., Any]) -> None:
    """The broker starts without it, as nsqd does, but a misspelt name is logged."""
    broker = start_broker("--enable-experiment=topology-aware-consumptoin")
    broker.wait_for_log("'topology-aware-consumptoin' is not an experiment")
