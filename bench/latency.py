"""The rows for latency at given rates: from PUB to OK, and to delivery."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from bench import flow
from bench.contenders import compared, contenders, not_compared
from bench.measure import CHANNEL, TOPIC, Measured, Options, Row, Waits, check_counts, create_work
from bench.processes import LoadProcesses

CONNECTIONS = 8
SIZES = (16, 256, 1024)


def latency(options: Options, processes: LoadProcesses) -> Iterator[Row]:
    """Send PUBs on a schedule, on several connections, and finish each message with one consumer."""
    for size in SIZES:
        for rate in options.rates:
            yield at(rate, replace(options, size=size), processes)


def at(rate: int, options: Options, processes: LoadProcesses) -> Row:
    waits: list[Waits] = []
    also: dict[str, float] = {}
    ours: Measured | None = None
    count = max(CONNECTIONS, int(rate * options.seconds))
    for name, started in contenders(options).items():
        with started() as server:
            create_work(server)
            before = server.processor_seconds()
            seen = processes.run(
                flow.flow,
                server.tcp,
                TOPIC,
                CHANNEL,
                rate=rate,
                count=count,
                size=options.size,
                connections=CONNECTIONS,
            )
            measured = Measured(seen.load, server.processor_seconds() - before, server.anonymous_bytes())
            check_counts(server, count, count)
        waits += [
            Waits.of(name, "PUB to OK", seen.to_ok_ns),
            Waits.of(name, "due to delivered", seen.to_delivery_ns),
            Waits.of(name, "due to sent (the generator)", seen.to_sent_ns),
        ]
        if ours is None:
            ours = measured
        else:
            also = compared(ours, {name: measured})
    assert ours is not None
    what = f"{rate:,} PUB/s asked of {CONNECTIONS} connections, FIN each{not_compared(options)}"
    return replace(ours.row(f"latency {rate:,} {options.size} B", what, options, also=also), waits=waits)
