"""Loads for gnsq, used as its documentation shows: blocking code in gevent's greenlets."""

from __future__ import annotations

import logging
import time
from array import array
from collections import deque
from typing import Any

import gevent
import gnsq
from gevent.event import Event

from bench.load import Clock, Load

READY_COUNT = 2500


def publish(address: str, topic: str, bodies: list[bytes], seconds: float, window: int) -> Load:
    """Publish for ``seconds``, with up to ``window`` unanswered commands: PUB for one body, MPUB for several."""
    producer = gnsq.Producer(address)
    producer.start()
    under_way: deque[Any] = deque()
    count = 0
    clock, until = Clock(), time.perf_counter() + seconds
    while time.perf_counter() < until:
        if len(under_way) >= window:
            under_way.popleft().get()
        if len(bodies) == 1:
            under_way.append(producer.publish(topic, bodies[0], raise_error=False))
        else:
            under_way.append(producer.multipublish(topic, bodies, raise_error=False))
        count += 1
    for answer in under_way:
        answer.get()
    done = clock.load(count * len(bodies))
    producer.close()
    return done


def consume(address: str, topic: str, channel: str, expected: int, seconds: float) -> Load:
    """Consume with a handler and a FIN for each message, until all are consumed or ``seconds`` have passed."""
    consumer, done, count = _consumer(address, topic, channel, READY_COUNT), Event(), 0
    clock, until = Clock(), time.perf_counter() + seconds

    def handle(consumer: Any, message: Any) -> None:
        nonlocal count
        count += 1
        if count == expected or (count % 64 == 0 and time.perf_counter() > until):
            done.set()

    consumer.on_message.connect(handle, weak=False)
    consumer.start(block=False)
    done.wait()
    return clock.load(count)


def ping(address: str, topic: str, channel: str, size: int, seconds: float) -> Load:
    """Publish a message, wait until the handler has it, and repeat. The time between is the latency."""
    producer, consumer = gnsq.Producer(address), _consumer(address, topic, channel, 10)
    latencies, arrived, sent_at = array("q"), Event(), time.perf_counter_ns()

    def handle(consumer: Any, message: Any) -> None:
        latencies.append(time.perf_counter_ns() - sent_at)
        arrived.set()

    consumer.on_message.connect(handle, weak=False)
    producer.start()
    producer.publish(topic, bytes(size))
    consumer.start(block=False)
    arrived.wait()
    latencies = array("q")
    clock, until = Clock(), time.perf_counter() + seconds
    while time.perf_counter() < until:
        arrived.clear()
        sent_at = time.perf_counter_ns()
        answer = producer.publish(topic, bytes(size), raise_error=False)
        arrived.wait()
        answer.get()
    done = clock.load(len(latencies), latencies)
    producer.close()
    gevent.sleep(0)
    return done


def _consumer(address: str, topic: str, channel: str, max_in_flight: int) -> Any:
    logging.getLogger("gnsq").setLevel(logging.CRITICAL)
    return gnsq.Consumer(topic, channel, nsqd_tcp_addresses=[address], max_in_flight=max_in_flight)
