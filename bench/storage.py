"""The rows for stored data: a long backlog, many topics, and the time from start to first response."""

from __future__ import annotations

import dataclasses
import math
import statistics
import tempfile
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import load, wire
from bench.contenders import contenders, not_compared
from bench.errors import BenchError
from bench.links import connect
from bench.load import Load
from bench.measure import (
    CHANNEL,
    PATIENCE_SECONDS,
    TOPIC,
    Measured,
    Options,
    Row,
    ask,
    ask_all,
    check_counts,
    counts,
    create,
    create_work,
    drain,
    measure,
    mebibytes,
)
from bench.processes import LoadProcesses, pin, resident_bytes
from bench.server import Address, Server, start_brokerd

CHANNELS_PER_TOPIC = 5
STARTS = 5
REQUESTS = 50


@contextmanager
def data_directory(options: Options) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.data_path) as path:
        yield Path(path)


@contextmanager
def started(options: Options, data_path: Path) -> Iterator[tuple[Server, float]]:
    """Start a broker on ``data_path``; also yield the seconds until ``/ping`` answers.

    The block must stop the broker.
    """
    begun = time.perf_counter()
    server = start_brokerd(data_path, twin=options.twin)
    try:
        pin(server.pid, options.cores.server)
        ask(server.http, "GET", "/ping")
        yield server, time.perf_counter() - begun
    finally:
        if server.process.poll() is None:
            server.kill()


def first_message(address: Address) -> None:
    """Wait until a new consumer has received its first message; it disconnects without finishing it."""
    with connect(address) as sock:
        sock.sendall(wire.MAGIC + f"SUB {TOPIC} {CHANNEL}\nRDY 1\n".encode())
        data = b""
        while True:
            for kind, payload, _ in load.frames_in(data):
                if kind == wire.MESSAGE:
                    return
                if kind == wire.ERROR:
                    raise BenchError(f"the server answered {payload.decode(errors='replace')}")
            if not (part := sock.recv(65536)):
                raise BenchError("the server closed the connection")
            data += part


def backlog(options: Options, processes: LoadProcesses) -> Iterator[Row]:
    """Fill a channel with many messages, restart the broker after SIGTERM and after a kill, then drain the channel."""
    commands = max(1, options.messages // options.batch)
    messages = commands * options.batch
    what = f"{messages:,} messages of {options.size} B"
    with data_directory(options) as data_path:
        with started(options, data_path) as (server, _):
            create_work(server)

            def fill() -> Load:
                command = options.batch_command
                return processes.run(load.publish, server.tcp, command, options.batch, math.inf, commands)

            filled = measure(server, fill)
            check_counts(server, messages, 0)
            server.stop()
        yield filled.row("backlog in", what, options)
        restarts: dict[str, float] = {}
        for how in ("SIGTERM", "kill -9"):
            begun = time.perf_counter()
            with started(options, data_path) as (server, to_ping):
                first_message(server.tcp)
                restarts[f"/ping after {how}, s"] = to_ping
                restarts[f"first message after {how}, s"] = time.perf_counter() - begun
                restarts[f"anon MB after {how}"] = mebibytes(server.anonymous_bytes()) or math.nan
                server.kill()
        with started(options, data_path) as (server, _):
            drained = measure(server, lambda: drain(options, processes, server.tcp, messages, PATIENCE_SECONDS))
            _, left = counts(server)
            if left or drained.load.messages != messages:
                raise BenchError(
                    f"{messages} messages were stored, {drained.load.messages} delivered and {left} are left"
                )
            server.stop()
        yield drained.row("backlog out", what, options, also=restarts)


def topics(options: Options, processes: LoadProcesses) -> Iterator[Row]:
    """Measure the memory of many topics without traffic, and the time of ``/stats``."""
    names = [f"topic{i:05}" for i in range(options.topics)]
    channels = [f"channel{i}" for i in range(CHANNELS_PER_TOPIC)]
    with data_directory(options) as data_path, started(options, data_path) as (server, _):
        empty = mebibytes(server.anonymous_bytes()) or math.nan
        create(server, dict.fromkeys(names, channels))
        result, nbytes = ask_stats(server)
        also = {"anon MB before": empty, "resident MB": mebibytes(resident_bytes(server.pid)) or math.nan}
        server.stop()
        also["answer kB"] = nbytes / 1000
        begun = time.perf_counter()
        with started(options, data_path) as (again, to_ping):
            also["/ping after restart, s"] = to_ping
            ask(again.http, "GET", "/stats?format=json")
            also["/stats after restart, s"] = time.perf_counter() - begun
            again.stop()
    what = f"/stats JSON of {options.topics:,} topics × {CHANNELS_PER_TOPIC} idle channels"
    yield dataclasses.replace(result.row("topics", what, options, also=also), size=0)


def ask_stats(server: Server) -> tuple[Measured, int]:
    """Request ``/stats`` repeatedly; also returns the length of a response in bytes."""
    before, clock = server.processor_seconds(), load.Clock()
    times = array("q")
    for _ in range(REQUESTS):
        begun = time.perf_counter_ns()
        [answer] = ask_all(server.http, "GET", ["/stats?format=json"])
        times.append(time.perf_counter_ns() - begun)
    done = clock.load(REQUESTS, times)
    return Measured(done, server.processor_seconds() - before, server.anonymous_bytes()), len(answer)


def start(options: Options, processes: LoadProcesses) -> Iterator[Row]:
    """Measure the time from the start of the process to the response to ``/ping``, on an empty data path."""
    also: dict[str, float] = {}
    anonymous: float | None = None
    for name, begin in contenders(options).items():
        seconds = []
        for _ in range(STARTS):
            begun = time.perf_counter()
            with begin() as server:
                ask(server.http, "GET", "/ping")
                seconds.append(time.perf_counter() - begun)
                if name == "brokerd":
                    anonymous = mebibytes(server.anonymous_bytes())
        prefix = "" if name == "brokerd" else f"{name}, "
        also[f"{prefix}/ping s, median"] = statistics.median(seconds)
        also[f"{prefix}/ping s, max"] = max(seconds)
    what = f"{STARTS} starts{not_compared(options)}"
    yield Row(name="start", what=what, twin=options.twin, size=0, anonymous_mb=anonymous, also=also)
