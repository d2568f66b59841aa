"""``python -m bench [row …]``: what a brokerd does in a second, what it costs, and how far that is from the floor."""

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
from typing import NoReturn

from rich.console import Console
from rich.table import Table

from bench.errors import BenchError
from bench.processes import Cores
from bench.rows import ROWS, Options, Row, run

FASTEST = 2_000_000
"""Messages a second we allow for when asking whether the disk has room."""


class Parser(argparse.ArgumentParser):
    """Says what was wrong in one line."""

    def error(self, message: str) -> NoReturn:
        fail(message, status=2)


def fail(message: str, status: int = 1) -> NoReturn:
    print(f"bench: {message}", file=sys.stderr)
    raise SystemExit(status)


def positive_seconds(text: str) -> float:
    with suppress(ValueError):
        if 0 < (seconds := float(text)) <= 3600:
            return seconds
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds between 0 and 3600")


def positive_count(text: str) -> int:
    with suppress(ValueError):
        if (count := int(text)) > 0:
            return count
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")


def arguments() -> argparse.Namespace:
    parser = Parser(prog="python -m bench", description=__doc__, epilog=f"rows: {' '.join(ROWS)}")
    parser.add_argument("rows", nargs="*", metavar="row", help="which to measure (default: all)")
    parser.add_argument("--seconds", type=positive_seconds, default=3.0, help="load per row (default 3)")
    parser.add_argument("--size", type=positive_count, default=200, help="bytes in a message (default 200)")
    parser.add_argument("--batch", type=positive_count, default=200, help="messages in an MPUB (default 200)")
    parser.add_argument("--data-path", type=Path, help="directory whose disk to use (default: the temporary one)")
    parser.add_argument("--twin", action="store_true", help="use the pure-Python kernel")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    given = parser.parse_args()
    if unknown := [name for name in given.rows if name not in ROWS]:
        parser.error(f"no row called {unknown[0]!r}; there are {', '.join(ROWS)}")
    if given.data_path is not None and not given.data_path.is_dir():
        parser.error(f"--data-path {given.data_path} is not a directory")
    if given.batch * (given.size + 4) + 8 > 5_242_880:
        parser.error(f"a batch of {given.batch} × {given.size} B is more than the broker's 5 MiB limit on a body")
    need = math.ceil(given.seconds * FASTEST * (given.size + 34))
    disk = given.data_path or Path(tempfile.gettempdir())
    if (free := shutil.disk_usage(disk).free) < need:
        parser.error(f"{disk} has {free >> 20} MiB free and a row may need {need >> 20}; use --data-path or --seconds")
    return given


def number(value: float | None, digits: int = 0) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def table(options: Options) -> Table:
    kernel = "pure-Python kernel" if options.twin else "kernel as installed"
    title = f"brokerd, {options.seconds:g} s a row, {options.size} B messages, {kernel}"
    grid = Table(title=title, title_justify="left")
    grid.add_column("row")
    grid.add_column("load")
    for heading in (
        "messages/s",
        "MB/s",
        "broker\nµs/msg",
        "floor\nmessages/s",
        "floor\nµs/msg",
        "of\nfloor",
        "cost,\n1 channel = 1",
        "p50 µs",
        "p99 µs",
        "broker\nbusy",
        "load\nbusy",
        "anon\nMB",
    ):
        grid.add_column(heading, justify="right")
    return grid


def add(grid: Table, row: Row) -> None:
    grid.add_row(
        row.name,
        row.what,
        number(row.per_second),
        number(row.mb_per_second, 1),
        number(row.broker_us, 2),
        number(row.floor_per_second),
        number(row.floor_us, 2),
        percent(row.floor_ratio),
        number(row.cost_ratio, 2),
        number(row.p50_us),
        number(row.p99_us),
        percent(row.broker_busy),
        percent(row.load_busy),
        number(row.anonymous_mb),
    )


def main() -> None:
    given = arguments()
    options = Options(
        seconds=given.seconds,
        size=given.size,
        batch=given.batch,
        data_path=given.data_path,
        twin=given.twin,
        cores=Cores.available(),
    )
    console = Console(width=None if sys.stdout.isatty() else 190)
    progress = Console(stderr=True)
    rows: list[Row] = []
    try:
        with progress.status("measuring") as status:
            for name in given.rows or ROWS:
                status.update(f"measuring {name}")
                rows.extend(run([name], options))
    except BenchError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}")
    except KeyboardInterrupt:
        fail("interrupted", status=130)
    if given.json:
        document = {
            "seconds": options.seconds,
            "size": options.size,
            "batch": options.batch,
            "twin": options.twin,
            "cores": os.cpu_count(),
            "rows": [row.as_json() for row in rows],
        }
        print(json.dumps(document, indent=2))
        return
    grid = table(options)
    for row in rows:
        add(grid, row)
    console.print(grid)


if __name__ == "__main__":
    main()
