"""Common parts of the rows: options, figures, requests to the server, and checks of its counts."""

from __future__ import annotations

import http.client
import json
import math
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from bench import load, wire
from bench.errors import BenchError
from bench.links import SILENCE_SECONDS, Layer
from bench.load import Load
from bench.processes import Cores, LoadProcesses
from bench.server import Address, Server

TOPIC, CHANNEL = "bench", "work"
READY_COUNT = 2500
PATIENCE_SECONDS = 600.0
"""Longest time for consuming the published messages. After it, the row fails."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of all rows: durations, sizes, counts and locations."""

    seconds: float
    rounds: int
    size: int
    batch: int
    messages: int
    connections: int
    channels: int
    topics: int
    data_path: Path | None
    reference: Path | None
    """Directory of the reference's ``nsqd`` and ``nsqlookupd``; None if not given."""
    rates: Sequence[int]
    """Messages per second that ``latency`` sends."""
    twin: bool
    cores: Cores

    @property
    def body(self) -> bytes:
        return bytes(self.size)

    @property
    def batch_command(self) -> bytes:
        return wire.mpub(TOPIC, [self.body] * self.batch)


@dataclass(frozen=True)
class Waits:
    """Percentiles of times measured from when each event was due. ``to_quiet`` is p99 relative to a quiet run."""

    server: str
    what: str
    count: int
    p50_us: float
    p99_us: float
    p999_us: float
    max_us: float
    to_quiet: float | None = None

    @classmethod
    def of(cls, server: str, what: str, waits_ns: array[int], quiet: Waits | None = None) -> Waits:
        p50, p99, p999, most = np.percentile(np.frombuffer(waits_ns, np.int64), [50, 99, 99.9, 100]) / 1e3
        to_quiet = None if quiet is None else float(p99) / quiet.p99_us
        return cls(server, what, len(waits_ns), float(p50), float(p99), float(p999), float(most), to_quiet)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table. The ``floor_`` figures are from the same run."""

    name: str
    what: str
    twin: bool
    size: int
    messages: int = 0
    """Number of messages; in rows about HTTP responses, of requests; 0 if the row counts nothing."""
    seconds: float = math.nan
    broker_us: float | None = None
    """Processor time of the broker per message, in µs; ``floor_us`` is the floor's."""
    broker_busy: float | None = None
    load_busy: float | None = None
    """Processor time over wall time. A generator near 1 is the bottleneck: the broker could be faster."""
    spread: float | None = None
    """Spread of the rounds: the largest rate minus the smallest, divided by the median, which is the row's rate."""
    floor_per_second: float | None = None
    floor_us: float | None = None
    kept_per_second: float | None = None
    kept_us: float | None = None
    """Processor time, and above it the rate, of the floor that stores the bytes in files or sends them from files."""
    cost_ratio: float | None = None
    """``broker_us`` relative to the row's first variant: one channel, no idle connections, or no policy."""
    p50_us: float | None = None
    p99_us: float | None = None
    anonymous_mb: float | None = None
    also: Mapping[str, float] = field(default_factory=dict)
    """Figures that only this row has; the key contains name and unit."""
    waits: Sequence[Waits] = ()

    @property
    def per_second(self) -> float | None:
        return self.messages / self.seconds if self.messages else None

    @property
    def mb_per_second(self) -> float | None:
        """MiB of bodies per second, the figure that NSQ's bench_writer and bench_reader print."""
        return self.per_second * self.size / (1 << 20) if self.per_second and self.size else None

    @property
    def floor_ratio(self) -> float | None:
        return self.per_second / self.floor_per_second if self.per_second and self.floor_per_second else None

    @property
    def kept_ratio(self) -> float | None:
        return self.per_second / self.kept_per_second if self.per_second and self.kept_per_second else None

    def as_json(self) -> dict[str, Any]:
        derived = {name: getattr(self, name) for name in ("per_second", "mb_per_second", "floor_ratio", "kept_ratio")}
        seconds = self.seconds if self.messages else None
        return asdict(self) | derived | {"seconds": seconds}


@dataclass(frozen=True)
class Measured:
    """The figures of a load, and the server's processor time meanwhile."""

    load: Load
    server_seconds: float
    anonymous_bytes: int | None
    spread: float | None = None

    @property
    def per_second(self) -> float:
        return self.load.messages / self.load.seconds

    @property
    def us_per_message(self) -> float:
        return self.server_seconds / max(self.load.messages, 1) * 1e6

    def row(
        self,
        name: str,
        what: str,
        options: Options,
        floor: Measured | None = None,
        *,
        kept: Measured | None = None,
        cost_ratio: float | None = None,
        also: Mapping[str, float] | None = None,
    ) -> Row:
        return Row(
            name=name,
            what=what,
            twin=options.twin,
            size=options.size,
            messages=self.load.messages,
            seconds=self.load.seconds,
            broker_us=self.us_per_message,
            broker_busy=self.server_seconds / self.load.seconds,
            load_busy=self.load.processor_seconds / self.load.seconds,
            spread=self.spread,
            floor_per_second=floor.per_second if floor else None,
            floor_us=floor.us_per_message if floor else None,
            kept_per_second=kept.per_second if kept else None,
            kept_us=kept.us_per_message if kept else None,
            cost_ratio=cost_ratio,
            p50_us=self.load.p50_us,
            p99_us=self.load.p99_us,
            anonymous_mb=mebibytes(self.anonymous_bytes),
            also=also or {},
        )


def mebibytes(nbytes: int | None) -> float | None:
    return None if nbytes is None else nbytes / (1 << 20)


def measure(server: Server, run: Callable[[], Load]) -> Measured:
    before = server.processor_seconds()
    done = run()
    if not done.messages:
        raise BenchError("no message was processed")
    return Measured(done, server.processor_seconds() - before, server.anonymous_bytes())


def alternating(options: Options, *runs: Callable[[Options], Measured]) -> list[list[Measured]]:
    """Run all of ``runs`` one after the other, and repeat this ``options.rounds`` times, with shares of ``seconds``.

    Other load on the machine then affects all of them equally. Returns the rounds of each.
    """
    short = replace(options, seconds=options.seconds / options.rounds)
    rounds = [[run(short) for run in runs] for _ in range(options.rounds)]
    return [list(each) for each in zip(*rounds, strict=True)]


def middle(rounds: Sequence[Measured]) -> Measured:
    """Return the round with the median rate, with the spread of all rounds."""
    ordered = sorted(rounds, key=lambda each: each.per_second)
    median = ordered[len(ordered) // 2]
    spread = (ordered[-1].per_second - ordered[0].per_second) / median.per_second
    return replace(median, spread=spread if len(ordered) > 1 else None)


def ask(address: Address, method: str, path: str) -> bytes:
    """Send one HTTP request to the broker; raises BenchError unless the status is 200."""
    [body] = ask_all(address, method, [path])
    return body


def ask_all(address: Address, method: str, paths: Iterable[str]) -> list[bytes]:
    """Like ``ask``, for several requests on one connection."""
    connection = http.client.HTTPConnection(*address, timeout=SILENCE_SECONDS)
    bodies = []
    try:
        for path in paths:
            connection.request(method, path)
            answer = connection.getresponse()
            bodies.append(answer.read())
            if answer.status != 200:
                text = bodies[-1].decode(errors="replace")
                raise BenchError(f"{method} {path} answered {answer.status} {text}")
    except http.client.HTTPException as error:
        raise BenchError(f"{method} {path} was not answered: {error!r}") from error
    finally:
        connection.close()
    return bodies


def create(server: Server, topics: Mapping[str, Iterable[str]]) -> None:
    """Create topics and their channels."""
    ask_all(server.http, "POST", (f"/topic/create?topic={topic}" for topic in topics))
    pairs = ((topic, channel) for topic, channels in topics.items() for channel in channels)
    ask_all(server.http, "POST", (f"/channel/create?topic={topic}&channel={channel}" for topic, channel in pairs))


def create_work(server: Server, channels: int = 1) -> None:
    """Create the topic of the load and its channels; a consumer drains the first channel."""
    create(server, {TOPIC: [CHANNEL, *(f"idle{i}" for i in range(1, channels))]})


def check_counts(server: Server, published: int, finished: int) -> None:
    """Compare the generators' counts with the broker's figures, so that lost messages fail the row."""
    counted, left = counts(server)
    if counted != published or left != published - finished:
        raise BenchError(
            f"{published} messages were acknowledged and {finished} finished, but the broker counts "
            f"{counted} with {left} left"
        )


def counts(server: Server) -> tuple[int, int]:
    """Return the number of messages published since the broker's start, and of unfinished ones in the work channel."""
    stats = json.loads(ask(server.http, "GET", f"/stats?format=json&topic={TOPIC}"))
    topic = stats["topics"][0]
    [channel] = [each for each in topic["channels"] if each["channel_name"] == CHANNEL]
    return topic["message_count"], channel["depth"] + channel["in_flight_count"] + channel["deferred_count"]


def drain(
    options: Options,
    processes: LoadProcesses,
    address: Address,
    expected: float,
    seconds: float,
    layer: Layer | None = None,
) -> Load:
    return processes.run(
        load.consume,
        address,
        TOPIC,
        CHANNEL,
        expected=expected,
        size=options.size,
        ready_count=READY_COUNT,
        seconds=seconds,
        layer=layer,
    )
