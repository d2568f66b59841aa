"""``python -m bench [row …]``: throughput of a brokerd, its processor time, and both relative to the floor."""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from rich.console import Console

from bench.command_line import Parser, errors_in_one_line, positive_count
from bench.measure import Options, Row
from bench.pair import etcd_program
from bench.processes import Cores, raise_descriptor_limit
from bench.rows import ROWS, run, run_beside
from bench.table import table, waits_table

RATES = (5_000, 20_000, 100_000, 250_000)
ROWS_HELP = "rows to measure (default: all), and rates of row latency, in messages a second"
COPIES = {"backlog": 1, "mirror": 2}
"""How often the rows store ``--messages``."""
FASTEST = 8_000_000
"""Messages per second that the check for free disk space assumes."""


def positive_seconds(text: str) -> float:
    with suppress(ValueError):
        if 0 < (seconds := float(text)) <= 3600:
            return seconds
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds between 0 and 3600")


def arguments() -> argparse.Namespace:
    parser = Parser(prog="python -m bench", description=__doc__, epilog=f"rows: {' '.join(ROWS)}")
    parser.add_argument("rows", nargs="*", metavar="row", help=ROWS_HELP)
    parser.add_argument("--seconds", type=positive_seconds, default=3.0, help="seconds of load per row (default 3)")
    parser.add_argument(
        "--rounds", type=positive_count, default=5, help="rounds, alternating between a row and its floor (default 5)"
    )
    parser.add_argument("--size", type=positive_count, default=200, help="bytes in a message (default 200)")
    parser.add_argument("--batch", type=positive_count, default=200, help="messages in an MPUB (default 200)")
    parser.add_argument(
        "--messages",
        type=positive_count,
        default=10_000_000,
        help="messages in rows backlog and mirror; a small number also applies to bystander, dead and deferred "
        "(default 10,000,000)",
    )
    parser.add_argument(
        "--connections",
        type=positive_count,
        default=1000,
        help="idle connections in row idle, nodes in lookup; a small number also applies to browsers in platform "
        "(at most 200) and clients in bystander (default 1,000)",
    )
    parser.add_argument(
        "--channels", type=positive_count, default=10_000, help="channels in rows timers and expired (default 10,000)"
    )
    parser.add_argument(
        "--topics",
        type=positive_count,
        default=1000,
        help="topics in rows topics, admin, lookup, platform, jobs and pages; channels in history; a small number also "
        "applies to bystander (default 1,000)",
    )
    parser.add_argument(
        "--data-path", type=Path, help="directory for data paths (default: the system's temporary directory)"
    )
    parser.add_argument(
        "--reference",
        type=Path,
        metavar="DIR",
        help="also measure the nsqd and nsqlookupd in DIR, in rows that support it",
    )
    parser.add_argument(
        "--twin",
        nargs="?",
        const="only",
        choices=("only", "beside"),
        help="use the pure-Python kernel; with 'beside', measure each row with both kernels",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    given = parser.parse_intermixed_args()
    given.rates = [int(word) for word in given.rows if word.isdecimal()] or list(RATES)
    given.rows = [word for word in given.rows if not word.isdecimal()]
    if unknown := [name for name in given.rows if name not in ROWS]:
        parser.error(f"no row called {unknown[0]!r}; there are {', '.join(ROWS)}")
    if given.data_path is not None and not given.data_path.is_dir():
        parser.error(f"--data-path {given.data_path} is not a directory")
    if given.reference is not None and not (given.reference / "nsqd").is_file():
        parser.error(f"--reference {given.reference} has no nsqd")
    if given.batch * (given.size + 4) + 8 > 5_242_880:
        parser.error(f"a batch of {given.batch} × {given.size} B is more than the broker's 5 MiB limit on a body")
    given.rows = given.rows or [name for name in ROWS if name != "mirror" or etcd_program() is not None]
    stored = given.messages * max((COPIES.get(name, 0) for name in given.rows), default=0)
    most = max(given.seconds * FASTEST, stored)
    need = math.ceil(most * (given.size + 34))
    disk = given.data_path or Path(tempfile.gettempdir())
    if (free := shutil.disk_usage(disk).free) < need:
        parser.error(f"{disk} has {free >> 20} MiB free and a row may need {need >> 20}; use --data-path or less load")
    return given


def main() -> None:
    given = arguments()
    raise_descriptor_limit()
    with errors_in_one_line("bench"):
        measure_and_print(given)


def measure_and_print(given: argparse.Namespace) -> None:
    """Measure the rows, and print them. Raises BenchError and OSError."""
    options = Options(
        seconds=given.seconds,
        rounds=given.rounds,
        size=given.size,
        batch=given.batch,
        messages=given.messages,
        connections=given.connections,
        channels=given.channels,
        topics=given.topics,
        data_path=given.data_path,
        reference=given.reference,
        rates=given.rates,
        twin=given.twin == "only",
        cores=Cores.available(),
    )
    measured = run_beside if given.twin == "beside" else run
    rows: list[Row] = []
    with Console(stderr=True).status("measuring") as status:
        for name in given.rows:
            status.update(f"measuring {name}")
            rows.extend(measured(name, options))
    if given.json:
        document = {
            "seconds": options.seconds,
            "rounds": options.rounds,
            "size": options.size,
            "batch": options.batch,
            "cores": os.cpu_count(),
            "rows": [row.as_json() for row in rows],
        }
        print(json.dumps(document, indent=2))
        return
    kernel = {None: "kernel as installed", "only": "pure-Python kernel", "beside": "both kernels"}[given.twin]
    console = Console(width=None if sys.stdout.isatty() else 210)
    console.print(table(rows, options, kernel))
    if (waits := waits_table(rows)) is not None:
        console.print(waits)


if __name__ == "__main__":
    main()
