"""``python -m bench.analytics``: the cost of a report over a day of samples, relative to a plain scan of the files.

Creates a day of an archive (``--channels``, ``--every``), then runs, each in a separate process: a Parquet scan of
every column by Spark, and ``latency`` over the day from samples. With ``--days N`` also ``rollup`` of the day,
``latency`` over the day from its rollups, and over N days. The other days are copies: their sample files are links to
the first day's, and their rollups are the first day's with shifted times, under the names that ``rollup`` would use;
nothing reads their samples. Prints rows per second, the ratio to the scan, and the peak memory of the process with its
JVM.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import psutil

from bench.archive import midnight, write_day
from bench.command_line import Parser, directory, errors_in_one_line, positive_count
from bench.family import kill_family

SCAN = """
import sys
from nsqanalytics.session import spark_session
with spark_session("scan", size=10**9) as spark:
    spark.read.parquet(sys.argv[1] + "/samples").write.format("noop").mode("overwrite").save()
"""
# The hours before the day are files with shifted times, not links: the first hour of the day is computed from them too.
LINKS = """
import os, sys
from datetime import timedelta
import pyarrow as pa, pyarrow.compute as pc, pyarrow.parquet as pq
from nsqanalytics.rollups import HOURS_BEFORE, Rollups
from nsqanalytics.span import DAY
root, days = sys.argv[1], int(sys.argv[2])
hours = list(Rollups(root).samples.items())
before = [start for start, _ in hours[-HOURS_BEFORE:]]
for ago in range(1, days):
    for start, files in hours:
        at = start - ago * DAY
        folder = f"{root}/samples/date={at:%Y-%m-%d}/hour={at:%H}"
        os.makedirs(folder)
        if ago != 1 or start not in before:
            os.link(files[0].path, f"{folder}/{files[0].name}")
            continue
        table = pq.read_table(files[0].path, partitioning=None)
        for name in ("taken_at", "started_at"):
            moved = pc.subtract(table[name], pa.scalar(DAY)).cast(table[name].type)
            table = table.set_column(table.schema.get_field_index(name), name, moved)
        boots = pa.array(["before"] * len(table))
        table = table.set_column(table.schema.get_field_index("boot_id"), "boot_id", boots)
        pq.write_table(table, f"{folder}/{files[0].name}", compression="zstd")
"""
COPIES = """
import os, sys
import pyarrow as pa, pyarrow.compute as pc, pyarrow.parquet as pq
from nsqanalytics.rollups import Rollups
from nsqanalytics.span import DAY
root, days = sys.argv[1], int(sys.argv[2])

def copy(path, ago, place, mark):
    table = pq.ParquetFile(path).read()
    for name in ("window_start", "last_at"):
        moved = pc.subtract(table[name].cast(pa.timestamp("us", tz="UTC")), pa.scalar(ago * DAY))
        table = table.set_column(table.schema.get_field_index(name), name, moved)
    os.makedirs(f"{root}/rollups/{place}", exist_ok=True)
    pq.write_table(table, f"{root}/rollups/{place}/{mark}.parquet")

made = Rollups(root)
last = max(made.hours).replace(hour=0)
for ago in range(1, days):
    for hour in made.between(last, last + DAY):
        at = hour.start - ago * DAY
        copy(hour.rollup.path, ago, f"hourly/date={at:%Y-%m-%d}/hour={at:%H}", made.hours[at].mark)
daily, made = made.day(last)[1], Rollups(root)
for ago in range(1, days):
    at = last - ago * DAY
    copy(daily.path, ago, f"daily/date={at:%Y-%m-%d}", made.day(at)[0])
assert all(hour.rollup for hour in Rollups(root).hours.values())
"""


class Cost(NamedTuple):
    seconds: float
    processor_s: float
    peak_mb: float


def measured(command: list[str]) -> Cost:
    """Run a command to its end. The peak is the resident memory of all its processes together. Raises SystemExit."""
    began = time.perf_counter()
    with tempfile.TemporaryFile() as log:
        process = psutil.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        peak, over = 0, threading.Event()
        spent: dict[int, float] = {}
        try:
            while process.poll() is None:
                family = [process, *_children(process)]
                peak = max(peak, sum(_resident(member) for member in family))
                spent |= {member.pid: _spent_s(member) or spent.get(member.pid, 0.0) for member in family}
                over.wait(0.2)
        except KeyboardInterrupt:
            kill_family(process.pid)
            raise
        if process.returncode:
            log.seek(0)
            raise SystemExit(f"bench: {' '.join(command[:5])} failed: {log.read().decode(errors='replace')[-800:]}")
    return Cost(time.perf_counter() - began, sum(spent.values()), peak / 1e6)


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return list(process.children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


def _spent_s(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
        return float(times.user + times.system)
    except psutil.NoSuchProcess:
        return 0.0


def main() -> None:
    parser = Parser(prog="python -m bench.analytics", description=__doc__)
    parser.add_argument("--channels", type=positive_count, default=1000, help="channels of the archive (default 1,000)")
    parser.add_argument("--every", type=positive_count, default=10, help="seconds between samples (default 10)")
    parser.add_argument(
        "--days", type=positive_count, default=1, help="days of the long report; with more than one, it reads rollups"
    )
    parser.add_argument(
        "--data-path", type=directory, help="directory for the archive (default: the system's temporary directory)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON array instead of lines")
    given = parser.parse_args()
    with errors_in_one_line("bench.analytics"):
        measure(given)


def measure(given: argparse.Namespace) -> None:
    """Generate the archive, run the reports, and print what they took. Raises OSError."""
    with tempfile.TemporaryDirectory(prefix="nsq-bench-", dir=given.data_path) as folder:
        root, until = Path(folder) / "archive", midnight(0)
        rows = write_day(root, midnight(1), given.channels, given.every)
        results: list[dict[str, object]] = []

        def reported(name: str, of: int, command: list[str], scan: Cost | None = None, day: Cost | None = None) -> Cost:
            cost = measured(command)
            results.append(_row(name, of, cost, scan or cost))
            if day is not None:
                results[-1]["of_one_day"] = round(cost.seconds / day.seconds, 2)
                results[-1]["processor_of_one_day"] = round(cost.processor_s / day.processor_s, 2)
            if not given.json:
                print("  ".join(f"{key}={value}" for key, value in results[-1].items()), flush=True)
            return cost

        scan = reported("scan", rows, [sys.executable, "-c", SCAN, str(root)])
        one = reported(
            "latency, a day from samples", rows, run_command("latency", root, folder, until, period="24h"), scan
        )
        if given.days > 1:
            measured([sys.executable, "-c", LINKS, str(root), str(given.days)])
            reported("rollup of a day", rows, run_command("rollup", root, folder, until, period="24h"), scan)
            measured([sys.executable, "-c", COPIES, str(root), str(given.days)])
            reported(
                "latency, a day from rollups",
                rows,
                run_command("latency", root, folder, until, period="24h"),
                scan,
                one,
            )
            for window in ("1d", "1h"):
                long = run_command("latency", root, folder, until, period=f"{given.days}d", window=window)
                reported(f"latency, {given.days} days by {window} from rollups", rows * given.days, long, scan, one)
    if given.json:
        print(json.dumps(results, indent=2))


def run_command(job: str, archive: Path, folder: str, until: datetime, **parameters: str) -> list[str]:
    """Return the command that runs a job with the period's end ``until`` and its result in ``folder``."""
    parameters["until"] = until.astimezone(UTC).isoformat()
    pairs = [part for name, value in parameters.items() for part in ("--parameter", f"{name}={value}")]
    output = str(Path(folder) / "result")
    return [sys.executable, "-m", "nsqanalytics", "run", job, "--archive", str(archive), "--output", output, *pairs]


def _row(name: str, rows: int, cost: Cost, scan: Cost) -> dict[str, object]:
    return {
        "what": name,
        "rows": rows,
        "seconds": round(cost.seconds, 1),
        "rows_per_second": int(rows / cost.seconds),
        "processor_s": round(cost.processor_s, 1),
        "peak_mb": int(cost.peak_mb),
        "of_scan": round(cost.seconds / scan.seconds, 2),
        "processor_of_scan": round(cost.processor_s / scan.processor_s, 2),
    }


if __name__ == "__main__":
    main()
