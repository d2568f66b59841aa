"""The rows for throughput: messages per second in and out, and the processor time per message."""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial

from bench import load, wire
from bench.contenders import compared, contenders, not_compared
from bench.load import Load
from bench.measure import (
    PATIENCE_SECONDS,
    READY_COUNT,
    TOPIC,
    Measured,
    Options,
    Row,
    alternating,
    check_counts,
    create_work,
    drain,
    measure,
    middle,
)
from bench.processes import LoadProcesses
from bench.server import Address, Server, brokerd, floor

CONNECTIONS = 32
MPUB_CONNECTIONS = 4
FANOUT_CHANNELS = (1, 10, 50)
MIXED_SIZES = (16, 256, 1024)
PIPELINED = 64
SYNC = "--sync-every=1"

Started = Callable[[], AbstractContextManager[Server]]


def swallowed(options: Options, command: bytes, run: Callable[[Address], Load]) -> Measured:
    """Measure the load on the floor that drops its input."""
    arguments = ["swallow", f"--first={len(load.GREETING)}", f"--every={len(command)}"]
    with floor(options.cores, *arguments) as server:
        return measure(server, lambda: run(server.tcp))


def stored(options: Options, command: bytes, run: Callable[[Address], Load]) -> Measured:
    """Measure the load on the floor that writes its input to files, in the broker's directory for data paths."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.data_path) as directory:
        arguments = ["store", f"--first={len(load.GREETING)}", f"--every={len(command)}", f"--directory={directory}"]
        with floor(options.cores, *arguments) as server:
            return measure(server, lambda: run(server.tcp))


def publishing(started: Started, run: Callable[[Address], Load]) -> Measured:
    with started() as server:
        create_work(server)
        result = measure(server, lambda: run(server.tcp))
        check_counts(server, result.load.messages, 0)
        return result


def beside_floors(
    name: str, what: str, options: Options, command: bytes, run: Callable[[Options, Address], Load]
) -> Iterator[Row]:
    brokers = contenders(options)
    rounds = alternating(
        options,
        lambda short: swallowed(short, command, partial(run, short)),
        lambda short: stored(short, command, partial(run, short)),
        *(partial(_publishing_on, started, run) for started in brokers.values()),
    )
    bottom, kept, *results = map(middle, rounds)
    ours, *others = results
    also = compared(ours, dict(zip(list(brokers)[1:], others, strict=True)))
    yield ours.row(name, what + not_compared(options), options, bottom, kept=kept, also=also)


def _publishing_on(started: Started, run: Callable[[Options, Address], Load], short: Options) -> Measured:
    return publishing(started, partial(run, short))


def pub(options: Options, processes: LoadProcesses) -> Iterator[Row]:
    command = options.batch_command

    def run(short: Options, address: Address) -> Load:
        return processes.run(load.publish, address, command, options.batch, short.seconds)

    return beside_floors("pub", f"MPUB {options.batch} × {options.size} B, one connection", options, command, run)


def pub1(options: Options, processes: LoadProcesses) -> Iterator[Row]:
    command = wire.pub(TOPIC, options.body)

    def run(short: Options, address: Address) -> Load:
        return processes.run(load.publish_one_at_a_time, address, command, short.seconds)

    return beside_floors("pub1", "PUB, waiting for each OK", options, command, run)


def pub64(options: Options, processes: LoadProcesses) -> Iterator[Row]:
    """Measure many concurrent publishers on one connection, each of which waits for its own response."""
    command = wire.pub(TOPIC, options.body)
    burst = command * PIPELINED

    def run(short: Options, address: Address) -> Load:
        return processes.run(load.publish_in_bursts, address, burst, PIPELINED, short.seconds)

    return beside_floors("pub64", f"PUB, {PIPELINED} unanswered", options, command, run)


def draining(options: Options, processes: LoadProcesses, *flags: str) -> Measured:
    """Drain a topic that was filled for ``options.seconds``."""
    with brokerd(options.cores, options.data_path, *flags, twin=options.twin) as server:
        create_work(server)
        filled = processes.run(load.publish, server.tcp, options.batch_command, options.batch, options.seconds)
        result = measure(server, lambda: drain(options, processes, server.tcp, filled.messages, PATIENCE_SECONDS))
        check_counts(server, filled.messages, result.load.messages)
        return result


def blasted(options: Options, processes: LoadProcesses) -> Measured:
    with floor(options.cores, "blast", f"--size={options.size}") as server:
        return measure(server, lambda: drain(options, processes, server.tcp, math.inf, options.seconds))


def sent_from_files(options: Options, processes: LoadProcesses) -> Measured:
    """Measure the floor that sends messages from files, in the broker's directory for data paths."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir=options.data_path) as directory,
        floor(options.cores, "send", f"--size={options.size}", f"--directory={directory}") as server,
    ):
        return measure(server, lambda: drain(options, processes, server.tcp, math.inf, options.seconds))


def sub(options: Options, processes: LoadProcesses) -> Iterator[Row]:
    rounds = alternating(
        options,
        lambda short: blasted(short, processes),
        lambda short: sent_from_files(short, processes),
        lambda short: draining(short, processes),
    )
    bottom, kept, result = map(middle, rounds)
    yield result.row("sub", f"RDY {READY_COUNT}, FIN each, one connection", options, bottom, kept=kept)


def sync(options: Options, processes: LoadProcesses) -> Iterator[Row]:
    """Measure pub, pub1 and sub with a broker that acknowledges only after a sync."""
    batch, single = options.batch_command, wire.pub(TOPIC, options.body)
    synced = partial(brokerd, options.cores, options.data_path, SYNC, twin=options.twin)
    batches = publishing(
        synced, lambda address: processes.run(load.publish, address, batch, options.batch, options.seconds)
    )
    yield batches.row("sync pub", f"as pub, {SYNC}", options)
    singles = publishing(
        synced, lambda address: processes.run(load.publish_one_at_a_time, address, single, options.seconds)
    )
    yield singles.row("sync pub1", f"as pub1, {SYNC}", options)
    yield draining(options, processes, SYNC).row("sync sub", f"as sub, {SYNC}", options)


def over_http(
    name: str,
    what: str,
    options: Options,
    processes: LoadProcesses,
    request: wire.Request,
    messages: int,
    connections: int,
) -> Iterator[Row]:
    def run(short: Options, address: Address) -> Load:
        return processes.run(load.post, address, request, messages, short.seconds, connections)

    def responding(short: Options) -> Measured:
        with floor(options.cores, "respond") as server:
            return measure(server, lambda: run(short, server.tcp))

    def posting(started: Started, short: Options) -> Measured:
        with started() as server:
            create_work(server)
            result = measure(server, lambda: run(short, server.http))
            check_counts(server, result.load.messages, 0)
            return result

    brokers = contenders(options)
    rounds = alternating(options, responding, *(partial(posting, started) for started in brokers.values()))
    bottom, ours, *others = map(middle, rounds)
    also = compared(ours, dict(zip(list(brokers)[1:], others, strict=True)))
    yield ours.row(name, what + not_compared(options), options, bottom, also=also)


def http_pub(options: Options, processes: LoadProcesses) -> Iterator[Row]:
    """Measure requests with unique ids, and identical requests, which a broker may cache."""
    path, what = f"/pub?topic={TOPIC}", f"POST /pub, {CONNECTIONS} keep-alive connections"
    varied, constant = wire.post(path, options.body, numbered=True), wire.post(path, options.body)
    yield from over_http("http", f"{what}, an id in each head", options, processes, varied, 1, CONNECTIONS)
    yield from over_http("http constant", f"{what}, one head", options, processes, constant, 1, CONNECTIONS)


def http_mpub(options: Options, processes: LoadProcesses) -> Iterator[Row]:
    request = wire.post(f"/mpub?topic={TOPIC}&binary=true", wire.batch([options.body] * options.batch))
    what = f"POST /mpub {options.batch} × {options.size} B, {MPUB_CONNECTIONS} connections"
    return over_http("mpub", what, options, processes, request, options.batch, MPUB_CONNECTIONS)


def trial(options: Options, processes: LoadProcesses) -> int:
    """Return the number of messages that one connection publishes in half the given time: the work of later rows."""
    with brokerd(options.cores, options.data_path, twin=options.twin) as server:
        create_work(server)
        seconds = options.seconds / 2
        return processes.run(load.publish, server.tcp, options.batch_command, options.batch, seconds).messages


def busy_pair(options: Options, processes: LoadProcesses, server: Server, messages: int) -> Measured:
    """Run a publisher at full speed and a consumer that drains the work channel, until every message is finished."""

    def run() -> Load:
        commands = messages // options.batch
        command = options.batch_command
        publishing = processes.start(load.publish, server.tcp, command, options.batch, math.inf, commands)
        drained = drain(options, processes, server.tcp, messages, PATIENCE_SECONDS)
        published = publishing.result()
        check_counts(server, published.messages, drained.messages)
        seconds = max(published.seconds, drained.seconds)
        return Load(published.messages, seconds, published.processor_seconds + drained.processor_seconds)

    return measure(server, run)


def fanout(options: Options, processes: LoadProcesses) -> Iterator[Row]:
    """Run a producer and a consumer of one channel, beside idle channels. Every row does the same work.

    ``cost_ratio`` is the broker's processor time per message relative to the first row of the same round.
    """

    def to(channels: int, short: Options) -> Measured:
        with brokerd(options.cores, options.data_path, twin=options.twin) as server:
            create_work(server, channels)
            return busy_pair(options, processes, server, messages)

    messages = trial(replace(options, seconds=options.seconds / options.rounds), processes)
    rounds = alternating(options, *(partial(to, channels) for channels in FANOUT_CHANNELS))
    for channels, measured in zip(FANOUT_CHANNELS, rounds, strict=True):
        ratios = [each.us_per_message / alone.us_per_message for each, alone in zip(measured, rounds[0], strict=True)]
        what = f"to {channels} channel{'s' * (channels > 1)}, one of them drained meanwhile"
        yield middle(measured).row(f"fanout {channels}", what, options, cost_ratio=statistics.median(ratios))


def mixed(options: Options, processes: LoadProcesses) -> Iterator[Row]:
    """Run a producer and a consumer at once, with messages of each size; the broker has one core."""
    for size in MIXED_SIZES:
        sized = replace(options, size=size)
        messages = trial(sized, processes)
        with brokerd(options.cores, options.data_path, twin=options.twin) as server:
            create_work(server)
            result = busy_pair(sized, processes, server, messages)
        what = f"MPUB {options.batch} × {size} B and a FIN each, one producer, one consumer"
        yield result.row(f"mixed {size} B", what, sized)
