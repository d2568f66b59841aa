"""Rows that are compared with an earlier period, and a latency result's heat map, on archives small enough to check."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from nsqanalytics.heat import heat
from nsqanalytics.job_list import JOBS
from nsqanalytics.locations import Locations
from nsqanalytics.parameters import BadParameter
from nsqanalytics.progress import Progress
from nsqanalytics.results import EVERYTHING, Result, Selection
from nsqanalytics.schema import Sample
from nsqanalytics.series import groups
from nsqwire.histogram import Histogram

pytestmark = pytest.mark.spark
HOUR = timedelta(hours=1)
SLOW_AT = 26
"""The hour since midnight in which latencies are four times as high."""


@pytest.fixture
def result(spark, tmp_path: Path, archive: Path, midnight: datetime, write) -> Callable[..., Result]:
    """Runs a job on 30 hours of one channel: 60 messages an hour of 10 ms, and 40 ms in one hour. One message of each
    hour dies; in the second day, two."""
    histogram, samples, died = Histogram(), [], 0
    for step in range(30 * 2):
        at = midnight + step * HOUR / 2 + timedelta(minutes=1)
        for _ in range(30 if step else 0):
            histogram.record(40_000_000 if step // 2 == SLOW_AT else 10_000_000)
        died += (step % 2) * (2 if step >= 48 else 1)
        dense = histogram.to_json()
        figures = {"hist_zero_count": 0, "hist_offset": dense["offset"], "hist_counts": dense["counts"]}
        counted = {"message_count": histogram.count, "finish_count": histogram.count, "died_count": died}
        samples.append(
            Sample(
                taken_at=at,
                node="n",
                boot_id="01",
                started_at=midnight,
                topic="orders",
                channel="billing",
                depth=step,
                dead_count=died,
                dropped_count=0,
                **counted,
                **figures,
            )
        )
    write(samples)

    def run(name: str, **given: str) -> Result:
        output = tmp_path / f"result-{name}-{len(list(tmp_path.iterdir()))}"
        job = JOBS[name]
        spark.catalog.clearCache()
        place = Locations(str(archive), str(output))
        job.run(
            spark,
            place,
            job.checked({"until": (midnight + 28 * HOUR).isoformat()} | given),
            midnight,
            Progress(io.StringIO()),
        )
        return Result(output)

    return run


def rows(result: Result) -> list[dict[str, Any]]:
    return [dict(zip(result.names, row, strict=True)) for row in result.page(0, 1000)]


def test_each_row_is_compared_with_the_same_hour_of_the_period_before(result, midnight):
    """The slow hour is four times as slow as a day before; the period's bounds are those that were compared."""
    found = result("latency", period="6h", compared_with="period")
    by_hour = {row["window_start"]: row for row in rows(found)}
    slow = by_hour.pop(int((midnight + SLOW_AT * HOUR).timestamp() * 1000))
    assert slow["p99_change_percent"] == pytest.approx(300, rel=0.03)
    assert slow["p99_before_ms"] == pytest.approx(10, rel=0.011)
    assert {row["p99_change_percent"] for row in by_hour.values()} == {0.0}
    hours = {name: (at - int(midnight.timestamp() * 1000)) / 3_600_000 for name, at in found.covered.items()}
    assert hours == {"covered_since": 22, "covered_until": 28, "before_since": 16, "before_until": 22}


def test_a_period_without_an_earlier_one_in_the_archive_is_not_compared(result):
    """The archive has no week before: the columns are empty, no period is named, and there is no heat map of depths."""
    found = result("throughput", period="2h", compared_with="week", topic="nothing.*, or*s")
    assert {(row["depth_max_before"], row["depth_max_change_percent"]) for row in rows(found)} == {(None, None)}
    assert set(found.covered) == {"covered_since", "covered_until"}
    with pytest.raises(BadParameter, match="no histograms"):
        heat(found, EVERYTHING)


def test_counts_of_a_whole_period_are_compared_only_with_a_whole_one(result, midnight):
    """Four hours of the second day had twice as many deaths as the four before; the archive has no 26 hours before."""
    [row] = rows(result("dead", period="4h", compared_with="period", topic="invoices, orders"))
    assert (row["died_count"], row["died_count_before"], row["died_count_change_percent"]) == (8, 4.0, 100.0)
    [row] = rows(result("dead", period="26h", compared_with="period"))
    assert (row["died_count_before"], row["died_count_change_percent"]) == (None, None)


def test_a_heat_map_has_each_message_in_the_band_of_its_latency(result, midnight):
    """Also when several windows are one column. The worst channel of the result is the one with the slow hour."""
    found = result("latency", period="12h")
    drawn = heat(found, Selection(topic="orders"))
    assert (drawn.step_ms, len(drawn.times)) == (3_600_000, 12)
    assert sum(cell.count for cell in drawn.cells) == sum(row["count"] for row in rows(found)) == 720
    bands = {(drawn.bounds_ms[cell.band], drawn.bounds_ms[cell.band + 1]) for cell in drawn.cells}
    assert [low < ms <= high for (low, high), ms in zip(sorted(bands), (10, 40), strict=True)] == [True, True]
    slow = [cell.at for cell in drawn.cells if drawn.bounds_ms[cell.band + 1] >= 40]
    assert slow == [int((midnight + SLOW_AT * HOUR).timestamp() * 1000)]
    few = heat(found, EVERYTHING, most=3)
    assert len(few.times) <= 3
    assert sum(cell.count for cell in few.cells) == 720
    [worst] = groups(found, "p99_ms")
    assert (worst.topic, worst.channel, worst.worst) == ("orders", "billing", pytest.approx(40, rel=0.011))
    assert "histogram" not in "".join(found.csv())
    assert set(found.covered) == {"covered_since", "covered_until"}  # a comparison must be asked for
