"""The rows for nsqadmin's HTTP API: ``/api/topics`` and ``/api/counter``."""

from __future__ import annotations

import http.client
import json
import tempfile
import time
from array import array
from collections.abc import Iterator
from contextlib import suppress

from bench.errors import BenchError
from bench.family import family_seconds
from bench.load import Clock, Load
from bench.measure import Options, Row, ask, create
from bench.ports import free_ports
from bench.processes import LoadProcesses
from bench.server import Address, Server, brokerd, nsqadmin
from bench.storage import CHANNELS_PER_TOPIC

CLIENTS = 4
READY_SECONDS = 60.0


def admin(options: Options, processes: LoadProcesses) -> Iterator[Row]:
    """Measure ``nsqadmin`` with four clients, a registry, and a broker with ``--topics`` topics of five channels."""
    registry_tcp, registry_http = free_ports(2)
    lookup = Server(
        ["-m", "nsqlookup", f"--tcp-address=127.0.0.1:{registry_tcp}", f"--http-address=127.0.0.1:{registry_http}"],
        ["TCP", "HTTP"],
    )
    try:
        with (
            brokerd(options.cores, options.data_path, f"--lookupd-tcp-address=127.0.0.1:{registry_tcp}") as broker,
            tempfile.TemporaryDirectory(prefix="bench-") as home,
        ):
            channels = [f"channel{i}" for i in range(CHANNELS_PER_TOPIC)]
            create(broker, {f"topic{i:05}": channels for i in range(options.topics)})
            with nsqadmin(home, f"--lookupd-http-address=127.0.0.1:{registry_http}") as platform:
                wait_for_snapshot(platform.http, options.topics)
                for path in ("/api/topics", "/api/counter"):
                    yield measured(options, processes, platform, path)
    finally:
        lookup.stop()


def measured(options: Options, processes: LoadProcesses, platform: Server, path: str) -> Row:
    before = family_seconds(platform.pid)
    running = [processes.start(ask_often, platform.http, path, options.seconds) for _ in range(CLIENTS)]
    loads = [each.result() for each in running]
    spent = family_seconds(platform.pid) - before
    count = sum(load.messages for load in loads)
    seconds = max(load.seconds for load in loads)
    return Row(
        name=f"admin {path}",
        what=f"{CLIENTS} clients, {options.topics:,} topics × {CHANNELS_PER_TOPIC} channels",
        twin=options.twin,
        size=0,
        messages=count,
        seconds=seconds,
        broker_us=spent / count * 1e6,
        broker_busy=spent / seconds,
        load_busy=sum(load.processor_seconds for load in loads) / seconds,
        p50_us=max(load.p50_us or 0 for load in loads),
        p99_us=max(load.p99_us or 0 for load in loads),
        also={"answer kB": len(ask(platform.http, "GET", path)) / 1000},
    )


def ask_often(address: Address, path: str, seconds: float, *, pause_s: float = 0.0) -> Load:
    """GET repeatedly on one connection, ``pause_s`` apart. Raises BenchError unless all responses are 200."""
    connection = http.client.HTTPConnection(*address, timeout=30)
    times = array("q")
    clock, end = Clock(), time.monotonic() + seconds
    while time.monotonic() < end:
        begun = time.perf_counter_ns()
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        times.append(time.perf_counter_ns() - begun)
        if answer.status != 200:
            raise BenchError(f"GET {path} answered {answer.status}")
        if pause_s:
            time.sleep(pause_s)
    connection.close()
    return clock.load(len(times), times)


def wait_for_snapshot(address: Address, topics: int) -> None:
    """Wait until the platform knows all topics and their channels; the broker registers them one by one."""
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        with suppress(BenchError, OSError):
            counted = json.loads(ask(address, "GET", "/api/counter"))["stats"]
            if len(counted) == topics * CHANNELS_PER_TOPIC:
                return
        time.sleep(0.5)
    raise BenchError(f"the platform did not know of {topics} topics within {READY_SECONDS:.0f} s")
