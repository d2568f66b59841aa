"""``python -m bench.clients``: aionsq compared with pynsq and gnsq, against the same broker in the same run.

Each client runs in its own process and is used as its documentation shows. Requires pynsq and gnsq, which the ``dev``
extra installs.
"""

from __future__ import annotations

import importlib
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import load, wire
from bench.command_line import Parser, errors_in_one_line, positive_count
from bench.errors import BenchError
from bench.load import Load
from bench.measure import create
from bench.processes import Cores, load_processes
from bench.server import Server, brokerd

CLIENTS: dict[str, tuple[str, dict[str, bool]]] = {
    "aionsq": ("bench.client_aionsq", {}),
    "aionsq, asyncio's loop": ("bench.client_aionsq", {"on_uvloop": False}),
    "pynsq": ("bench.client_pynsq", {}),
    "gnsq": ("bench.client_gnsq", {}),
}
"""The module with each client's loads, and their extra arguments."""

WORKS = ("pub", "mpub", "sub", "ping")
BASELINE = "pynsq"
PUB_WINDOW, MPUB_WINDOW = 1000, 16
BACKLOG_PER_SECOND = 400_000
"""Messages prepared for each second of ``sub``: more than any client consumes."""


@dataclass(frozen=True)
class Figure:
    """The result of one client in one work. Latencies are in µs; only ``ping`` measures them."""

    client: str
    work: str
    per_second: float
    client_us: float
    """Processor time of the client per message."""
    times_baseline: float | None
    p50_us: float | None
    p99_us: float | None


def measure(seconds: float, size: int, batch: int, clients: Sequence[str], works: Sequence[str]) -> list[Figure]:
    """Run every client through every work. Raises BenchError."""
    cores = Cores.available()
    figures: list[Figure] = []
    for work in works:
        done: dict[str, Load] = {}
        with brokerd(cores, None) as server:
            prepare(server, work, clients, seconds, size, cores)
            for client in clients:
                with load_processes(cores, 1) as processes:
                    done[client] = processes.run(run, client, work, address(server), seconds, size, batch)
        base = done.get(BASELINE)
        for client, each in done.items():
            rate = each.messages / each.seconds
            figures.append(
                Figure(
                    client,
                    work,
                    rate,
                    each.processor_seconds / each.messages * 1e6,
                    rate / (base.messages / base.seconds) if base is not None else None,
                    each.p50_us,
                    each.p99_us,
                )
            )
    return figures


def prepare(server: Server, work: str, clients: Sequence[str], seconds: float, size: int, cores: Cores) -> None:
    """Prepare the topics of a work: for ``sub``, one backlog with a channel per client."""
    if work == "ping":
        create(server, {f"ping-{number}": ["work"] for number in range(len(CLIENTS))})
    if work == "sub":
        create(server, {"bench": [channel(client) for client in clients]})
        command = wire.mpub("bench", [bytes(size)] * 200)
        with load_processes(cores, 1) as processes:
            count = math.ceil(seconds * BACKLOG_PER_SECOND / 200)
            processes.run(load.publish, server.tcp, command, 200, 600.0, commands=count)


def run(client: str, work: str, nsqd: str, seconds: float, size: int, batch: int) -> Load:
    """Run one client, in its own process."""
    module, options = CLIENTS[client]
    loads: Any = importlib.import_module(module)
    number = list(CLIENTS).index(client)
    body = bytes(size)
    tasks: dict[str, Callable[[], Load]] = {
        "pub": partial(loads.publish, nsqd, "bench", [body], seconds, PUB_WINDOW),
        "mpub": partial(loads.publish, nsqd, "bench", [body] * batch, seconds, MPUB_WINDOW),
        "sub": partial(loads.consume, nsqd, "bench", channel(client), int(seconds * BACKLOG_PER_SECOND), seconds),
        "ping": partial(loads.ping, nsqd, f"ping-{number}", "work", size, seconds),
    }
    return tasks[work](**options)


def channel(client: str) -> str:
    return f"channel-{list(CLIENTS).index(client)}"


def address(server: Server) -> str:
    return f"{server.tcp[0]}:{server.tcp[1]}"


def table(figures: Sequence[Figure], seconds: float, size: int, batch: int) -> Table:
    """Return the figures as a table for a terminal."""
    grid = Table(title=f"clients, {seconds:g} s each, {size} B messages, MPUB of {batch}", title_justify="left")
    for heading in ("work", "client"):
        grid.add_column(heading)
    for heading in ("messages/s", f"times {BASELINE}", "client µs/msg", "p50 µs", "p99 µs"):
        grid.add_column(heading, justify="right")
    for figure in figures:
        grid.add_row(
            figure.work,
            figure.client,
            f"{figure.per_second:,.0f}",
            "" if figure.times_baseline is None else f"{figure.times_baseline:.1f}",
            f"{figure.client_us:.1f}",
            "" if figure.p50_us is None else f"{figure.p50_us:,.0f}",
            "" if figure.p99_us is None else f"{figure.p99_us:,.0f}",
        )
    return grid


def main() -> None:
    parser = Parser(
        prog="python -m bench.clients",
        description=(__doc__ or "").partition("\n")[0],
        epilog=f"works: {' '.join(WORKS)}",
    )
    parser.add_argument("works", nargs="*", metavar="work", help="works to measure (default: all)")
    parser.add_argument("--seconds", type=float, default=3.0, help="seconds per client and work (default 3)")
    parser.add_argument("--size", type=positive_count, default=200, help="bytes in a message (default 200)")
    parser.add_argument("--batch", type=positive_count, default=200, help="messages in an MPUB (default 200)")
    parser.add_argument("--clients", default="aionsq,pynsq,gnsq", help="comma-separated names, or all")
    parser.add_argument("--json", action="store_true", help="print one JSON array instead of a table")
    given = parser.parse_args()
    clients = list(CLIENTS) if given.clients == "all" else [name.strip() for name in given.clients.split(",")]
    if unknown := [name for name in clients if name not in CLIENTS]:
        parser.error(f"no client called {unknown[0]!r}; there are {'; '.join(CLIENTS)}; or all")
    if unknown := [name for name in given.works if name not in WORKS]:
        parser.error(f"no work called {unknown[0]!r}; there are {', '.join(WORKS)}")
    if not (0 < given.seconds <= 60 and 0 < given.size <= 1_000_000 and 0 < given.batch * (given.size + 4) < 5_000_000):
        parser.error("--seconds, --size or --batch is out of range")
    with errors_in_one_line("bench.clients"):
        try:
            figures = measure(given.seconds, given.size, given.batch, clients, given.works or WORKS)
        except ModuleNotFoundError as error:
            raise BenchError(f"{error.name} is not installed; the dev extra has it") from error
        if given.json:
            print(json.dumps([asdict(figure) for figure in figures], indent=2))
        else:
            Console(width=None if sys.stdout.isatty() else 120).print(
                table(figures, given.seconds, given.size, given.batch)
            )


if __name__ == "__main__":
    main()
