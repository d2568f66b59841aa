"""The rows about rates: how many messages a second go in and out, and what each costs."""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from bench import load, wire
from bench.load import Load
from bench.measure import (
    CHANNEL,
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
PAIRS = 4
PIPELINED = 64
SYNC = "--sync-every=1"


def swallowed(options: Options, command: bytes, run: Callable[[Address], Load]) -> Measured:
    arguments = ["swallow", f"--first={len(load.GREETING)}", f"--every={len(command)}"]
    with floor(options.cores, *arguments) as server:
        return measure(server, lambda: run(server.tcp))


def stored(options: Options, command: bytes, run: Callable[[Address], Load]) -> Measured:
    """Where the broker would have its data."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.data_path) as directory:
        arguments = ["store", f"--first={len(load.GREETING)}", f"--every={len(command)}", f"--directory={directory}"]
        with floor(options.cores, *arguments) as server:
            return measure(server, lambda: run(server.tcp))


def publishing(options: Options, run: Callable[[Address], Load], *flags: str) -> Measured:
    with brokerd(options.cores, options.data_path, *flags, twin=options.twin) as server:
        create_work(server)
        result = measure(server, lambda: run(server.tcp))
        check_counts(server, result.load.messages, 0)
        return result


def beside_floors(
    name: str, what: str, options: Options, command: bytes, run: Callable[[Options, Address], Load]
) -> Iterator[Row]:
    rounds = alternating(
        options,
        lambda short: swallowed(short, command, partial(run, short)),
        lambda short: stored(short, command, partial(run, short)),
        lambda short: publishing(short, partial(run, short)),
    )
    bottom, kept, result = map(middle, rounds)
    yield result.row(name, what, options, bottom, kept=kept)


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
    """What a client does that has many publishers in flight on one connection, each waiting for its own answer."""
    command = wire.pub(TOPIC, options.body)
    burst = command * PIPELINED

    def run(short: Options, address: Address) -> Load:
        return processes.run(load.publish_in_bursts, address, burst, PIPELINED, short.seconds)

    return beside_floors("pub64", f"PUB, {PIPELINED} unanswered", options, command, run)


def draining(options: Options, processes: LoadProcesses, *flags: str) -> Measured:
    """A topic that was filled in ``options.seconds`` is drained."""
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
    """Where the broker would have its data."""
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
    """The same three with every acknowledgement waiting for the disk."""
    batch, single = options.batch_command, wire.pub(TOPIC, options.body)
    batches = publishing(
        options, lambda address: processes.run(load.publish, address, batch, options.batch, options.seconds), SYNC
    )
    yield batches.row("sync pub", f"as pub, {SYNC}", options)
    singles = publishing(
        options, lambda address: processes.run(load.publish_one_at_a_time, address, single, options.seconds), SYNC
    )
    yield singles.row("sync pub1", f"as pub1, {SYNC}", options)
    yield draining(options, processes, SYNC).row("sync sub", f"as sub, {SYNC}", options)


def over_http(
    name: str, what: str, options: Options, processes: LoadProcesses, request: bytes, messages: int, connections: int
) -> Iterator[Row]:
    def run(short: Options, address: Address) -> Load:
        return processes.run(load.post, address, request, messages, short.seconds, connections)

    def responding(short: Options) -> Measured:
        with floor(options.cores, "respond") as server:
            return measure(server, lambda: run(short, server.tcp))

    def posting(short: Options) -> Measured:
        with brokerd(options.cores, options.data_path, twin=options.twin) as server:
            create_work(server)
            result = measure(server, lambda: run(short, server.http))
            check_counts(server, result.load.messages, 0)
            return result

    bottom, result = map(middle, alternating(options, responding, posting))
    yield result.row(name, what, options, bottom)


def http_pub(options: Options, processes: LoadProcesses) -> Iterator[Row]:
    request = wire.post(f"/pub?topic={TOPIC}", options.body)
    what = f"POST /pub, {CONNECTIONS} keep-alive connections"
    return over_http("http", what, options, processes, request, 1, CONNECTIONS)


def http_mpub(options: Options, processes: LoadProcesses) -> Iterator[Row]:
    request = wire.post(f"/mpub?topic={TOPIC}&binary=true", wire.batch([options.body] * options.batch))
    what = f"POST /mpub {options.batch} × {options.size} B, {MPUB_CONNECTIONS} connections"
    return over_http("mpub", what, options, processes, request, options.batch, MPUB_CONNECTIONS)


def trial(options: Options, processes: LoadProcesses) -> int:
    """How many batches one connection publishes in half the time given: the fixed work of rows to be compared."""
    with brokerd(options.cores, options.data_path, twin=options.twin) as server:
        create_work(server)
        seconds = options.seconds / 2
        return processes.run(load.publish, server.tcp, options.batch_command, options.batch, seconds).messages


def busy_pair(options: Options, processes: LoadProcesses, server: Server, messages: int) -> Measured:
    """A publisher at full speed and a consumer that drains the work channel meanwhile, until all is finished."""

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
    """A busy pair on one of the channels, and the rest of them idle. Every row does the same work.

    What is compared is the broker's time for a message, to that of the same round's first row.
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
    """Several producers and several consumers of one channel at once, for the time given."""
    with brokerd(options.cores, options.data_path, twin=options.twin) as server:
        create_work(server)
        finished = 0

        def run() -> Load:
            nonlocal finished
            command, seconds = options.batch_command, options.seconds
            producers = [
                processes.start(load.publish, server.tcp, command, options.batch, seconds) for _ in range(PAIRS)
            ]
            consumers = [
                processes.start(
                    load.consume,
                    server.tcp,
                    TOPIC,
                    CHANNEL,
                    expected=math.inf,
                    size=options.size,
                    ready_count=READY_COUNT,
                    seconds=seconds,
                )
                for _ in range(PAIRS)
            ]
            published, consumed = [each.result() for each in producers], [each.result() for each in consumers]
            finished = sum(each.messages for each in consumed)
            everybody = [*published, *consumed]
            return Load(
                sum(each.messages for each in published),
                max(each.seconds for each in everybody),
                sum(each.processor_seconds for each in everybody),
            )

        result = measure(server, run)
        check_counts(server, result.load.messages, finished)
        also = {"finished/s": finished / result.load.seconds}
        yield result.row("mixed", f"{PAIRS} producers as pub, {PAIRS} consumers as sub", options, also=also)
