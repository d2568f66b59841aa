"""The rows about rates: how many messages a second go in and out, and what each costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

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
    check_counts,
    create_work,
    drain,
    measure,
)
from bench.processes import LoadProcesses
from bench.server import Address, Server, brokerd, floor

CONNECTIONS = 32
MPUB_CONNECTIONS = 4
FANOUT_CHANNELS = (1, 10, 50)
PAIRS = 4
SYNC = "--sync-every=1"


def pub_floor(options: Options, command: bytes, run: Callable[[Address], Load]) -> Measured:
    arguments = ["swallow", f"--first={len(load.GREETING)}", f"--every={len(command)}"]
    with floor(options.cores, *arguments) as server:
        return measure(server, lambda: run(server.tcp))


def publishing(options: Options, run: Callable[[Address], Load], *flags: str) -> Measured:
    with brokerd(options.cores, options.data_path, *flags, twin=options.twin) as server:
        create_work(server)
        result = measure(server, lambda: run(server.tcp))
        check_counts(server, result.load.messages, 0)
        return result


def pub(options: Options, processes: LoadProcesses) -> Iterator[Row]:
    command = options.batch_command

    def run(address: Address) -> Load:
        return processes.run(load.publish, address, command, options.batch, options.seconds)

    what = f"MPUB {options.batch} × {options.size} B, one connection"
    bottom = pub_floor(options, command, run)
    yield publishing(options, run).row("pub", what, options, bottom)


def pub1(options: Options, processes: LoadProcesses) -> Iterator[Row]:
    command = wire.pub(TOPIC, options.body)

    def run(address: Address) -> Load:
        return processes.run(load.publish_one_at_a_time, address, command, options.seconds)

    bottom = pub_floor(options, command, run)
    yield publishing(options, run).row("pub1", "PUB, waiting for each OK", options, bottom)


def draining(options: Options, processes: LoadProcesses, *flags: str) -> Measured:
    """A topic that was filled in ``options.seconds`` is drained."""
    with brokerd(options.cores, options.data_path, *flags, twin=options.twin) as server:
        create_work(server)
        filled = processes.run(load.publish, server.tcp, options.batch_command, options.batch, options.seconds)
        result = measure(server, lambda: drain(options, processes, server.tcp, filled.messages, PATIENCE_SECONDS))
        check_counts(server, filled.messages, result.load.messages)
        return result


def sub(options: Options, processes: LoadProcesses) -> Iterator[Row]:
    result = draining(options, processes)
    with floor(options.cores, "blast", f"--size={options.size}") as server:
        bottom = measure(server, lambda: drain(options, processes, server.tcp, math.inf, options.seconds))
    yield result.row("sub", f"RDY {READY_COUNT}, FIN each, one connection", options, bottom)


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
    def run(address: Address) -> Load:
        return processes.run(load.post, address, request, messages, options.seconds, connections)

    with floor(options.cores, "respond") as server:
        bottom = measure(server, lambda: run(server.tcp))
    with brokerd(options.cores, options.data_path, twin=options.twin) as server:
        create_work(server)
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
    """A busy pair on one of the channels, and the rest of them idle. Every row does the same work."""
    messages = trial(options, processes)
    alone: float | None = None
    for channels in FANOUT_CHANNELS:
        with brokerd(options.cores, options.data_path, twin=options.twin) as server:
            create_work(server, channels)
            result = busy_pair(options, processes, server, messages)
        alone = alone or result.us_per_message
        what = f"to {channels} channel{'s' * (channels > 1)}, one of them drained meanwhile"
        yield result.row(f"fanout {channels}", what, options, cost_ratio=result.us_per_message / alone)


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
