"""ACTIVITY by Spark compared with ACTIVITY in plain Python, over random archives.

``NSQ_ARCHIVES=200 pytest tests/analytics/test_activity.py`` takes 200 archives.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from nsqanalytics.counting.ends import Rules
from nsqanalytics.counting.of_files import Wanted
from nsqanalytics.rollups import Rollups
from nsqanalytics.schema import Sample, as_table, spark_schema
from nsqanalytics.span import Span
from tests.analytics.hostile import hostile_archive
from tests.analytics.walker import COUNTERS, ZERO, Row, RowKey, walk

pytestmark = pytest.mark.spark

ARCHIVES, AT_ONCE, FILES = int(os.environ.get("NSQ_ARCHIVES", "40")), 20, 3
WINDOWS = ((timedelta(minutes=5),), (timedelta(hours=1),))
APART = timedelta(days=3)
"""No archive reaches into the hours of another, so that many are looked at in one go."""
SUMS = ("sample_count", "left_out_count", "carried_count", "unplaced_count", "uncertain_count", *COUNTERS)


READERS = ("tasks", "Spark, distributed", "Spark, in one task")


def read_by(reader: str, spark: Any, archive: Path, window: timedelta, wanted: Wanted) -> Any:
    """ACTIVITY of an archive, by one of READERS."""
    from nsqanalytics.computation import activity

    if reader == "tasks":
        always = Span(datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC))
        return Rollups(str(archive)).activity(spark, always, Rules(window), wanted)
    samples = spark.read.schema(spark_schema()).parquet(str(archive / "samples"))
    return activity(samples, Rules(window), wanted, fits_one_task=reader == "Spark, in one task")


def rows_read_by(reader: str, spark: Any, archive: Path, window: timedelta) -> dict[RowKey, dict[str, Any]]:
    found = {}
    for row in read_by(reader, spark, archive, window, Wanted()).collect():
        fields = row.asDict(recursive=True)
        start = fields.pop("window_start").astimezone(UTC)
        histogram = fields.pop("histogram")
        fields["buckets"] = None
        if histogram is not None:
            counts = {histogram["offset"] + n: count for n, count in enumerate(histogram["counts"])}
            fields["buckets"] = {bucket: n for bucket, n in ({ZERO: histogram["zero"]} | counts).items() if n}
        fields["last_at"] = fields["last_at"].astimezone(UTC)
        if fields["carried_since"] is not None:
            fields["carried_since"] = fields["carried_since"].astimezone(UTC)
        found[start, fields.pop("node"), fields.pop("topic"), fields.pop("channel")] = fields
    return found


def by_hand(samples: list[Sample], window: timedelta) -> dict[RowKey, dict[str, Any]]:
    return {key: expected_row(key, row) for key, row in walk(samples, window).items()}


def expected_row(key: RowKey, row: Row) -> dict[str, Any]:
    figures: dict[str, Any] = {name: row.sums[name] for name in SUMS}
    figures |= {name: row.sums.get(name) for name in ("died_count", "dropped_count")}
    if not key[3]:
        figures["out_count"] = None
    names = ("observed_s", "depth_area", "client_area", "depth_max", "depth_last", "dead_last", "oldest_max_ns")
    names += ("last_at", "carried_since")
    figures |= {name: getattr(row, name) for name in names}
    figures["buckets"] = None if row.buckets is None else {bucket: n for bucket, n in row.buckets.items() if n}
    return figures


@pytest.mark.timeout(1800)
def test_activity_equals_an_independent_computation_on_random_archives(spark, tmp_path, midnight):
    """Every figure of every row, exactly. A failure names its seed: hostile_archive(seed, …) makes the archive."""
    rows = 0
    for first in range(0, ARCHIVES, AT_ONCE):
        made = {seed: hostile_archive(seed, midnight + seed * APART) for seed in range(first, first + AT_ONCE)}
        archive = tmp_path / f"from-{first}"
        for part in range(FILES):  # the readings of a series are in several files, unordered
            write(archive, as_table([sample for of_one in made.values() for sample in of_one[part::FILES]]), part)
        for window in WINDOWS[first // AT_ONCE % len(WINDOWS)]:
            expected: dict[RowKey, dict[str, Any]] = {}
            for of_one in made.values():
                expected |= by_hand(of_one, window)
            for reader in READERS:
                found = rows_read_by(reader, spark, archive, window)
                wrong = {key[1].partition(".")[0] for key in found | expected if differs(found, expected, key)}
                assert not wrong, f"read by {reader}: {explained(sorted(wrong), found, expected)}"
            rows += len(found)
        spark.catalog.clearCache()
    assert rows > ARCHIVES * 10


def write(archive: Path, table: pa.Table, part: int) -> None:
    """Write a file into the folder of each hour."""
    hours = pc.floor_temporal(table["taken_at"], unit="hour")
    for start in pc.unique(hours).to_pylist():
        folder = archive / f"samples/date={start:%Y-%m-%d}/hour={start:%H}"
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(table.filter(pc.equal(hours, pa.scalar(start, hours.type))), folder / f"{part}.parquet")


def differs(found: dict[RowKey, dict[str, Any]], expected: dict[RowKey, dict[str, Any]], key: RowKey) -> bool:
    """Compare exactly, except for message-seconds beyond 2^53, which have no more digits."""
    here, there = found.get(key), expected.get(key)
    if here is None or there is None:
        return True
    areas = {name: pytest.approx(there[name], rel=1e-14, abs=0) for name in ("depth_area", "client_area")}
    return here != there | areas


def explained(seeds: list[str], found: dict[RowKey, dict[str, Any]], expected: dict[RowKey, dict[str, Any]]) -> str:
    """The seeds, and the first rows that differ."""
    lines = [f"the archives of the seeds {', '.join(seeds)} differ"]
    for key in sorted(key for key in found | expected if differs(found, expected, key))[:5]:
        here, there = found.get(key) or {}, expected.get(key) or {}
        names = [name for name in here | there if here.get(name) != there.get(name)]
        lines.append(f"{key}: { ({name: (here.get(name), there.get(name)) for name in names}) }")
    return "\n".join(lines)
