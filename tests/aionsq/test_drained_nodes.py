"""A producer and nodes that are drained: it moves to the others, and its caller sees no error."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from aionsq import ConnectFailed, Consumer, ConsumerOptions, Message, Producer, ProducerOptions, PublishTimedOut
from tests.harness.daemon import Broker
from tests.harness.waiting import DEADLINE_S, until

ERROR = 1
NODES = 3


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[list[Broker]]:
    """Three brokers that keep their ports over a restart."""
    started: list[Broker] = []
    try:
        for number in range(NODES):
            (tmp_path / str(number)).mkdir()
            started.append(Broker(tmp_path / str(number), keep_ports=True).launch())
        yield started
    finally:
        for broker in started:
            broker.close()


def address(broker: Broker) -> str:
    return f"{broker.tcp[0]}:{broker.tcp[1]}"


async def test_a_rolling_restart_loses_nothing_and_no_publish_fails(brokers: list[Broker]) -> None:
    """Each node in turn is drained, ends once its consumer has finished everything, and starts again."""
    addresses = [address(broker) for broker in brokers]
    received = set[bytes]()

    async def handle(message: Message) -> None:
        await asyncio.sleep(0.001)
        received.add(message.body)

    published = set[bytes]()
    ending = asyncio.Event()

    async def publish(producer: Producer) -> None:
        while not ending.is_set():
            bodies = [b"%d" % number for number in range(len(published), len(published) + 20)]
            await asyncio.gather(*(producer.pub("orders", body) for body in bodies))
            published.update(bodies)
            await asyncio.sleep(0.005)

    options = ConsumerOptions(max_in_flight=100)
    consumer = Consumer("orders", "billing", nsqd_tcp_addresses=addresses, options=options)
    async with Producer(addresses) as producer, consumer:
        handling = asyncio.create_task(consumer.run(handle, concurrency=10))
        publishing = asyncio.create_task(publish(producer))
        for broker in brokers:
            await asyncio.sleep(0.3)
            broker.post("/drain")
            assert await asyncio.to_thread(broker.wait_for_exit) == 0
            await asyncio.to_thread(broker.launch)
        await asyncio.sleep(0.3)
        ending.set()
        await publishing
        await until(lambda: received == published, "all messages are received")
        await consumer.stop()
        await handling
    assert received == published


async def test_the_only_node_is_waited_for_until_the_publishs_deadline(brokers: list[Broker]) -> None:
    """A restart within it is not noticed; after it the error says that nothing was stored, and why."""
    broker = brokers[0]
    brokers[0].post("/topic/create", topic="orders")
    broker.post("/pub", b"kept", topic="orders")
    patient = ProducerOptions(publish_timeout=timedelta(seconds=DEADLINE_S))
    async with Producer(address(broker), patient) as producer:
        broker.post("/drain", timeout="500ms")
        published = producer.pub("orders", b"late")
        assert await asyncio.to_thread(broker.wait_for_exit) == 0
        assert not published.done()
        await asyncio.to_thread(broker.launch)
        await published
    async with Producer(address(broker), ProducerOptions(publish_timeout=timedelta(seconds=3))) as hasty:
        broker.post("/drain")
        with pytest.raises(PublishTimedOut, match=r"not stored: .*the node is being drained"):
            await hasty.pub("orders", b"never")
    assert broker.topics()["orders"]["depth"] == 2


async def test_a_node_that_is_being_drained_is_sent_nothing(brokers: list[Broker]) -> None:
    """A producer that starts does not connect to it before the drain is cancelled: it may end before it reads a
    publish."""
    for broker in brokers[:2]:
        broker.post("/topic/create", topic="orders")
    brokers[0].post("/pub", b"kept", topic="orders")  # an empty node would end
    brokers[0].post("/drain", timeout="0s")
    async with Producer([address(broker) for broker in brokers[:2]]) as producer:
        assert producer.connections == [address(brokers[1])]
        await asyncio.gather(*(producer.pub("orders", b"%d" % number) for number in range(10)))
        assert brokers[1].topics()["orders"]["depth"] == 10
        brokers[0].post("/drain/cancel")
        await until(lambda: len(producer.connections) == 2, "the node is connected to again")
        await asyncio.gather(*(producer.pub("orders", b"%d" % number) for number in range(10)))
    assert brokers[0].topics()["orders"]["depth"] == 6


async def test_a_node_that_refused_a_publish_is_sent_no_other_while_it_is_drained(start_nsqd: Any) -> None:
    """It answers every new connection that it is being drained, until the drain is cancelled."""
    drained, other = await start_nsqd(), await start_nsqd()
    async with Producer([drained.address, other.address]) as producer:
        drained.on["PUB"] = lambda peer, _: peer.frame(ERROR, b"E_PUB_FAILED PUB failed the node is being drained")
        drained.identify_answer["draining"] = True
        await asyncio.gather(*(producer.pub("orders", b"%d" % number) for number in range(2)))
        await drained.until(lambda: len(drained.peers) > 2 and drained.peers[2].lines("IDENTIFY"))
        await asyncio.gather(*(producer.pub("orders", b"%d" % number) for number in range(2, 4)))
        assert [peer.lines("PUB") for peer in drained.peers[1:]] == [[], []]
        assert len(other.peers[0].lines("PUB")) == 4
        del drained.on["PUB"], drained.identify_answer["draining"]
        await until(lambda: len(producer.connections) == 2, "the node is connected to again")
        await asyncio.gather(*(producer.pub("orders", b"%d" % number) for number in range(2)))
        assert len(drained.peers[-1].lines("PUB")) == 1


async def test_the_only_node_is_being_drained_when_the_producer_starts(brokers: list[Broker]) -> None:
    """The error says so."""
    brokers[0].post("/topic/create", topic="orders")
    brokers[0].post("/pub", b"kept", topic="orders")
    brokers[0].post("/drain")
    with pytest.raises(ConnectFailed, match="the node is being drained"):
        await Producer(address(brokers[0])).start()
