"""Loads for pynsq, used as its documentation shows: callbacks on tornado's loop, which is asyncio's."""

from __future__ import annotations

import logging
import time
from array import array
from typing import Any

import nsq
from tornado.ioloop import IOLoop

from bench.errors import BenchError
from bench.load import Clock, Load

READY_COUNT = 2500
CONNECT_SECONDS = 10.0


def _run_when_connected(loop: IOLoop, conns: dict[str, Any], begin: Any) -> None:
    """Run the loop until it is stopped, and call ``begin`` once there is a connection."""
    until = time.perf_counter() + CONNECT_SECONDS

    def look() -> None:
        if any(conn.connected() for conn in conns.values()):
            begin()
        elif time.perf_counter() > until:
            raise BenchError("pynsq does not connect")
        else:
            loop.call_later(0.01, look)

    logging.getLogger("nsq").setLevel(logging.CRITICAL)
    loop.call_later(0.01, look)
    loop.start()


def publish(address: str, topic: str, bodies: list[bytes], seconds: float, window: int) -> Load:
    """Publish for ``seconds``, with up to ``window`` unanswered commands: PUB for one body, MPUB for several."""
    loop = IOLoop.current()
    writer = nsq.Writer([address])
    answered = outstanding = 0
    failure = ""
    clock, until = Clock(), 0.0

    def send() -> None:
        nonlocal outstanding
        outstanding += 1
        if len(bodies) == 1:
            writer.pub(topic, bodies[0], callback=on_answer)
        else:
            writer.mpub(topic, bodies, callback=on_answer)

    def on_answer(connection: Any, data: Any) -> None:
        nonlocal answered, outstanding, failure
        outstanding -= 1
        if data != b"OK":
            failure = repr(data)
            loop.stop()
            return
        answered += 1
        if time.perf_counter() < until:
            send()
        elif not outstanding:
            loop.stop()

    def begin() -> None:
        nonlocal clock, until
        clock, until = Clock(), time.perf_counter() + seconds
        for _ in range(window):
            send()

    _run_when_connected(loop, writer.conns, begin)
    if failure:
        raise BenchError(f"pynsq was answered {failure}")
    return clock.load(answered * len(bodies))


def consume(address: str, topic: str, channel: str, expected: int, seconds: float) -> Load:
    """Consume with a plain handler and a FIN for each message, until all are consumed or ``seconds`` have passed."""
    loop = IOLoop.current()
    logging.getLogger("nsq").setLevel(logging.CRITICAL)
    count = 0
    clock, until = Clock(), time.perf_counter() + seconds

    def handle(message: Any) -> bool:
        nonlocal count
        count += 1
        if count == expected or (count % 64 == 0 and time.perf_counter() > until):
            loop.add_callback(loop.stop)
        return True

    nsq.Reader(topic, channel, handle, nsqd_tcp_addresses=[address], max_in_flight=READY_COUNT)
    loop.start()
    return clock.load(count)


def ping(address: str, topic: str, channel: str, size: int, seconds: float) -> Load:
    """Publish a message, wait until the handler has it, and repeat. The time between is the latency."""
    loop = IOLoop.current()
    latencies = array("q")
    writer = nsq.Writer([address])
    sent_at = 0
    clock, until = Clock(), 0.0

    def send() -> None:
        nonlocal sent_at
        sent_at = time.perf_counter_ns()
        writer.pub(topic, bytes(size), callback=lambda connection, data: None)

    def handle(message: Any) -> bool:
        nonlocal clock, until
        now = time.perf_counter_ns()
        if not until:  # the first message, published before the subscription
            clock, until = Clock(), time.perf_counter() + seconds
        else:
            latencies.append(now - sent_at)
        if time.perf_counter() < until:
            loop.add_callback(send)  # after the FIN
        else:
            loop.stop()
        return True

    nsq.Reader(topic, channel, handle, nsqd_tcp_addresses=[address], max_in_flight=10)
    _run_when_connected(loop, writer.conns, send)
    return clock.load(len(latencies), latencies)
