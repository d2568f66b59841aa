"""Reports on a period of which retention has removed the first samples, and kept the rollups."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from nsqanalytics.archive import ArchiveWriter
from nsqanalytics.compaction import retain
from nsqanalytics.job_list import JOBS
from nsqanalytics.locations import ArchiveMissing, Locations
from nsqanalytics.progress import Progress
from nsqanalytics.results import Result

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

HOUR = timedelta(hours=1)
END = 10
"""Hours of the archive, of which the first REMOVED have only rollups."""
REMOVED = 6


@pytest.fixture
def report(spark, tmp_path: Path, archive: Path, midnight: datetime, make_broker) -> Callable[..., Result]:
    """Runs a job on an archive of one channel, read every ten minutes: a message is finished before each reading. The
    keyword arguments are hours since midnight for ``until`` and ``before_until``, else parameters as they are."""
    broker = make_broker(started_at=midnight)
    for minute in range(5, END * 60, 10):
        at = midnight + timedelta(minutes=minute)
        broker.finish("t", "c", 5_000_000, at)
        ArchiveWriter(str(archive)).write(broker.sample(at))

    def run(name: str, **given: str | float) -> Result:
        hours = {key: midnight + value * HOUR for key, value in given.items() if isinstance(value, int | float)}
        job = JOBS[name]
        parameters = job.checked(given | {key: at.isoformat() for key, at in hours.items()})
        place = Locations(str(archive), str(tmp_path / f"result-{len(list(tmp_path.iterdir()))}"))
        spark.catalog.clearCache()
        job.bytes_read(place, parameters, midnight)
        job.run(spark, place, parameters, midnight, Progress(io.StringIO()))
        return Result(Path(place.output))

    run("rollup", until=END, period="1d")
    removed = list(retain(str(archive), timedelta(hours=END - REMOVED), 400 * 24 * HOUR, midnight + END * HOUR))
    assert {row[0] for row in removed} == {midnight + hour * HOUR for hour in range(REMOVED)}
    return run


def covered(result: Result, midnight: datetime) -> dict[str, float]:
    """What the result covers, in hours since midnight."""
    return {name: (at / 1000 - midnight.timestamp()) / 3600 for name, at in result.covered.items()}


def test_short_windows_cover_the_hours_that_have_samples(report, midnight):
    """Of the period and of the one before. If all samples of a period are gone, the error says which windows it has."""
    found = report("latency", window="5m", period="4h", until=END - 1, compared_with="period")
    assert covered(found, midnight) == {"covered_since": REMOVED, "covered_until": END - 1}
    assert found.total == 3 * 6
    found = report("throughput", window="5m", period="2h", until=END, compared_with="period")
    assert covered(found, midnight) == {
        "covered_since": 8,
        "covered_until": 10,
        "before_since": REMOVED,
        "before_until": 8,
    }
    found = report("throughput", window="5m", period="150m", until=END - 0.5, compared_with="period")
    assert covered(found, midnight) == {
        "covered_since": 7,
        "covered_until": 9.5,
        "before_since": REMOVED,
        "before_until": 7,
    }
    found = report("objectives", window="5m", period="9h", until=END)
    assert covered(found, midnight) == {"covered_since": REMOVED, "covered_until": END}
    with pytest.raises(ArchiveMissing, match="the samples of this period were removed, and windows of 5m are"):
        report("latency", window="5m", period="2h", until=REMOVED)


def test_two_periods_are_compared_as_far_as_both_can_be_counted(report, midnight):
    """They are three and a half hours apart, and begin in hours of which only sums are left."""
    found = report("compare", period="3h", until=7.5, before_until=4)
    assert covered(found, midnight) == {
        "covered_since": 6.5,
        "covered_until": 7.5,
        "before_since": 3,
        "before_until": 4,
    }
    assert found.total > 0
    found = report("compare", period="3h", until=7, before_until=4)
    assert covered(found, midnight) == {"covered_since": 4, "covered_until": 7, "before_since": 1, "before_until": 4}
    with pytest.raises(
        ArchiveMissing, match="nothing of the two periods can be compared: samples of them were removed"
    ):
        report("compare", period="2h", until=4.5, before_until=2)
