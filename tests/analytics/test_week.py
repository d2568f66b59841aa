"""A week of a running platform: maintenance runs on schedule, and reports equal what was recorded."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from nsqanalytics.archive import ArchiveWriter
from nsqanalytics.job_list import JOBS
from nsqanalytics.locations import Locations
from nsqanalytics.progress import Progress
from nsqanalytics.results import Result
from tests.analytics.week import BEGAN, DAY, HOUR, Collector, exact_percentile, run_week, stale

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

KEPT = {"retain": {"samples": "2d", "rollups": "400d"}}


def is_rolled_up(now: datetime) -> bool:
    """Two single hours, then two days at once, because each run costs Spark seconds. At every hour in between, the test
    checks that exactly the hours since the last run lack a rollup."""
    return (now - BEGAN) // HOUR in (1, 2, 48, 96, 144, 167)


def test_maintenance_on_schedule_keeps_a_week_of_rollups_fresh_and_reports_right(spark, archive: Path, tmp_path: Path):
    """Restarts, channels created again, a silent node, a repeated file, two days of samples kept: counts are exact."""
    until = BEGAN + 7 * DAY
    collector = Collector(archive, nodes=2, channels=2, every=timedelta(minutes=10))
    made: list[list[object]] = []
    first_missing = BEGAN

    def run(name: str, now: datetime, **parameters: str) -> Result:
        job, output = JOBS[name], tmp_path / "result"
        given = job.checked({"until": now.isoformat()} | KEPT.get(name, {}) | parameters)
        job.run(spark, Locations(str(archive), str(output)), given, now, Progress(io.StringIO()))
        return Result(output)

    def kept_up(name: str, now: datetime) -> None:
        nonlocal first_missing
        over = now.replace(minute=0)
        if name != "rollup":
            run(name, now)
        elif is_rolled_up(now):
            made.extend(run(name, now).page(0, 100_000))
            first_missing = over
        hours = (over - first_missing) // HOUR
        assert stale(archive, now) == [first_missing + n * HOUR for n in range(hours)], now

    for hour in run_week(collector, until, kept_up):
        if hour == BEGAN + 3 * DAY:
            # The same reading twice counts once.
            ArchiveWriter(str(archive)).write(collector.last_read)

    run("rollup", until + timedelta(minutes=20))
    assert stale(archive, until) == []
    hours = [row[0] for row in made if row[1] == "rolled up"]
    assert len(hours) == len(set(hours))

    report = run("latency", until, period="8d", window="1h")
    rows = [dict(zip(report.names, row, strict=True)) for row in report.page(0, 100_000)]
    found = {
        (datetime.fromtimestamp(row["window_start"] / 1000, UTC), row["topic"], row["channel"]): row for row in rows
    }
    assert {key: row["count"] for key, row in found.items() if row["count"]} == {
        key: len(latencies) for key, latencies in collector.latencies_ns.items() if latencies
    }
    for key, latencies in collector.latencies_ns.items():
        for permille, name in ((500, "p50_ms"), (990, "p99_ms")):
            exact = exact_percentile(latencies, permille) / 1e6
            assert found[key][name] == pytest.approx(exact, rel=0.0109), (key, name)
