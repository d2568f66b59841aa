"""The rows about a mirrored pair: what publishing costs, how fast a member joins, and how long a takeover takes.

A single broker and a pair get the same load in turn. The primary runs on the single broker's core, and the follower on
those of the load, because it would have a machine of its own.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from bench import load, wire
from bench.errors import BenchError
from bench.load import Load
from bench.measure import TOPIC, Measured, Options, Row, counts, create_work, measure, middle
from bench.pair import WAIT_SECONDS, Member, members
from bench.processes import LoadProcesses, pin, processor_seconds
from bench.publisher import Pace, Publisher, first_answer
from bench.server import Address, Server, brokerd, floor, start_brokerd

LONG_LEASE_SECONDS = 60
"""``--mirror-lease`` where no takeover is measured: on a busy machine a short lease might end."""
LEASE_SECONDS = 10
PIPELINED = 64
LEAST_PACE_SECONDS = 1.0
FRAME_BYTES = 34
"""Bytes of a stored message beside its body."""
FILE_BYTES = 1 << 30
"""Maximum number of bytes that are written to measure the disk."""
WRITE_BYTES = 1 << 20

Run = Callable[[Address, float], Load]
"""Loads the broker at an address for some seconds."""


def mirror(options: Options, processes: LoadProcesses) -> Iterator[Row]:
    """Publish to a pair and to a single broker; then let a member join and take over, with a backlog."""
    yield from _publishing(options, processes)
    yield from _joining(options, processes)


def _publishing(options: Options, processes: LoadProcesses) -> Iterator[Row]:
    one, batch = wire.pub(TOPIC, options.body), options.batch_command

    def pub(address: Address, seconds: float) -> Load:
        return processes.run(load.publish, address, batch, options.batch, seconds)

    def pub64(address: Address, seconds: float) -> Load:
        return processes.run(load.publish_in_bursts, address, one * PIPELINED, PIPELINED, seconds)

    def pub1(address: Address, seconds: float) -> Load:
        return processes.run(load.publish_one_at_a_time, address, one, seconds)

    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir=options.data_path)))
        first, second = stack.enter_context(members(directory, lease_seconds=LONG_LEASE_SECONDS))
        (first.data_path / "topics").mkdir()  # one with data founds the pair at once
        first.start(options.cores.server, twin=options.twin)
        first.wait_until_in_sync(1)
        second.start(options.cores.load, twin=options.twin)
        first.wait_until_in_sync(2)
        single = stack.enter_context(brokerd(options.cores, options.data_path, twin=options.twin))
        for server in (single, first.server):
            create_work(server)
        both = single, first.server, second.server
        what = f"MPUB {options.batch} × {options.size} B, one connection"
        yield _compared("mirror pub", what, options, both, len(batch), pub)
        yield _compared("mirror pub64", f"PUB, {PIPELINED} unanswered", options, both, len(one), pub64)
        yield _compared("mirror pub1", "PUB, waiting for each OK", options, both, len(one), pub1)


def _compared(
    name: str, what: str, options: Options, servers: tuple[Server, Server, Server], every: int, run: Run
) -> Row:
    """Load the single broker, the primary and the floors in turn; each command has ``every`` bytes."""
    single, primary, follower = servers
    seconds = options.seconds / options.rounds
    rounds, follower_us = list[tuple[Measured, Measured, Measured, Measured]](), list[float]()
    for _ in range(options.rounds):
        alone = measure(single, lambda: run(single.tcp, seconds))
        before = processor_seconds(follower.pid)
        mirrored = measure(primary, lambda: run(primary.tcp, seconds))
        follower_us.append((processor_seconds(follower.pid) - before) / mirrored.load.messages * 1e6)
        rounds.append((alone, mirrored, *_floors(options, every, run, seconds)))
    also = {
        "µs/msg, single = 1": _ratio(rounds, 0, 1, lambda each: each.us_per_message),
        "follower µs/msg": median(follower_us),
        "messages/s, floors": _ratio(rounds, 2, 3, lambda each: each.per_second),
        "µs/msg, floors": _ratio(rounds, 2, 3, lambda each: each.us_per_message),
    }
    if rounds[0][0].load.p99_us is not None:
        also["single, p50 µs"] = median(each[0].load.p50_us or math.nan for each in rounds)
        also["single, p99 µs"] = median(each[0].load.p99_us or math.nan for each in rounds)
        also["p50, single = 1"] = _ratio(rounds, 0, 1, lambda each: each.load.p50_us)
        also["p99, single = 1"] = _ratio(rounds, 0, 1, lambda each: each.load.p99_us)
        also["p50, floors"] = _ratio(rounds, 2, 3, lambda each: each.load.p50_us)
        also["p99, floors"] = _ratio(rounds, 2, 3, lambda each: each.load.p99_us)
    alone, mirrored = (middle([each[side] for each in rounds]) for side in (0, 1))
    return mirrored.row(name, what, options, alone, also=also)


def _floors(options: Options, every: int, run: Run, seconds: float) -> tuple[Measured, Measured]:
    """Load a server that only counts bytes, and one that passes them on to it and waits for its answers."""
    with floor(options.cores, "swallow", f"--first={len(load.GREETING)}", f"--every={every}") as alone:
        direct = measure(alone, lambda: run(alone.tcp, seconds))
    with floor(options.cores, "swallow", f"--first={len(load.GREETING)}", f"--every={every}") as behind:
        pin(behind.pid, options.cores.load)
        with floor(options.cores, "relay", f"--to={behind.tcp[1]}") as relay:
            return direct, measure(relay, lambda: run(relay.tcp, seconds))


def _ratio(
    rounds: list[tuple[Measured, Measured, Measured, Measured]],
    below: int,
    above: int,
    figure: Callable[[Measured], float | None],
) -> float:
    """The median of the rounds' ratios of a figure. A round without processor time, which is counted in ticks, has
    none."""
    ratios = [(figure(each[above]) or 0.0) / lower for each in rounds if (lower := figure(each[below]))]
    return median(ratios) if ratios else math.nan


def _joining(options: Options, processes: LoadProcesses) -> Iterator[Row]:
    commands = max(1, options.messages // options.batch)
    messages = commands * options.batch
    what = f"{messages:,} messages of {options.size} B"
    command = wire.pub(TOPIC, options.body)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir=options.data_path)))
        first, second = stack.enter_context(members(directory, lease_seconds=LEASE_SECONDS))
        _fill(first.data_path, commands, options, processes)
        nbytes = messages * (options.size + FRAME_BYTES)
        disk = _disk_rate(directory, min(nbytes, FILE_BYTES))
        first.start(options.cores.server, twin=options.twin)
        first.wait_until_in_sync(1)
        with Publisher(first.tcp, command) as publisher:
            alone = _pace(publisher, options)
            before, begun = processor_seconds(first.server.pid), time.perf_counter()
            second.start(options.cores.load, twin=options.twin)
            joins = second.server.wait_for("joins the primary", WAIT_SECONDS)
            joined = second.server.wait_for("has the primary's files", WAIT_SECONDS)
            in_sync = first.wait_until_in_sync(2)
            primary_seconds = processor_seconds(first.server.pid) - before
            mirrored = _pace(publisher, options)
            meanwhile = publisher.pace(joins, joined)
            acknowledged = messages + publisher.stop()
        yield Row(
            name="mirror join",
            what=what,
            twin=options.twin,
            size=options.size,
            messages=messages,
            seconds=joined - joins,
            also={
                "copied MB": nbytes / (1 << 20),
                "copied MB/s": nbytes / (joined - joins) / (1 << 20),
                "disk, written in sequence and synced, MB/s": disk / (1 << 20),
                "of the disk": nbytes / (joined - joins) / disk,
                "start to in sync, s": in_sync - begun,
                "primary, processor s": primary_seconds,
                "publisher before, messages/s": alone.per_second,
                "of it meanwhile": meanwhile.per_second / alone.per_second,
                "of it in sync": mirrored.per_second / alone.per_second,
                "publisher before, p99 ms": alone.p99_ms,
                "publisher meanwhile, p99 ms": meanwhile.p99_ms,
                "publisher meanwhile, longest ms": meanwhile.longest_ms,
            },
        )
        yield _takeover(first, second, what, acknowledged, command, options)


def _pace(publisher: Publisher, options: Options) -> Pace:
    begin = time.perf_counter()
    time.sleep(max(LEAST_PACE_SECONDS, options.seconds))
    return publisher.pace(begin, time.perf_counter())


def _fill(data_path: Path, commands: int, options: Options, processes: LoadProcesses) -> None:
    """Publish a backlog to a broker that is not mirrored yet."""
    server = start_brokerd(data_path, twin=options.twin)
    try:
        pin(server.pid, options.cores.server)
        create_work(server)
        processes.run(load.publish, server.tcp, options.batch_command, options.batch, math.inf, commands)
        server.stop()
    finally:
        if server.process.poll() is None:
            server.kill()


def _disk_rate(directory: Path, nbytes: int) -> float:
    """Bytes per second with which a new file is written in sequence, and synced at the end."""
    path, data, begun = directory / "sequence", os.urandom(WRITE_BYTES), time.perf_counter()
    with path.open("wb", buffering=0) as file:
        for _ in range(max(1, nbytes // WRITE_BYTES)):
            file.write(data)
        os.fsync(file.fileno())
    seconds = time.perf_counter() - begun
    written = path.stat().st_size
    path.unlink()
    return written / seconds


def _takeover(primary: Member, survivor: Member, what: str, acknowledged: int, command: bytes, options: Options) -> Row:
    """Kill the primary, and publish to the follower until it answers."""
    primary.wait_until_in_sync(2)
    killed = time.perf_counter()
    primary.server.kill()
    answered = first_answer(survivor.tcp, command)
    leads = survivor.server.wait_for("leads term", WAIT_SECONDS)
    _, left = counts(survivor.server)
    if left <= acknowledged:
        raise BenchError(f"{acknowledged + 1} messages were acknowledged, and {left} are left after the takeover")
    return Row(
        name="mirror takeover",
        what=f"{what}, --mirror-lease={LEASE_SECONDS}s",
        twin=options.twin,
        size=options.size,
        also={
            "messages": left,
            "kill to OK, s": answered - killed,
            "without the lease, s": answered - killed - LEASE_SECONDS,
            "lead to OK, s": answered - leads,
        },
    )
