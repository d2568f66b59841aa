"""A week of a running platform by a simulated clock: a collector writes, and maintenance runs on its schedule.

``python -m tests.analytics.week`` runs each job as a process of its own, as the platform does, and prints how much
processor time each kind takes. It fails if an hour ends with a missing rollup, or if a report of the whole time differs
from what was recorded in any hour.

Each hour ``compact`` runs at five past and ``rollup`` at twenty past, each day ``retain`` at 02:40, as the web app
schedules them. The latency of every message is recorded, and a report is compared with it. Files get the simulated
clock's times.
"""

from __future__ import annotations

import argparse
import io
import os
import pickle
import random
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from bench.analytics import measured, run_command
from nsqanalytics.archive import ArchiveWriter
from nsqanalytics.job import AnyJob
from nsqanalytics.job_list import JOBS
from nsqanalytics.locations import Locations
from nsqanalytics.progress import Progress
from nsqanalytics.results import Result
from nsqanalytics.rollups import Rollups, stale_days, stale_hours
from nsqanalytics.schema import Sample
from nsqanalytics.session import spark_session
from nsqanalytics.tables import PERMILLES
from nsqwire.histogram import Histogram

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
BEGAN = datetime(2026, 3, 2, tzinfo=UTC)
SILENCE = (BEGAN + 30 * HOUR, 3 * HOUR)
"""When the second node begins to be silent, and for how long."""
Key = tuple[datetime, str, str]
"""hour, topic, channel."""


@dataclass
class Node:
    """A broker's counters since its last start."""

    name: str
    boot: int
    started_at: datetime
    histograms: dict[tuple[str, str], Histogram] = field(default_factory=dict)

    def samples(self, at: datetime) -> list[Sample]:
        boot_id = f"{self.boot:016x}"
        rows = []
        for (topic, channel), histogram in self.histograms.items():
            dense = histogram.to_json()
            rows.append(
                Sample(
                    taken_at=at,
                    node=self.name,
                    boot_id=boot_id,
                    started_at=self.started_at,
                    topic=topic,
                    channel=channel,
                    message_count=histogram.count,
                    finish_count=histogram.count,
                    hist_zero_count=dense["zero_count"],
                    hist_offset=dense["offset"],
                    hist_counts=dense["counts"],
                )
            )
        return rows


class Collector:
    """Writes a reading of each node every ``every``, and records the latencies of the finished messages by hour.

    Once a day a node restarts, and once a day a channel is deleted and created again, each just before a reading. One
    node does not answer for three hours of the second day.
    """

    def __init__(self, root: Path, *, nodes: int, channels: int, every: timedelta, seed: int = 1) -> None:
        self.root = root
        self.latencies_ns: dict[Key, list[int]] = defaultdict(list)
        self.last_read: list[Sample] = []
        self._every = every
        self._at = BEGAN
        self._rng = random.Random(seed)
        self._names = [("orders", f"channel{n}") for n in range(channels)]
        self._nodes = [Node(f"10.0.0.{n + 1}:4151", 1, BEGAN) for n in range(nodes)]
        self._writer = ArchiveWriter(str(root))

    def collect(self, until: datetime) -> None:
        """Write all readings up to a time."""
        while (at := self._at + self._every) < until:
            self._at = at
            self._disturb(at)
            taken: list[Sample] = []
            for n, node in enumerate(self._nodes):
                since_silence = at - SILENCE[0] if n == 1 and at >= SILENCE[0] else None
                # The times of messages in its first reading after the silence are unknown, so they are not recorded.
                if since_silence is None or since_silence >= SILENCE[1] + self._every:
                    self._finish(node, at)
                if since_silence is None or since_silence >= SILENCE[1]:
                    taken += node.samples(at)
            self._writer.write(taken)
            self.last_read = taken
        for path in (self.root / "samples").rglob("*.parquet"):
            if path.stat().st_mtime > until.timestamp():
                os.utime(path, (until.timestamp(), until.timestamp()))

    def _finish(self, node: Node, at: datetime) -> None:
        hour = at.replace(minute=0, second=0, microsecond=0)
        for topic, channel in self._names:
            histogram = node.histograms.setdefault((topic, channel), Histogram())
            for _ in range(self._rng.randint(0, 3)):
                latency = int(20e6 * self._rng.lognormvariate(0, 1.2))
                histogram.record(latency)
                self.latencies_ns[hour, topic, channel].append(latency)

    def _disturb(self, at: datetime) -> None:
        """Restart or recreate right before a reading, so that every finished message is in a reading."""
        of_day, before = at - at.replace(hour=0, minute=0, second=0, microsecond=0), at - self._every
        restarts, again = timedelta(hours=7, minutes=31), timedelta(hours=15, minutes=31)
        if of_day - self._every < restarts <= of_day:
            self._nodes[0].boot += 1
            self._nodes[0].started_at = before
            self._nodes[0].histograms.clear()
        if of_day - self._every < again <= of_day:
            self._nodes[-1].histograms.pop(self._names[0], None)


def schedule(until: datetime, since: datetime = BEGAN) -> Iterator[tuple[datetime, str]]:
    """The due times of the web app's maintenance schedules, in order."""
    at = since
    while at < until:
        yield at + timedelta(minutes=5), "compact"
        yield at + timedelta(minutes=20), "rollup"
        if at.hour == 2:
            yield at + timedelta(minutes=40), "retain"
        at += HOUR


def run_week(
    collector: Collector, until: datetime, run: Callable[[str, datetime], None], since: datetime = BEGAN
) -> Iterator[datetime]:
    """Collect, and call ``run(job, now)`` for due jobs; yield the end of each hour."""
    hour = since
    for now, job in schedule(until, since):
        if now.replace(minute=0) > hour:
            hour += HOUR
            yield hour
        collector.collect(now)
        run(job, now)
    yield hour + HOUR


def stale(root: Path, now: datetime) -> list[datetime]:
    """The hours and days that have ended and have no valid rollup."""
    rollups = Rollups(str(root))
    over = now.replace(minute=0, second=0, microsecond=0)
    return [*(hour.start for hour in stale_hours(rollups, BEGAN, over)), *stale_days(rollups, BEGAN, over)]


def exact_percentile(latencies_ns: list[int], permille: int) -> int:
    """The latency of rank ceil(q · n)."""
    return sorted(latencies_ns)[max(0, -(-len(latencies_ns) * permille // 1000) - 1)]


class Runner:
    """Runs jobs on one archive, and keeps what each of them cost.

    Every ``own_process``-th hour each job is a process of its own, as in the platform. The others share one Spark
    session, which is started once.
    """

    def __init__(self, folder: Path, own_process: int) -> None:
        self.root = folder / "archive"
        self.costs: dict[str, list[float]] = defaultdict(list)
        self.shared_costs: dict[str, list[float]] = defaultdict(list)
        self._folder = folder
        self._own_process = own_process
        self._spark: SparkSession | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, job: str, now: datetime, **parameters: str) -> None:
        if (now - BEGAN) // HOUR % self._own_process == 0:
            cost = measured(run_command(job, self.root, str(self._folder), now, **parameters))
            self.costs[job].append(cost.processor_s)
        else:
            before = processor_s()
            self._run_here(JOBS[job], now, parameters)
            self.shared_costs[job].append(processor_s() - before)

    def _run_here(self, job: AnyJob, now: datetime, parameters: dict[str, str]) -> None:
        if self._spark is None:
            self._spark = self._stack.enter_context(spark_session("week"))
        place = Locations(str(self.root), str(self._folder / "result"))
        checked = job.checked({"until": now.isoformat()} | parameters)
        job.run(self._spark, place, checked, now, Progress(io.StringIO()))
        self._spark.catalog.clearCache()


def processor_s() -> float:
    """The processor time of this process and its children so far, in seconds."""
    process = psutil.Process()
    times = [each.cpu_times() for each in (process, *process.children(recursive=True))]
    return sum(each.user + each.system for each in times)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.analytics.week", description=__doc__)
    parser.add_argument("--hours", type=int, default=168, help="default 168, a week")
    parser.add_argument("--every", type=int, default=10, help="seconds between samples (default 10)")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--channels", type=int, default=4)
    parser.add_argument("--own-process", type=int, default=1, help="run the jobs of every Nth hour as processes")
    parser.add_argument("--folder", type=Path, help="where everything is kept; a run that was stopped is continued")
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = given.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nsq-bench-")))
        folder.mkdir(exist_ok=True)
        runner = stack.enter_context(Runner(folder, given.own_process))
        until = BEGAN + given.hours * HOUR
        collector = Collector(
            runner.root, nodes=given.nodes, channels=given.channels, every=timedelta(seconds=given.every), seed=1
        )
        state = folder / "state.pickle"
        since = BEGAN
        if state.exists():
            since, collector, runner.costs, runner.shared_costs = pickle.loads(state.read_bytes())

        def run(job: str, now: datetime) -> None:
            runner.run(job, now)
            if job == "rollup" and (late := stale(runner.root, now)):
                raise SystemExit(f"week: not rolled up at {now:%Y-%m-%d %H:%M}: {late}")

        for hour in run_week(collector, until, run, since):
            saved = (hour, collector, runner.costs, runner.shared_costs)
            state.with_suffix(".new").write_bytes(pickle.dumps(saved))
            state.with_suffix(".new").replace(state)
            if (hour - BEGAN) % (6 * HOUR) == timedelta(0):
                print(f"{(hour - BEGAN) // HOUR} hours: all rollups are fresh", flush=True)
        runner.run("rollup", until + timedelta(minutes=20))
        check_report(runner, collector, given.hours)
        for kind, costs in (("own process", runner.costs), ("shared session", runner.shared_costs)):
            for job, of_job in costs.items():
                spent = sorted(of_job)
                print(
                    f"{job}, {kind}: runs={len(spent)} processor_s median={spent[len(spent) // 2]:.1f} "
                    f"max={spent[-1]:.1f}",
                    flush=True,
                )


def check_report(runner: Runner, collector: Collector, hours: int) -> None:
    """Compare a latency report of all hours with the latencies that were recorded. Raises SystemExit."""
    runner.run("latency", BEGAN + hours * HOUR, period=f"{hours}h", window="1h")
    report = Result(runner.root.parent / "result")
    rows = [dict(zip(report.names, row, strict=True)) for row in report.page(0, 1_000_000)]
    found = {
        (datetime.fromtimestamp(row["window_start"] / 1000, UTC), row["topic"], row["channel"]): row
        for row in rows
        if row["count"]
    }
    if found.keys() != collector.latencies_ns.keys():
        raise SystemExit("week: the report has not the windows in which messages were finished")
    for key, latencies_ns in collector.latencies_ns.items():
        if found[key]["count"] != len(latencies_ns):
            raise SystemExit(f"week: {key}: count {found[key]['count']}, and {len(latencies_ns)} were finished")
        for name, permille in PERMILLES.items():
            exact, read = exact_percentile(latencies_ns, permille) / 1e6, found[key][name]
            if read is not None and abs(read - exact) > 0.0109 * exact:
                raise SystemExit(f"week: {key}: {name} {read}, and exactly {exact}")
    print(f"the report equals what was recorded: {len(found)} windows of channels", flush=True)


if __name__ == "__main__":
    main()
