"""The row for many deferred messages of one channel, which become due over half a minute."""

from __future__ import annotations

import random
import struct
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from bench import load, wire
from bench.contenders import compared, contenders, not_compared
from bench.errors import BenchError
from bench.flow import Consumer
from bench.load import Clock, Load
from bench.measure import CHANNEL, TOPIC, Measured, Options, Row, Waits, create_work
from bench.processes import LoadProcesses

COUNT = 200_000
EARLIEST_MS = 2000
"""The shortest delay. Publishing should take less, so that publishing and delivery do not overlap."""
SPREAD = 10
"""The delays are spread over this many times ``--seconds``."""
BURST = 500
DELAY_BYTES = 8
"""Bytes of a delay, with which each body begins: the least size of a message."""


@dataclass(frozen=True)
class Fired:
    """Lateness of each message in ns, counted from its timestamp plus its delay."""

    load: Load
    late_ns: array[int]


def deferred(options: Options, processes: LoadProcesses) -> Iterator[Row]:
    """Publish with random delays, and finish each message. The processor time includes publishing and delivery."""
    count, spread_ms = min(COUNT, options.messages), int(SPREAD * options.seconds * 1000)
    measured: dict[str, Measured] = {}
    waits = []
    for name, started in contenders(options).items():
        with started() as server:
            create_work(server)
            before = server.processor_seconds()
            fired = processes.run(defer, server.tcp, count, spread_ms, max(DELAY_BYTES, options.size))
            measured[name] = Measured(fired.load, server.processor_seconds() - before, server.anonymous_bytes())
        waits.append(Waits.of(name, "later than due", fired.late_ns))
    ours = measured.pop("brokerd")
    also = {"processor s": ours.server_seconds} | {
        f"{name}, processor s": m.server_seconds for name, m in measured.items()
    }
    what = f"{count:,} DPUBs that come due over {spread_ms / 1000:g} s{not_compared(options)}"
    yield replace(ours.row("deferred", what, options, also=also | compared(ours, measured)), waits=waits)


def defer(address: tuple[str, int], count: int, spread_ms: int, size: int) -> Fired:
    """Publish ``count`` messages of ``size`` bytes and receive them all.

    Each body begins with its delay in ms, ``int64``, little-endian.
    """
    dice = random.Random(1)
    delays = [EARLIEST_MS + dice.randrange(spread_ms) for _ in range(count)]
    bodies = (struct.pack("<q", defer_ms).ljust(size, b"\0") for defer_ms in delays)
    commands = [wire.dpub(TOPIC, defer_ms, body) for defer_ms, body in zip(delays, bodies, strict=True)]
    consumer = Consumer(address, TOPIC, CHANNEL, size)
    publisher, replies = load.publisher(address)
    late: list[np.ndarray] = []
    received = 0
    with consumer.sock, publisher:
        clock = Clock()
        for start in range(0, count, BURST):
            burst = commands[start : start + BURST]
            publisher.sendall(b"".join(burst))
            replies.wait(len(burst))
        while received < count:
            try:
                defer_ms, timestamps = consumer.receive_stamped()
            except TimeoutError:
                raise BenchError(f"only {received} of {count} deferred messages arrived") from None
            late.append(time.time_ns() - timestamps - defer_ms * 1_000_000)
            received += len(defer_ms)
        done = clock.load(count)
    return Fired(done, array("q", np.concatenate(late).tobytes()))
