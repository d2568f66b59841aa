"""nsq_to_nsq, between real brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from aionsq import Consumer, Node, Producer
from tests.aionsq.tools.conftest import StartOnBacklog, Tool
from tests.harness.loopback import own_address
from tests.harness.waiting import DEADLINE_S, until


@pytest.fixture
async def destination(start_server):
    """A second broker."""
    return await start_server("brokerd")


@pytest.fixture
def relay(start_on_backlog: StartOnBacklog) -> Callable[..., Awaitable[Tool]]:
    """``await relay(bodies, *flags)``: publish to topic t, and start nsq_to_nsq on it."""
    return partial(start_on_backlog, "nsq_to_nsq")


async def taken_from(server, topic, count):
    """Consume ``count`` messages of a topic, and those that arrive shortly after them."""
    bodies = []
    async with Consumer(topic, "check", nsqd_tcp_addresses=[server.tcp_address]) as consumer:
        consumer.change_max_in_flight(500)
        async with asyncio.timeout(DEADLINE_S):
            while len(bodies) < count:
                message = await consumer.next_message()
                message.finish()
                bodies.append(message.body)
    return bodies


async def count_in(server, topic, field="message_count"):
    async with Node(server.http_address) as node:
        topics = (await node.stats(topic)).topics
        return getattr(topics[0], field) if topics else 0


async def test_messages_arrive_as_they_were(destination, relay, settled, interrupted):
    """In the topic of the same name, with any bytes. An interrupt ends the tool with status 0."""
    bodies = [b"\xff\x00 not json", *(b"%d" % number for number in range(1000))]
    tool = await relay(bodies, f"--destination-nsqd-tcp-address={destination.tcp_address}", "--status-every=500")
    await settled("t", "nsq_to_nsq")
    assert sorted(await taken_from(destination, "t", 1001)) == sorted(bodies)
    lines = (await interrupted(tool)).splitlines()
    assert len(lines) == 2
    assert all(line.startswith("nsq_to_nsq: [aggregate]: finished 500 - 99th: ") for line in lines)


async def test_several_topics_may_go_into_one(broker, destination, start_tool, interrupted):
    """--destination-topic; with the topics found through a registry, by the subcommand's name too."""
    async with Producer(broker.tcp_address) as producer:
        await producer.pub("a", b"from a")
        await producer.pub("b", b"from b")
    tool = await start_tool(
        *("to-nsq", "--topic=a", "--topic=b", "--destination-topic=both"),
        *(f"--nsqd-tcp-address={broker.tcp_address}", f"--destination-nsqd-tcp-address={destination.tcp_address}"),
    )
    assert sorted(await taken_from(destination, "both", 2)) == [b"from a", b"from b"]
    assert await interrupted(tool) == ""


@pytest.mark.parametrize("mode", ["round-robin", "hostpool", "epsilon-greedy"])
async def test_destinations_share_the_messages(start_server, destination, relay, settled, mode):
    """Each message goes to one of them."""
    second = await start_server("brokerd")
    flags = [f"--destination-nsqd-tcp-address={each.tcp_address}" for each in (destination, second)]
    await relay([b"%d" % number for number in range(400)], f"--mode={mode}", *flags)
    await settled("t", "nsq_to_nsq")
    counts = [await count_in(destination, "t"), await count_in(second, "t")]
    assert sum(counts) == 400
    assert counts == [200, 200] if mode != "epsilon-greedy" else all(counts)


async def test_a_dead_destination_is_skipped(destination, relay, settled, unused_address, interrupted):
    """Nothing is requeued; the dead destination is logged."""
    tool = await relay(
        [b"x"] * 100,
        *(f"--destination-nsqd-tcp-address={address}" for address in (unused_address, destination.tcp_address)),
    )
    row = await settled("t", "nsq_to_nsq")
    assert (await count_in(destination, "t"), row["requeue_count"]) == (100, 0)
    assert f"cannot connect to nsqd {unused_address}: connection refused; retrying" in await interrupted(tool)


async def test_a_message_that_cannot_be_published_is_requeued(destination, relay, settled):
    """Until it can be published: the destination is down for a while."""
    address = destination.tcp_address
    flags = (f"--destination-nsqd-tcp-address={address}", "--producer-opt=max_reconnect_delay,50ms")
    tool = await relay([], *flags, "--log-level=info")
    await tool.logged("connected to nsqd")
    await destination.close()
    await relay([b"x"] * 10, "--destination-nsqd-tcp-address=127.0.0.1:1")  # publishes; ends at once itself
    await tool.logged(", attempt 1")
    await destination.start()
    await settled("t", "nsq_to_nsq")
    assert await count_in(destination, "t") >= 10


async def test_json_is_filtered_and_cut(destination, relay, settled):
    """By required fields and values, and by whitelisted fields; numbers keep their digits."""
    bodies = [
        b'{"kind":"a","n":12345678901234567890,"x":1}',
        b'{"kind":"b","n":1}',
        b'{"kind":["a"],"n":2}',
        b'{"kind":"a","x":3}',
    ]
    await relay(
        bodies,
        *("--require-json-field=kind", "--require-json-value=a", "--whitelist-json-field=n"),
        f"--destination-nsqd-tcp-address={destination.tcp_address}",
    )
    await settled("t", "nsq_to_nsq")
    assert sorted(await taken_from(destination, "t", 2)) == [b'{"n":12345678901234567890}', b"{}"]
    assert await count_in(destination, "t") == 2


async def test_messages_without_json_are_not_lost(destination, relay, channel_of, broker, interrupted):
    """It is requeued, with the reference's text; so is a message without the field whose value is required."""
    tool = await relay(
        [b"no json"],
        *("--require-json-field=f", "--require-json-value=1"),
        f"--destination-nsqd-tcp-address={destination.tcp_address}",
    )
    await tool.logged("ERROR: Unable to decode json: ")
    await tool.logged(", attempt 7")
    async with Producer(broker.tcp_address) as producer:
        await producer.pub("t", b"{}")
    await tool.logged("ERROR: missing field to check required value; requeued message ")
    await interrupted(tool)
    row = await channel_of(broker, "t", "nsq_to_nsq")
    assert row["depth"] + row["deferred_count"] + row["in_flight_count"] == 2


@pytest.mark.parametrize(("choice", "passed"), [("pass", [b"no json"]), ("drop", [])])
async def test_messages_without_json_may_be_passed_on_or_dropped(
    destination, relay, settled, choice, passed, interrupted
):
    """--non-json; each is logged."""
    tool = await relay(
        [b"no json"],
        *("--require-json-field=f", f"--non-json={choice}"),
        f"--destination-nsqd-tcp-address={destination.tcp_address}",
    )
    await settled("t", "nsq_to_nsq")
    assert await count_in(destination, "t") == len(passed)
    assert "Unable to decode json" in await interrupted(tool)


@pytest.mark.parametrize("spelling", ["127.0.0.1:{port}", ":{port}", "localhost:0{port}"])
@pytest.mark.parametrize("source", ["--nsqd-tcp-address={0.tcp_address}", "--lookupd-http-address={1.http_address}"])
async def test_a_topic_is_not_published_to_itself(broker, registry, start_tool, channel_of, source, spelling):
    """It would be an endless loop, however the destination is written; no channel is created."""
    async with Producer(broker.tcp_address) as producer:
        await producer.pub("t", b"x")
    address = broker.tcp_address
    destination = spelling.format(port=address.rpartition(":")[2])
    flags = ("--topic=t", source.format(broker, registry), f"--destination-nsqd-tcp-address={destination}")
    ended = await (await start_tool("nsq_to_nsq", *flags)).end()
    also = "" if destination == address else f", which is the destination {destination},"
    expected = f"nsq_to_nsq: topic t of {address}{also} would be published to itself; use --destination-topic\n"
    assert (ended.status, ended.err) == (1, expected)
    assert await count_in(broker, "t") == 1
    assert await channel_of(broker, "t", "nsq_to_nsq") == {}


async def test_a_topic_of_several_is_not_published_to_itself(broker, registry, start_tool):
    """The destination topic is one of the topics consumed; the others are not published without it."""
    async with Producer(broker.tcp_address) as producer:
        await producer.pub("b", b"x")
    flags = ("--topic=a", "--topic=b", "--destination-topic=b", f"--lookupd-http-address={registry.http_address}")
    tool = await start_tool("to-nsq", *flags, f"--destination-nsqd-tcp-address={broker.tcp_address}")
    ended = await tool.end()
    assert (ended.status, ended.err) == (
        1,
        f"nsq to-nsq: topic b of {broker.tcp_address} would be published to itself; use --destination-topic\n",
    )
    assert await count_in(broker, "b") == 1


async def test_a_broker_under_its_public_address_is_not_its_own_destination(start_server, registry, start_tool):
    """It listens on all addresses of the machine, and the registry lists another one than the destination's."""
    flags = ("--tcp-address=0.0.0.0:0", "--broadcast-address=127.0.0.2")
    broker = await start_server("brokerd", f"--lookupd-tcp-address={registry.tcp_address}", *flags)
    port = broker.tcp_address.rpartition(":")[2]
    async with Producer(f"127.0.0.1:{port}") as producer:
        await producer.pub("t", b"x")
    flags = ("--topic=t", f"--lookupd-http-address={registry.http_address}")
    ended = await (await start_tool("nsq_to_nsq", *flags, f"--destination-nsqd-tcp-address=127.0.0.1:{port}")).end()
    assert ended.status == 1
    assert ended.err.startswith(f"nsq_to_nsq: topic t of 127.0.0.2:{port}, which is the destination 127.0.0.1:{port},")


async def test_brokers_on_one_port_of_different_addresses_are_different(broker, start_server, start_tool):
    """Each listens on one address of the machine."""
    port, address = broker.tcp_address.rpartition(":")[2], own_address()
    other = await start_server("brokerd", f"--tcp-address={address}:{port}", f"--broadcast-address={address}")
    async with Producer(broker.tcp_address) as producer:
        await producer.pub("t", b"x")
    flags = (f"--nsqd-tcp-address={broker.tcp_address}", f"--destination-nsqd-tcp-address={address}:{port}")
    await start_tool("nsq_to_nsq", "--topic=t", *flags)
    assert await taken_from(other, "t", 1) == [b"x"]


async def test_a_loop_that_begins_later_ends_the_tool(broker, registry, start_server, start_tool):
    """The destination is listed for the topic once the first messages have made it there."""
    destination = await start_server("brokerd", f"--lookupd-tcp-address={registry.tcp_address}")
    async with Producer(broker.tcp_address) as producer:
        await producer.pub("t", b"x")
    address = destination.tcp_address
    flags = ("--topic=t", f"--lookupd-http-address={registry.http_address}", "--consumer-opt=lookupd_poll_interval,1s")
    ended = await (await start_tool("nsq_to_nsq", *flags, f"--destination-nsqd-tcp-address={address}")).end()
    expected = f"nsq_to_nsq: topic t of {address} would be published to itself; use --destination-topic\n"
    assert (ended.status, ended.err) == (1, expected)
    assert (await count_in(broker, "t"), await count_in(destination, "t")) == (1, 1)


async def test_nothing_is_lost_when_either_side_is_killed(broker, destination, relay, settled):
    """kill -9 of nsq_to_nsq and of the destination's broker in turn, while messages pass."""
    flags = (
        f"--destination-nsqd-tcp-address={destination.tcp_address}",
        *("--producer-opt=max_reconnect_delay,50ms", "--consumer-opt=max_backoff_duration,50ms", "--log-level=info"),
        *("--max-in-flight=50", "--status-every=0"),
    )
    bodies = []

    async def some_more_have_passed():
        before = await count_in(destination, "t", "depth")
        more = [b"%06d" % (len(bodies) + number) for number in range(10_000)]
        bodies.extend(more)
        async with Producer(broker.tcp_address) as producer:
            await producer.mpub("t", more)

        async def enough():
            return await count_in(destination, "t", "depth") >= before + 200

        await until(enough)

    tool = await relay([], *flags)
    await tool.logged("connected to nsqd")
    for _ in range(2):
        await some_more_have_passed()
        tool.process.kill()
        await tool.process.wait()
        tool = await relay([], *flags)
        await tool.logged("connected to nsqd")
        await some_more_have_passed()
        await destination.close()
        await destination.start()
    await settled("t", "nsq_to_nsq")
    seen = set()
    async with Consumer("t", "check", nsqd_tcp_addresses=[destination.tcp_address]) as consumer:
        consumer.change_max_in_flight(500)
        async with asyncio.timeout(DEADLINE_S):
            while len(seen) < len(bodies):
                message = await consumer.next_message()
                message.finish()
                seen.add(message.body)
    assert seen == set(bodies)
