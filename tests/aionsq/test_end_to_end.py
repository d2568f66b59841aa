"""Producer, consumer and the real broker and registry together."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import pytest

from aionsq import Consumer, ConsumerOptions, Lookup, Node, Producer, ProducerOptions, WrongType
from nsqcluster.stats import ChannelStats
from tests.harness.waiting import DEADLINE_S, until

MS = timedelta(milliseconds=1)


def options(**changes) -> ConsumerOptions:
    return ConsumerOptions(**{"max_in_flight": 200, "lookupd_poll_interval": 200 * MS, **changes})


async def test_ten_thousand_messages_found_through_the_registry_arrive_once_each(broker, registry):
    """Published by PUB and MPUB, consumed by four handlers; nothing is lost, doubled or changed."""
    expected = [b"%d" % number for number in range(10_000)]
    seen: list[bytes] = []
    consumer = Consumer("orders", "archive", lookupd_http_addresses=[registry.http_address], options=options())

    async def handler(message):
        seen.append(message.body)
        if len(seen) == len(expected):
            consumer.begin_stop()

    async with Producer(broker.tcp_address) as producer, asyncio.timeout(DEADLINE_S):
        await producer.pub("orders", expected[0])
        running = asyncio.create_task(consumer.run(handler, concurrency=4))
        publishes = [producer.pub("orders", body) for body in expected[1:5000]]
        publishes += [producer.mpub("orders", expected[start : start + 100]) for start in range(5000, 10_000, 100)]
        await asyncio.gather(*publishes)
        await running
    assert sorted(seen) == sorted(expected)
    assert consumer.messages_finished == len(expected)
    async with Node(broker.http_address) as node:
        channel = (await node.stats("orders", "archive")).channel("orders", "archive")
    assert (channel.depth, channel.in_flight_count, channel.requeue_count) == (0, 0, 0)


async def test_a_requeued_message_comes_back_after_its_delay_with_one_more_attempt(broker):
    """The same id and body."""
    async with (
        Producer(broker.tcp_address) as producer,
        Consumer("t", "c", nsqd_tcp_addresses=[broker.tcp_address], options=options()) as consumer,
        asyncio.timeout(DEADLINE_S),
    ):
        await producer.pub("t", b"again")
        async for message in consumer:
            if message.attempts == 1:
                first, requeued_at = message.id, time.monotonic()
                message.requeue(300 * MS, backoff=False)
            else:
                assert (message.id, message.attempts, message.body) == (first, 2, b"again")
                assert time.monotonic() - requeued_at >= 0.29
                break


async def test_a_delay_that_is_no_timedelta_is_an_error_and_no_answer(broker):
    """The message can still be answered."""
    async with (
        Producer(broker.tcp_address) as producer,
        Consumer("t", "c", nsqd_tcp_addresses=[broker.tcp_address], options=options()) as consumer,
        asyncio.timeout(DEADLINE_S),
    ):
        await producer.pub("t", b"x")
        async for message in consumer:
            with pytest.raises(WrongType, match="a delay is a timedelta, not int"):
                message.requeue(5)
            assert not message.has_responded
            break
    assert consumer.messages_finished == 1


async def test_an_unanswered_message_times_out_and_touch_prevents_that(broker):
    """The message left alone is redelivered after msg_timeout; the one touched meanwhile is not."""
    attempts: list[tuple[bytes, int]] = []
    handled: list[bytes] = []

    async def handler(message):
        attempts.append((message.body, message.attempts))
        if message.attempts == 1:
            for _ in range(20):
                await asyncio.sleep(0.2)  # four seconds of work in all
                if message.body == b"touched":
                    message.touch()
        handled.append(message.body)

    consumer = Consumer(
        "t", "c", nsqd_tcp_addresses=[broker.tcp_address], options=options(msg_timeout=timedelta(seconds=3))
    )
    async with Producer(broker.tcp_address) as producer, asyncio.timeout(DEADLINE_S):
        running = asyncio.create_task(consumer.run(handler, concurrency=3))
        await producer.mpub("t", [b"touched", b"left alone"])
        await until(lambda: len(handled) == 3, "three deliveries are handled")
        assert await consumer.stop() == []
        await running
    assert sorted(attempts) == [(b"left alone", 1), (b"left alone", 2), (b"touched", 1)]


async def test_a_deferred_message_waits(broker):
    """It is not delivered before its delay."""
    async with (
        Producer(broker.tcp_address) as producer,
        Consumer("t", "c", nsqd_tcp_addresses=[broker.tcp_address], options=options()) as consumer,
        asyncio.timeout(DEADLINE_S),
    ):
        began_at = time.monotonic()
        await producer.dpub("t", 400 * MS, b"later")
        async for message in consumer:
            assert message.body == b"later"
            assert time.monotonic() - began_at >= 0.4
            break


async def test_a_broker_restart_loses_nothing(broker, registry):
    """The producer resends unanswered publishes, the consumer reconnects; every message arrives."""
    expected = {b"%d" % number for number in range(2_000)}
    seen: set[bytes] = set()
    consumer = Consumer("t", "c", lookupd_http_addresses=[registry.http_address], options=options())

    def handler(message):
        seen.add(message.body)
        if seen == expected:
            consumer.begin_stop()

    async with Producer(broker.tcp_address, ProducerOptions(resend=True)) as producer, asyncio.timeout(DEADLINE_S):
        running = asyncio.create_task(consumer.run(handler))
        publishes = []
        for number, body in enumerate(sorted(expected)):
            publishes.append(producer.pub("t", body))
            if number % 100 == 50:
                await publishes[-1]
            if number == 1_000:
                await broker.restart()
        await asyncio.gather(*publishes)
        await running
    assert seen == expected


async def test_lookup_and_node_return_topics_channels_and_stats(broker, registry):
    """Topics, channels, nodes, statistics; and the verbs change them."""
    async with Lookup([registry.http_address]) as lookup, Node(broker.http_address) as node:

        async def one_channel():
            return (await node.stats("t", "c")).channel("t", "c")

        assert await node.ping() == "OK"
        await node.topic("create", "t")
        await node.channel("create", "t", "c")
        await node.pub("t", b"x")
        await node.channel("pause", "t", "c")

        async def arrived():
            channel = await one_channel()
            return channel if channel.depth == 1 else None

        async def registered():
            return (await lookup.channels("t")).names == ("c",)

        # A new topic delivers nothing before the registry has answered which channels it knows.
        assert (await until(arrived)).paused
        assert (await node.info()).tcp_port == int(broker.tcp_address.rpartition(":")[2])
        await until(registered)
        assert (await lookup.topics()).names == ("t",)
        (found,) = (await lookup.producers("t")).producers
        assert (found.tcp_address, found.http_address) == (broker.tcp_address, broker.http_address)
        (known,) = (await lookup.nodes()).producers
        assert known.topics == ("t",)
        assert (await lookup.producers("unknown")).producers == ()


async def test_publishes_have_the_ids_of_their_messages(broker):
    """Alone, in an MPUB, deferred, and of many that went out together; nsqd's answer, without ids, gives none."""
    async with Producer(broker.tcp_address, ProducerOptions(publish_ids=True)) as producer:
        one = await producer.pub("t", b"one")
        several = await producer.mpub("t", [b"two", b"three"])
        later = await producer.dpub("t", timedelta(hours=1), b"later")
        many = await asyncio.gather(*(producer.pub("t", b"%d" % number) for number in range(100)))
    ids = [*one, *several, *later, *(message_id for ids in many for message_id in ids)]
    assert [len(each) for each in (one, several, later)] == [1, 2, 1]
    assert all(len(each) == 1 for each in many)
    numbers = [int(each, 16) for each in ids]
    assert numbers == list(range(numbers[0], numbers[0] + 104)), "in the order of publication"
    async with Producer(broker.tcp_address) as producer:
        assert await producer.pub("t", b"without") == ()


@pytest.mark.parametrize(("max_attempts", "deliveries", "dead"), [(5, 5, 0), (0, 7, 1)])
async def test_a_message_that_fails_is_kept_as_dead_only_without_the_limit_of_the_consumer(
    start_server, max_attempts, deliveries, dead
):
    """The pair that docs/client.md recommends: ``max_attempts=0`` and the broker's ``--max-attempts``.

    A consumer that gives up first finishes the message, and then it is gone.
    """
    broker = await start_server("brokerd", "--max-attempts=7")
    calls = 0

    def fail(message):
        nonlocal calls
        calls += 1
        raise ValueError("no")

    own = options(max_attempts=max_attempts, default_requeue_delay=0 * MS, max_backoff_duration=0 * MS)
    async with (
        Producer(broker.tcp_address) as producer,
        Consumer("t", "c", nsqd_tcp_addresses=broker.tcp_address, options=own) as consumer,
        Node(broker.http_address) as node,
    ):
        await producer.pub("t", b"poison")
        running = asyncio.create_task(consumer.run(fail))

        async def channel_now() -> ChannelStats:
            return (await node.stats("t", "c", include_histograms=True)).channel("t", "c")

        async def has_ended() -> bool:
            return consumer.messages_finished == 1 or (await channel_now()).dead_count == 1

        await until(has_ended)
        consumer.begin_stop()
        await running
        channel = await channel_now()
    assert (calls, consumer.messages_finished, channel.dead_count) == (deliveries, 1 - dead, dead)
