"""Reports over random archives whose files arrive late, with rollups and time zones, compared with plain Python.

``NSQ_ARCHIVES=500 pytest tests/analytics/test_late_files.py`` takes 500 archives.
"""

from __future__ import annotations

import io
import os
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from nsqanalytics.archive import ArchiveWriter
from nsqanalytics.job_list import JOBS
from nsqanalytics.locations import Locations
from nsqanalytics.progress import Progress
from nsqanalytics.results import Result
from nsqanalytics.rollups import Rollups
from nsqanalytics.schema import Sample
from nsqwire.histogram import midpoint
from tests.analytics.hostile import hostile_archive
from tests.analytics.walker import ZERO, Row, walk_hours

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

ARCHIVES, AT_ONCE = int(os.environ.get("NSQ_ARCHIVES", "20")), 20
BEGAN = datetime(2026, 3, 14, tzinfo=UTC)
APART = timedelta(days=2)
"""No archive reaches into the hours of another, so that one report covers many."""
HOUR = timedelta(hours=1)
ZONES = ("Asia/Kolkata", "America/St_Johns", "Pacific/Chatham")
"""None is a whole number of hours away from UTC."""
PERCENTILES = {"p50_ms": 500, "p90_ms": 900, "p95_ms": 950, "p99_ms": 990}
Key = tuple[datetime, str, str | None]
"""window_start, topic, channel."""
Figures = dict[str, Any]


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ZoneInfo]]:
    """Sets the time zone of this process, and returns it."""

    def zone(name: str) -> ZoneInfo:
        monkeypatch.setenv("TZ", name)
        time.tzset()
        return ZoneInfo(name)

    yield zone
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def run(spark: Any, archive: Path, tmp_path: Path) -> Callable[..., Result]:
    """Runs a job over a period that ends at ``until``; returns its result."""

    def run(name: str, until: datetime, **parameters: str) -> Result:
        output = tmp_path / f"result-{random.randrange(1 << 40)}"
        given = {"until": until.isoformat(), "period": f"{(until - BEGAN) // HOUR}h"} | parameters
        job = JOBS[name]
        job.run(spark, Locations(str(archive), str(output)), job.checked(given), until, Progress(io.StringIO()))
        spark.catalog.clearCache()
        return Result(output)

    return run


@pytest.mark.parametrize("first", range(0, ARCHIVES, AT_ONCE))
def test_reports_equal_an_independent_computation_whenever_files_arrive(run, zone, archive, first):
    """A third of the files arrive after a rollup. Some of their hours are rolled up again, others are stale."""
    rng = random.Random(first)
    local = zone(ZONES[first // AT_ONCE % len(ZONES)])
    # A collector's clock that is set back may write readings from before the archive's beginning.
    made = {first + n: hostile_archive(first + n, BEGAN + n * APART + 12 * HOUR) for n in range(AT_ONCE)}
    until, halfway = ((BEGAN + days * APART).astimezone(local) for days in (AT_ONCE, AT_ONCE // 2))
    batches = [batch for samples in made.values() for batch in in_files(samples, rng)]
    rng.shuffle(batches)
    in_time, late = batches[len(batches) // 3 :], batches[: len(batches) // 3]

    write(archive, in_time)
    run("rollup", until)
    write(archive, late)
    run("rollup", halfway)
    hours = Rollups(str(archive)).hours.values()
    assert {hour.rollup is None for hour in hours} == {True, False}
    latency, throughput = run("latency", until, window="1h", minimum_count="1"), run("throughput", until, window="1h")

    expected = expected_rows(made.values())
    assert len(expected) > 2 * AT_ONCE
    assert_equal(by_key(throughput), {key: totals(rows, key) for key, rows in expected.items()})
    assert_equal(by_key(latency), {key: percentiles(rows) for key, rows in expected.items() if key[2] is not None})


def in_files(samples: list[Sample], rng: random.Random) -> Iterator[list[Sample]]:
    """The samples in the order of writing, a few readings in each file."""
    while samples:
        size = rng.randrange(1, 40)
        yield samples[:size]
        samples = samples[size:]


def write(archive: Path, batches: list[list[Sample]]) -> None:
    writer = ArchiveWriter(str(archive))
    for batch in batches:
        writer.write(batch)


def expected_rows(archives: Any) -> dict[Key, list[Row]]:
    """The rows of each node, by window, topic and channel."""
    found: dict[Key, list[Row]] = defaultdict(list)
    for samples in archives:
        for (start, _, topic, channel), row in walk_hours(samples).items():
            found[start, topic, channel or None].append(row)
    return found


def totals(rows: list[Row], key: Key) -> Figures:
    """The throughput report's figures that are sums over nodes."""
    sums: Counter[str] = Counter()
    for row in rows:
        sums.update(row.sums)
    names = ("in_count", "out_count", "requeue_count", "timeout_count", "sample_count", "uncertain_count")
    figures: Figures = {name: max(sums[name], 0) for name in names}  # out_count of Go nodes may be negative
    # No reading of an older archive, and none of a topic, has these.
    figures |= {name: sums.get(name) for name in ("died_count", "dropped_count")}
    if key[2] is None:
        figures["out_count"] = None
    return figures | {
        "node_count": len(rows),
        "depth_max": sum(row.depth_max for row in rows),
        "depth_last": sum(row.depth_last for row in rows),
        "observed_s": max(row.observed_s for row in rows),
    }


def percentiles(rows: list[Row]) -> Figures:
    """The latency report's figures."""
    buckets: Counter[int] = Counter()
    for row in rows:
        buckets.update(row.buckets or {})
    sums = {
        name: sum(row.sums[name] for row in rows) for name in ("carried_count", "unplaced_count", "uncertain_count")
    }
    ranked = {name: at_rank(buckets, permille) for name, permille in PERCENTILES.items()}
    return {"count": buckets.total(), **ranked, **sums}


def at_rank(buckets: Counter[int], permille: int) -> float | None:
    """The value, in ms, of the message of rank ceil(q · n)."""
    left = -(-buckets.total() * permille // 1000)
    for bucket in sorted(bucket for bucket, count in buckets.items() if count):
        left -= buckets[bucket]
        if left <= 0:
            return 0.0 if bucket == ZERO else midpoint(bucket) / 1e6
    return None


def by_key(result: Result) -> dict[Key, Figures]:
    """The rows by window, topic and channel."""
    names = [column.name for column in result.columns]
    rows = [dict(zip(names, row, strict=True)) for row in result.page(0, 1_000_000)]
    return {
        (datetime.fromtimestamp(row["window_start"] / 1000, UTC), row["topic"], row["channel"]): row for row in rows
    }


def assert_equal(found: dict[Key, Figures], expected: dict[Key, Figures]) -> None:
    """Compare the figures that are expected; a failure names the first rows that differ, and their archives."""
    wrong = []
    for key in sorted(found.keys() | expected.keys(), key=str):
        here, there = found.get(key), expected.get(key)
        if here is None or there is None:
            wrong.append(f"{key}: {here} is not {there}")
        elif differing := {name: (here[name], want) for name, want in there.items() if differs(here[name], want)}:
            wrong.append(f"{key}, archive {(key[0] - BEGAN) // APART}: {differing}")
    assert not wrong, "\n".join(wrong[:5])


def differs(here: Any, there: Any) -> bool:
    return bool(here != (pytest.approx(there, rel=1e-12) if isinstance(there, float) else there))
