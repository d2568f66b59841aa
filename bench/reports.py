"""``python -m bench.reports``: the time from a request for a report to its result, with and without a warm session.

Generates two archives of a day and measures ``latency`` over an hour of 10 channels, from samples, and over a day of
``--channels`` channels by the hour, from samples and from rollups: in a process of its own, and in a session
(``python -m nsqanalytics serve``, as a worker of the platform uses it) as its first, second and later report, and after
``--rest`` seconds without one. Processor time is that of all processes together. Memory is resident: in a session that
of each process after the report, otherwise the largest sum of all processes. What several share, such as the mapped
archive of Spark's classes, counts for each.

Beside it, DuckDB answers the same question from the same files, in a process of its own and in one that has answered it
before: for each window, topic and channel, the messages finished, the merged histogram, and its median and 99th
percentile. It takes each counter's difference between the last readings of two windows. Unlike the reports, it has no
rules for restarts, gaps, duplicates and late files.

With ``--in-a-row N``, it only runs N small reports in one session, and shows what Python and Java hold after the first,
the 10th, the 50th and the last: resident memory, open descriptors, threads, and the number of processes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from bench.analytics import measured, run_command
from bench.archive import midnight, write_day
from bench.command_line import Parser, directory, errors_in_one_line, positive_count
from bench.family import kill_family

FROM_SAMPLES = """
WITH readings AS (
    SELECT time_bucket(INTERVAL '{window}', taken_at) AS w, node, boot_id, topic, channel,
           max(finish_count) AS finished, arg_max(hist_counts, taken_at) AS counts, max(hist_offset) AS first
    FROM read_parquet([{files}]) WHERE channel IS NOT NULL AND channel <> ''
    GROUP BY ALL
), differences AS (
    SELECT w, topic, channel, first, finished - lag(finished, 1, 0) OVER series AS finished, counts,
           lag(counts) OVER series AS before
    FROM readings WINDOW series AS (PARTITION BY node, boot_id, topic, channel ORDER BY w)
), parts AS (
    SELECT w, topic, channel, first, finished, CASE WHEN before IS NULL THEN counts
           ELSE list_transform(list_zip(counts, before), lambda pair: pair[1] - coalesce(pair[2], 0)) END AS counts
    FROM differences WHERE w >= TIMESTAMPTZ '{since}' AND w < TIMESTAMPTZ '{until}'
)
"""
FROM_ROLLUPS = """
WITH parts AS (
    SELECT window_start AS w, topic, channel, histogram."offset" AS first, histogram.counts AS counts,
           out_count AS finished
    FROM read_parquet([{files}]) WHERE window_start >= TIMESTAMP '{since}' AND window_start < TIMESTAMP '{until}'
)
"""
MERGED = """
, buckets AS (
    SELECT w, topic, channel, first + i - 1 AS bucket, sum(n) AS n
    FROM (SELECT w, topic, channel, first, unnest(counts) AS n, generate_subscripts(counts, 1) AS i FROM parts)
    GROUP BY ALL
), ranked AS (
    SELECT w, topic, channel, bucket, n, sum(n) OVER (PARTITION BY w, topic, channel ORDER BY bucket) AS rank,
           sum(n) OVER (PARTITION BY w, topic, channel) AS total FROM buckets
), percentiles AS (
    SELECT w, topic, channel, min(bucket) FILTER (WHERE rank >= 0.5 * total) AS p50,
           min(bucket) FILTER (WHERE rank >= 0.99 * total) AS p99 FROM ranked GROUP BY ALL
), sums AS (SELECT w, topic, channel, sum(finished) AS finished FROM parts GROUP BY ALL)
SELECT * FROM sums JOIN percentiles USING (w, topic, channel) ORDER BY ALL
"""
QUERY = """
import json, sys, time
import duckdb
duckdb.sql("SET enable_progress_bar = false")
query, output, times = sys.argv[1], sys.argv[2], int(sys.argv[3])
for _ in range(times):
    began, spent = time.perf_counter(), time.process_time()
    duckdb.sql("SET TimeZone = 'UTC'")
    duckdb.sql(f"COPY ({query}) TO '{output}' (FORMAT parquet)")
    last = time.perf_counter() - began, time.process_time() - spent
[[rows]] = duckdb.sql(f"SELECT count(*) FROM '{output}'").fetchall()
print(json.dumps([*last, rows]))
"""
PATIENCE_S = 900.0
MOST_JOBS = 50
"""Number of reports after which a worker's session ends."""


@dataclass(frozen=True)
class Question:
    """A report on an archive. ``sql`` is the beginning of DuckDB's query for the same figures."""

    name: str
    archive: Path
    window: str
    period: str
    sql: str

    def query(self, until: datetime) -> str:
        """Return DuckDB's query."""
        since = datetime.fromtimestamp(until.timestamp() - {"1h": 3600, "24h": 86_400}[self.period], UTC)
        grain = "samples" if self.sql == FROM_SAMPLES else "rollups/hourly"
        # Without the files outside the period and the hour before it, as in the report.
        files = sorted(self.archive.glob(f"{grain}/date=*/hour=*/*.parquet"))
        first, last = max(0, since.hour - 1), 24 if until.hour == 0 else until.hour
        near = [file for file in files if first <= int(file.parent.name.removeprefix("hour=")) < last]
        window = {"5m": "5 minutes", "1h": "1 hour"}[self.window]
        values = {
            "window": window,
            "files": ", ".join(f"'{file}'" for file in near),
            "since": since.isoformat(),
            "until": until.isoformat(),
        }
        # The times of rollups have no zone.
        if self.sql == FROM_ROLLUPS:
            values |= {"since": f"{since:%F %T}", "until": f"{until:%F %T}"}
        return self.sql.format(**values) + MERGED


class Cost(NamedTuple):
    seconds: float
    processor_s: float
    memory_mb: tuple[float, ...]
    rows: int | None = None


class Session:
    """A process ``serve``, as a worker of the platform uses it."""

    def __init__(self, log: Path, jobs: int) -> None:
        with log.open("wb") as output:
            self._process = psutil.Popen(
                [sys.executable, "-m", "nsqanalytics", "serve", f"--jobs={jobs}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
            )
        self._runs = 0

    def ask(self, question: Question, output: Path, until: datetime) -> Cost:
        """Run a report. Raises SystemExit if it fails, and if the session does not run it."""
        self._runs += 1
        parameters = {"window": question.window, "period": question.period, "until": until.isoformat()}
        request = {"run": self._runs, "job": "latency", "archive": str(question.archive), "output": str(output)}
        before, began = self._spent_s(), time.perf_counter()
        self._process.stdin.write(json.dumps(request | {"parameters": parameters}) + "\n")
        self._process.stdin.flush()
        done = self._answer(question)
        seconds, memory_mb = time.perf_counter() - began, self._memory_mb()
        self._answer(question)
        # The processor time includes that of removing what the report left.
        return Cost(seconds, self._spent_s() - before, memory_mb, done["rows"])

    def _answer(self, question: Question) -> Any:
        """The next event that is not progress. Raises SystemExit if the report does not succeed."""
        for line in self._process.stdout:
            event = json.loads(line)
            if event["event"] in ("done", "ready"):
                return event
            if event["event"] != "progress":
                raise SystemExit(f"bench: {question.name} in the session: {event}")
        raise SystemExit(f"bench: the session has ended in {question.name}")

    def held(self) -> dict[str, Any]:
        """What each of its processes holds, the session itself first."""
        found: dict[str, Any] = {"processes": 0, "memory_mb": [], "descriptors": [], "threads": []}
        for process in self._family():
            try:
                with process.oneshot():
                    each = (round(process.memory_info().rss / 1e6), process.num_fds(), process.num_threads())
            except psutil.Error:
                continue
            found["processes"] += 1
            for name, value in zip(("memory_mb", "descriptors", "threads"), each, strict=True):
                found[name].append(value)
        return found

    def close(self) -> None:
        """End the session and its Java."""
        family = self._family()
        self._process.stdin.close()
        psutil.wait_procs(family, timeout=PATIENCE_S)

    def kill(self) -> None:
        """Kill the session and its Java, with a report that it may run."""
        kill_family(self._process.pid)

    def _family(self) -> list[psutil.Process]:
        try:
            return [self._process, *self._process.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def _spent_s(self) -> float:
        spent = 0.0
        for process in self._family():
            try:
                times = process.cpu_times()
            except psutil.Error:
                continue
            spent += times.user + times.system
        return spent

    def _memory_mb(self) -> tuple[float, ...]:
        found = []
        for process in self._family():
            try:
                found.append(process.memory_info().rss / 1e6)
            except psutil.Error:
                continue
        return tuple(found)


@contextmanager
def session(log: Path, jobs: int = MOST_JOBS) -> Iterator[Session]:
    opened = Session(log, jobs)
    try:
        yield opened
    except KeyboardInterrupt:
        opened.kill()
        raise
    finally:
        opened.close()


def asked_of_duckdb(question: Question, output: Path, until: datetime, times: int) -> Cost:
    """The cost of the query in a process that has answered it ``times - 1`` times before. Raises SystemExit."""
    command = [sys.executable, "-c", QUERY, question.query(until), str(output), str(times)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    if done.returncode:
        raise SystemExit(f"bench: DuckDB: {done.stderr[-800:]}")
    seconds, processor_s, rows = json.loads(done.stdout)
    return Cost(seconds, processor_s, (), rows)


class Table:
    """The measured rows, which are printed as they come."""

    def __init__(self, *, prints: bool) -> None:
        self.rows: list[dict[str, Any]] = []
        self._prints = prints

    def add(self, what: str, how: str, cost: Cost, floor: Cost | None = None) -> None:
        row: dict[str, Any] = {"what": what, "how": how, "seconds": round(cost.seconds, 2)}
        row["processor_s"] = round(cost.processor_s, 2)
        row["memory_mb"] = "+".join(f"{each:.0f}" for each in cost.memory_mb)
        if floor is not None:
            row["of_duckdb"] = round(cost.seconds / floor.seconds, 1)
            row["processor_of_duckdb"] = round(cost.processor_s / max(floor.processor_s, 0.01), 1)
        self.rows.append(row)
        if self._prints:
            print("  ".join(f"{key}={value}" for key, value in row.items()), flush=True)


def main() -> None:
    parser = Parser(prog="python -m bench.reports", description=__doc__)
    parser.add_argument("--channels", type=positive_count, default=1000, help="channels of the day (default 1,000)")
    parser.add_argument(
        "--every", type=positive_count, default=60, help="seconds between samples of the day (default 60)"
    )
    parser.add_argument(
        "--reports", type=positive_count, default=4, help="reports of each kind in the session (default 4)"
    )
    parser.add_argument("--in-a-row", type=positive_count, metavar="N", help="run only N small reports in one session")
    parser.add_argument("--rest", type=float, default=60.0, help="seconds before the last report (default 60)")
    parser.add_argument("--no-samples", action="store_true", help="leave out the day from samples, the longest part")
    parser.add_argument(
        "--data-path", type=directory, help="directory for the archives (default: the temporary directory)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON array instead of lines")
    given = parser.parse_args()
    with errors_in_one_line("bench.reports"):
        with tempfile.TemporaryDirectory(prefix="nsq-bench-", dir=given.data_path) as folder:
            rows = in_a_row(Path(folder), given) if given.in_a_row else measure(Path(folder), given)
        if given.json:
            print(json.dumps(rows, indent=2))


def measure(folder: Path, given: argparse.Namespace) -> list[dict[str, Any]]:
    until, output = midnight(0), folder / "result"
    small, large = folder / "small", folder / "large"
    write_day(small, midnight(1), 10, 10)
    write_day(large, midnight(1), given.channels, given.every)
    hour = Question("an hour of 10 channels by 5m", small, "5m", "1h", FROM_SAMPLES)
    samples = Question(f"a day of {given.channels} channels by 1h, samples", large, "1h", "24h", FROM_SAMPLES)
    day = Question(f"a day of {given.channels} channels by 1h, rollups", large, "1h", "24h", FROM_ROLLUPS)
    table = Table(prints=not given.json)

    def own_process(question: Question) -> Cost:
        """Measure DuckDB and the report in processes of their own. Returns the cost of DuckDB's third answer."""
        command = [sys.executable, "-c", QUERY, question.query(until), str(folder / "duckdb.parquet"), "1"]
        whole = measured(command)
        cold = Cost(whole.seconds, whole.processor_s, (whole.peak_mb,))
        table.add(question.name, "DuckDB, own process", cold)
        again = asked_of_duckdb(question, folder / "duckdb.parquet", until, 3)
        table.add(question.name, "DuckDB, third time", again)
        command = run_command(
            "latency", question.archive, str(folder), until, window=question.window, period=question.period
        )
        own = measured(command)
        table.add(question.name, "own process", Cost(own.seconds, own.processor_s, (own.peak_mb,)), cold)
        return again

    floors = {}
    with session(folder / "session.log") as opened:
        for question in (hour, day) if given.no_samples else (hour, samples, day):
            if question is day:
                measured(run_command("rollup", large, str(folder), until, period="24h"))
            floor = floors[question.name] = own_process(question)
            for number in range(given.reports):
                cost = opened.ask(question, output, until)
                check_rows(question, cost, floor)
                is_first = question is hour and number == 0
                how = "session starts" if is_first else f"warm, report {number + 1}"
                table.add(question.name, how, cost, None if is_first else floor)
        time.sleep(given.rest)
        cost = opened.ask(hour, output, until)
        table.add(hour.name, f"warm, after {given.rest:g} s of rest", cost, floors[hour.name])
    return table.rows


def in_a_row(folder: Path, given: argparse.Namespace) -> list[dict[str, Any]]:
    """Run small reports one after another in one session, and return what it holds after some of them."""
    until, count = midnight(0), given.in_a_row
    write_day(folder / "small", midnight(1), 10, 10)
    question = Question("an hour of 10 channels by 5m", folder / "small", "5m", "1h", FROM_SAMPLES)
    rows = []
    with session(folder / "session.log", count + 1) as opened:
        for number in range(1, count + 1):
            cost = opened.ask(question, folder / "result", until)
            if number in (1, 10, 50, count):
                rows.append({"report": number, "processor_s": round(cost.processor_s, 2), **opened.held()})
                if not given.json:
                    print("  ".join(f"{key}={value}" for key, value in rows[-1].items()), flush=True)
    return rows


def check_rows(question: Question, cost: Cost, floor: Cost) -> None:
    """Raise SystemExit if both did not answer the same question."""
    if cost.rows != floor.rows:
        raise SystemExit(f"bench: {question.name}: {cost.rows} rows, and DuckDB has {floor.rows}")


if __name__ == "__main__":
    main()
