"""``python -m bench.against DIR``: this checkout's broker compared with that of another checkout, such as an older one.

For each work, two brokers of this checkout and one of DIR run on the same core. In each round, every broker gets the
same short load, in random order, so that other processes disturb all of them equally. Their figures also depend on
where the system happens to place them in memory, so they are started anew several times.

The ratio is our processor time per message divided by that of DIR's broker: the median over the starts of the median
over the rounds. Below 1, this checkout's broker takes less time. The noise is the largest distance from 1 of the same
ratio of our two brokers; a smaller difference means nothing. DIR needs a .venv of its own, which make setup creates
there.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import load, wire
from bench.command_line import Parser, errors_in_one_line, positive_count
from bench.load import Load
from bench.measure import CHANNEL, PATIENCE_SECONDS, READY_COUNT, TOPIC, Measured, create_work, measure
from bench.processes import Cores, LoadProcesses, load_processes, pin
from bench.server import HERE, LOOPBACK, Server, stopped_after
from bench.throughput import CONNECTIONS, MPUB_CONNECTIONS, PIPELINED

SIZE, BATCH = 200, 200
LOAD_SECONDS = 0.1
"""Length of one load, except of ``sub``."""
SUB_COMMANDS = 100
"""MPUBs before each load of ``sub``, which consumes their messages."""

Work = Callable[[Server], Measured]


@dataclass(frozen=True)
class Comparison:
    """The result of one work. ``ours_us`` and ``theirs_us`` are medians of the processor time per message, in µs."""

    work: str
    ours_us: float
    theirs_us: float
    ratio: float
    ratios: Sequence[float]
    """The ratio of each start."""
    noise: float


@contextmanager
def broker_of(checkout: Path, cores: Cores, below: Path | None) -> Iterator[Server]:
    """Run a checkout's brokerd with the checkout's interpreter. Raises BenchError.

    Its data path is a new directory in ``below``, or in the system's temporary directory.
    """
    with tempfile.TemporaryDirectory(prefix="bench-", dir=below) as data_path:
        # -P: the packages of this directory must not go before those of the checkout.
        command = ["-P", "-m", "brokerd", *LOOPBACK, f"--data-path={data_path}"]
        environment, program = {"PYTHONPATH": str(checkout)}, interpreter(checkout)
        name = f"brokerd of {checkout}"
        with stopped_after(Server(command, ["TCP", "HTTP"], environment, program=program, name=name)) as server:
            pin(server.pid, cores.server)
            yield server


def interpreter(checkout: Path) -> Path:
    return checkout / ".venv" / "bin" / "python"


def works(processes: LoadProcesses) -> Mapping[str, Work]:
    """The loads, under the names that they have in ``python -m bench``."""
    body = bytes(SIZE)
    one, many = wire.pub(TOPIC, body), wire.mpub(TOPIC, [body] * BATCH)
    plain = wire.post(f"/pub?topic={TOPIC}", body, numbered=True)
    batches = wire.post(f"/mpub?topic={TOPIC}&binary=true", wire.batch([body] * BATCH))
    run, seconds = processes.run, LOAD_SECONDS

    def publish(generate: Callable[..., Load], *arguments: object) -> Work:
        return lambda server: measure(server, partial(run, generate, server.tcp, *arguments))

    def post(request: wire.Request, messages: int, connections: int) -> Work:
        return lambda server: measure(
            server, partial(run, load.post, server.http, request, messages, seconds, connections)
        )

    def sub(server: Server) -> Measured:
        filled = run(load.publish, server.tcp, many, BATCH, PATIENCE_SECONDS, SUB_COMMANDS).messages
        consume = partial(load.consume, server.tcp, TOPIC, CHANNEL, expected=filled, size=SIZE, ready_count=READY_COUNT)
        return measure(server, partial(run, consume, seconds=PATIENCE_SECONDS))

    return {
        "pub": publish(load.publish, many, BATCH, seconds),
        "pub1": publish(load.publish_one_at_a_time, one, seconds),
        "pub64": publish(load.publish_in_bursts, one * PIPELINED, PIPELINED, seconds),
        "sub": sub,
        "http": post(plain, 1, CONNECTIONS),
        "mpub": post(batches, BATCH, MPUB_CONNECTIONS),
    }


WORKS = ("pub", "pub1", "pub64", "sub", "http", "mpub")


def compare(checkout: Path, name: str, starts: int, rounds: int, below: Path | None) -> Comparison:
    """Compare the brokers under one work. Raises BenchError."""
    cores = Cores.available()
    with load_processes(cores, 1) as processes:
        work = works(processes)[name]
        return _comparison(name, [_start(work, checkout, rounds, cores, below) for _ in range(starts)])


def _start(work: Work, checkout: Path, rounds: int, cores: Cores, below: Path | None) -> list[list[float]]:
    """Start two brokers of this checkout and one of the other. Returns the µs per message of each in every round."""
    with ExitStack() as running:
        brokers = [running.enter_context(broker_of(each, cores, below)) for each in (HERE, HERE, checkout)]
        for broker in brokers:
            create_work(broker)
            work(broker)  # so that nothing is measured that happens once
        measured = list[list[float]]([] for _ in brokers)
        for _ in range(rounds):
            for at in random.sample(range(len(brokers)), len(brokers)):
                measured[at].append(work(brokers[at]).us_per_message)
        return measured


def _comparison(work: str, starts: Sequence[Sequence[Sequence[float]]]) -> Comparison:
    ratios = [_ratio([*first, *second], [*theirs, *theirs]) for first, second, theirs in starts]
    noise = max(abs(_ratio(first, second) - 1) for first, second, _ in starts)
    ours_us = statistics.median(us for first, second, _ in starts for us in (*first, *second))
    theirs_us = statistics.median(us for _, _, theirs in starts for us in theirs)
    return Comparison(work, ours_us, theirs_us, statistics.median(ratios), ratios, noise)


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    return statistics.median(one / other for one, other in zip(ours, theirs, strict=True))


def table(comparisons: Sequence[Comparison]) -> Table:
    """The comparisons as a table for a terminal."""
    grid = Table()
    grid.add_column("work")
    for heading in ("ours, µs", "theirs, µs", "ratio", "of each start", "noise"):
        grid.add_column(heading, justify="right")
    for each in comparisons:
        of_starts = f"{min(each.ratios):.2f} to {max(each.ratios):.2f}"
        times = (f"{each.ours_us:.2f}", f"{each.theirs_us:.2f}")
        grid.add_row(each.work, *times, f"{each.ratio:.3f}", of_starts, f"± {each.noise:.3f}")
    return grid


def arguments() -> argparse.Namespace:
    parser = Parser(
        prog="python -m bench.against",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"works: {' '.join(WORKS)}",
    )
    parser.add_argument("checkout", metavar="DIR", type=Path, help="a checkout of this project after make setup")
    parser.add_argument("works", nargs="*", metavar="work", default=WORKS, help="works to compare (default: all)")
    parser.add_argument("--starts", type=positive_count, default=5, help="starts of the brokers (default 5)")
    parser.add_argument(
        "--rounds",
        type=positive_count,
        default=20,
        help=f"rounds of each start, in which every broker has one load of {LOAD_SECONDS} s (default 20)",
    )
    parser.add_argument(
        "--data-path", type=Path, help="directory for data paths (default: the system's temporary directory)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON array instead of a table")
    given = parser.parse_intermixed_args()
    if unknown := [name for name in given.works if name not in WORKS]:
        parser.error(f"no work called {unknown[0]!r}; there are {', '.join(WORKS)}")
    if not given.checkout.is_dir():
        parser.error(f"{given.checkout} is not a directory")
    if not interpreter(given.checkout).exists():
        parser.error(f"{given.checkout} has no {interpreter(Path())}; run make setup there")
    if given.data_path is not None and not given.data_path.is_dir():
        parser.error(f"--data-path {given.data_path} is not a directory")
    return given


def main() -> None:
    given = arguments()
    with errors_in_one_line("bench.against"):
        measure_and_print(given)


def measure_and_print(given: argparse.Namespace) -> None:
    """Compare the brokers, and print the comparisons. Raises BenchError and OSError."""
    checkout, comparisons = given.checkout.resolve(), []
    with Console(stderr=True).status("measuring") as status:
        for name in given.works:
            status.update(f"measuring {name}")
            comparisons.append(compare(checkout, name, given.starts, given.rounds, given.data_path))
    if given.json:
        print(json.dumps([asdict(each) for each in comparisons], indent=2))
    else:
        print(f"processor time per message of {SIZE} B, compared with {checkout}")
        Console(width=None if sys.stdout.isatty() else 120).print(table(comparisons))


if __name__ == "__main__":
    main()
