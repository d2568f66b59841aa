"""Loads for aionsq, used as its documentation shows. Each runs in its own process, whose processor time is measured."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections import deque
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import uvloop

from aionsq import Consumer, ConsumerOptions, Ids, Message, Producer
from bench.load import Clock, Load

READY_COUNT = 2500


def _run(work: Coroutine[Any, Any, Load], *, on_uvloop: bool) -> Load:
    loop_factory = uvloop.new_event_loop if on_uvloop else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(work)


def publish(address: str, topic: str, bodies: list[bytes], seconds: float, window: int, on_uvloop: bool = True) -> Load:
    """Publish for ``seconds``, with up to ``window`` unanswered commands: PUB for one body, MPUB for several."""

    async def work() -> Load:
        async with Producer(address) as producer:
            send: Callable[[], asyncio.Future[Ids]] = (
                (lambda: producer.pub(topic, bodies[0])) if len(bodies) == 1 else (lambda: producer.mpub(topic, bodies))
            )
            under_way: deque[asyncio.Future[Ids]] = deque()
            count = 0
            clock, until = Clock(), time.perf_counter() + seconds
            while time.perf_counter() < until:
                if len(under_way) >= window:
                    await under_way.popleft()
                under_way.append(send())
                count += 1
            for answer in under_way:
                await answer
            return clock.load(count * len(bodies))

    return _run(work(), on_uvloop=on_uvloop)


def consume(address: str, topic: str, channel: str, expected: int, seconds: float, on_uvloop: bool = True) -> Load:
    """Consume with a coroutine handler and a FIN for each message, until all are consumed or ``seconds`` are over."""

    async def work() -> Load:
        options = ConsumerOptions(max_in_flight=READY_COUNT)
        consumer = Consumer(topic, channel, nsqd_tcp_addresses=[address], options=options)
        count, until = 0, time.perf_counter() + seconds

        async def handle(message: Message) -> None:
            nonlocal count
            count += 1
            if count == expected or (count % 64 == 0 and time.perf_counter() > until):
                consumer.begin_stop()

        clock = Clock()
        await consumer.run(handle)
        return clock.load(consumer.messages_finished)

    return _run(work(), on_uvloop=on_uvloop)


def ping(address: str, topic: str, channel: str, size: int, seconds: float, on_uvloop: bool = True) -> Load:
    """Publish a message, wait until the handler has it, and repeat. The time between is the latency."""

    async def work() -> Load:
        latencies = array("q")
        arrived = asyncio.Event()
        consumer = Consumer(topic, channel, nsqd_tcp_addresses=[address], options=ConsumerOptions(max_in_flight=10))

        async def handle(message: Message) -> None:
            latencies.append(time.perf_counter_ns() - sent_at)
            arrived.set()

        async with Producer(address) as producer:
            running = asyncio.create_task(consumer.run(handle))
            sent_at = time.perf_counter_ns()
            await producer.pub(topic, bytes(size))  # once the consumer has received this, it has subscribed
            await arrived.wait()
            del latencies[:]
            clock, until = Clock(), time.perf_counter() + seconds
            while time.perf_counter() < until:
                arrived.clear()
                sent_at = time.perf_counter_ns()
                publishing = producer.pub(topic, bytes(size))
                await arrived.wait()
                await publishing
            await consumer.stop(timedelta(seconds=1))
            await running
        return clock.load(len(latencies), latencies)

    return _run(work(), on_uvloop=on_uvloop)
