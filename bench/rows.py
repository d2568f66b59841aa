"""The rows of the table: which load meets which server, and what it is compared with."""

from __future__ import annotations

import http.client
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench import load, wire
from bench.errors import BenchError
from bench.load import Load
from bench.processes import Cores, LoadProcesses, load_processes
from bench.server import Address, Server, brokerd, floor

TOPIC, CHANNEL = "bench", "work"
CONNECTIONS = 32
MPUB_CONNECTIONS = 4
READY_COUNT = 2500
PATIENCE_SECONDS = 600.0
"""How long a consumer may take over what was published before the row is given up."""
FANOUT_CHANNELS = (1, 10, 50)


@dataclass(frozen=True, kw_only=True)
class Options:
    """How long, how large and where."""

    seconds: float
    size: int
    batch: int
    data_path: Path | None
    twin: bool
    cores: Cores

    @property
    def body(self) -> bytes:
        return bytes(self.size)

    @property
    def batch_command(self) -> bytes:
        return wire.mpub(TOPIC, [self.body] * self.batch)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table. The ``floor_`` figures and those of the generator are of the same run."""

    name: str
    what: str
    messages: int
    seconds: float
    size: int
    broker_us: float
    """Processor time of the broker per message, in µs; ``floor_us`` is the floor's."""
    broker_busy: float
    load_busy: float
    """Processor time over wall time. A generator near 1 is itself the limit: the broker could do more."""
    floor_per_second: float | None = None
    floor_us: float | None = None
    cost_ratio: float | None = None
    """For fan-out: ``broker_us`` over that with one channel."""
    p50_us: float | None = None
    p99_us: float | None = None
    anonymous_mb: float | None = None

    @property
    def per_second(self) -> float:
        return self.messages / self.seconds

    @property
    def mb_per_second(self) -> float:
        """Of bodies, in MiB, as bench_writer and bench_reader count."""
        return self.per_second * self.size / (1 << 20)

    @property
    def floor_ratio(self) -> float | None:
        return self.per_second / self.floor_per_second if self.floor_per_second else None

    def as_json(self) -> dict[str, Any]:
        derived = {name: getattr(self, name) for name in ("per_second", "mb_per_second", "floor_ratio")}
        return asdict(self) | derived


@dataclass(frozen=True)
class Measured:
    """A load's own figures and what its server spent meanwhile."""

    load: Load
    server_seconds: float
    anonymous: int | None

    @property
    def us_per_message(self) -> float:
        return self.server_seconds / max(self.load.messages, 1) * 1e6

    def row(self, name: str, what: str, options: Options, floor: Measured | None, **more: float | None) -> Row:
        return Row(
            name=name,
            what=what,
            messages=self.load.messages,
            seconds=self.load.seconds,
            size=options.size,
            broker_us=self.us_per_message,
            broker_busy=self.server_seconds / self.load.seconds,
            load_busy=self.load.processor_seconds / self.load.seconds,
            floor_per_second=floor.load.messages / floor.load.seconds if floor else None,
            floor_us=floor.us_per_message if floor else None,
            p50_us=self.load.p50_us,
            p99_us=self.load.p99_us,
            anonymous_mb=self.anonymous / (1 << 20) if self.anonymous is not None else None,
            **more,
        )


def measure(server: Server, run: Callable[[], Load]) -> Measured:
    before = server.processor_seconds()
    done = run()
    if not done.messages:
        raise BenchError("not one message went through")
    return Measured(done, server.processor_seconds() - before, server.anonymous_bytes())


def ask(address: Address, method: str, path: str) -> bytes:
    """One HTTP request to the broker; raises BenchError unless it answers 200."""
    connection = http.client.HTTPConnection(*address, timeout=load.SILENCE_SECONDS)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    if answer.status != 200:
        raise BenchError(f"{method} {path} answered {answer.status} {body.decode(errors='replace')}")
    return body


def create(server: Server, channels: int) -> list[str]:
    """Create the topic and its channels; the first is the one a consumer drains."""
    ask(server.http, "POST", f"/topic/create?topic={TOPIC}")
    names = [CHANNEL, *(f"idle{i}" for i in range(1, channels))]
    for name in names:
        ask(server.http, "POST", f"/channel/create?topic={TOPIC}&channel={name}")
    return names


def check_counts(server: Server, published: int, finished: int) -> None:
    """Hold what the generators counted against the broker's own figures; a fast broker that loses is no use."""
    stats = json.loads(ask(server.http, "GET", f"/stats?format=json&topic={TOPIC}"))
    topic = stats["topics"][0]
    [channel] = [each for each in topic["channels"] if each["channel_name"] == CHANNEL]
    left = channel["depth"] + channel["in_flight_count"] + channel["deferred_count"]
    if topic["message_count"] != published or left != published - finished:
        raise BenchError(
            f"{published} messages were acknowledged and {finished} finished, but the broker counts "
            f"{topic['message_count']} with {left} left"
        )


def pub_floor(options: Options, processes: LoadProcesses, command: bytes, run: Callable[[Address], Load]) -> Measured:
    arguments = ["swallow", f"--first={len(load.GREETING)}", f"--every={len(command)}"]
    with floor(options.cores, *arguments) as server:
        return measure(server, lambda: run(server.tcp))


def pub(options: Options, processes: LoadProcesses) -> Iterator[Row]:
    command = options.batch_command

    def run(address: Address) -> Load:
        return processes.run(load.publish, address, command, options.batch, options.seconds)

    bottom = pub_floor(options, processes, command, run)
    with brokerd(options.cores, options.data_path, twin=options.twin) as server:
        create(server, 1)
        result = measure(server, lambda: run(server.tcp))
        check_counts(server, result.load.messages, 0)
        yield result.row("pub", f"MPUB {options.batch} × {options.size} B, one connection", options, bottom)


def pub1(options: Options, processes: LoadProcesses) -> Iterator[Row]:
    command = wire.pub(TOPIC, options.body)

    def run(address: Address) -> Load:
        return processes.run(load.publish_one_at_a_time, address, command, options.seconds)

    bottom = pub_floor(options, processes, command, run)
    with brokerd(options.cores, options.data_path, twin=options.twin) as server:
        create(server, 1)
        result = measure(server, lambda: run(server.tcp))
        check_counts(server, result.load.messages, 0)
        yield result.row("pub1", "PUB, waiting for each OK", options, bottom)


def drain(options: Options, processes: LoadProcesses, address: Address, expected: float, seconds: float) -> Load:
    return processes.run(
        load.consume,
        address,
        TOPIC,
        CHANNEL,
        expected=expected,
        size=options.size,
        ready_count=READY_COUNT,
        seconds=seconds,
    )


def sub(options: Options, processes: LoadProcesses) -> Iterator[Row]:
    with brokerd(options.cores, options.data_path, twin=options.twin) as server:
        create(server, 1)
        filled = processes.run(load.publish, server.tcp, options.batch_command, options.batch, options.seconds)
        result = measure(server, lambda: drain(options, processes, server.tcp, filled.messages, PATIENCE_SECONDS))
        check_counts(server, filled.messages, result.load.messages)
    with floor(options.cores, "blast", f"--size={options.size}") as server:
        bottom = measure(server, lambda: drain(options, processes, server.tcp, math.inf, options.seconds))
    yield result.row("sub", f"RDY {READY_COUNT}, FIN each, one connection", options, bottom)


def over_http(
    name: str, what: str, options: Options, processes: LoadProcesses, request: bytes, messages: int, connections: int
) -> Iterator[Row]:
    def run(address: Address) -> Load:
        return processes.run(load.post, address, request, messages, options.seconds, connections)

    with floor(options.cores, "respond") as server:
        bottom = measure(server, lambda: run(server.tcp))
    with brokerd(options.cores, options.data_path, twin=options.twin) as server:
        create(server, 1)
        result = measure(server, lambda: run(server.http))
        check_counts(server, result.load.messages, 0)
        yield result.row(name, what, options, bottom)


def http_pub(options: Options, processes: LoadProcesses) -> Iterator[Row]:
    request = wire.post(f"/pub?topic={TOPIC}", options.body)
    what = f"POST /pub, {CONNECTIONS} keep-alive connections"
    return over_http("http", what, options, processes, request, 1, CONNECTIONS)


def http_mpub(options: Options, processes: LoadProcesses) -> Iterator[Row]:
    request = wire.post(f"/mpub?topic={TOPIC}&binary=true", wire.batch([options.body] * options.batch))
    what = f"POST /mpub {options.batch} × {options.size} B, {MPUB_CONNECTIONS} connections"
    return over_http("mpub", what, options, processes, request, options.batch, MPUB_CONNECTIONS)


def fanout(options: Options, processes: LoadProcesses) -> Iterator[Row]:
    """A publisher at full speed, a consumer that drains one of the channels, and the rest of them idle.

    Every row does the same work: as many batches as one channel takes in half the time given.
    """
    command = options.batch_command
    with brokerd(options.cores, options.data_path, twin=options.twin) as server:
        create(server, 1)
        trial = processes.run(load.publish, server.tcp, command, options.batch, options.seconds / 2)
    alone: float | None = None
    for channels in FANOUT_CHANNELS:
        with brokerd(options.cores, options.data_path, twin=options.twin) as server:
            create(server, channels)

            def run(server: Server = server) -> Load:
                commands = trial.messages // options.batch
                publishing = processes.start(load.publish, server.tcp, command, options.batch, math.inf, commands)
                drained = drain(options, processes, server.tcp, trial.messages, PATIENCE_SECONDS)
                published = publishing.result()
                check_counts(server, published.messages, drained.messages)
                seconds = max(published.seconds, drained.seconds)
                return Load(published.messages, seconds, published.processor_seconds + drained.processor_seconds)

            result = measure(server, run)
            alone = alone or result.us_per_message
            yield result.row(
                f"fanout {channels}",
                f"to {channels} channel{'s' * (channels > 1)}, one of them drained meanwhile",
                options,
                None,
                cost_ratio=result.us_per_message / alone,
            )


ROWS: dict[str, Callable[[Options, LoadProcesses], Iterator[Row]]] = {
    "pub": pub,
    "pub1": pub1,
    "sub": sub,
    "http": http_pub,
    "mpub": http_mpub,
    "fanout": fanout,
}


def run(names: list[str], options: Options) -> Iterator[Row]:
    """Yield the rows of ``names`` as they are measured, each against a broker and data path of its own."""
    for name in names:
        with load_processes(options.cores) as processes:
            yield from ROWS[name](options, processes)
