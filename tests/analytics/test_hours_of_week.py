"""Comparison of two periods by the hours of the week that both have."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from nsqanalytics.hours_of_week import as_text, common_hours
from nsqanalytics.job_list import JOBS
from nsqanalytics.locations import Locations
from nsqanalytics.parameters import BadParameter
from nsqanalytics.progress import Progress
from nsqanalytics.results import Result
from nsqanalytics.schema import Sample
from nsqanalytics.span import Span

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
MONDAY = datetime(2026, 3, 2, tzinfo=UTC)


def test_each_hour_of_the_week_counts_equally_often_in_both_periods():
    """Of ten days and three, Monday to Wednesday; the first three days of the longer period are not the last ones."""
    long, short = Span(MONDAY, MONDAY + 10 * DAY), Span(MONDAY - 7 * DAY, MONDAY - 4 * DAY)
    mine, other = common_hours(long, short)
    assert (len(mine), len(other)) == (72, 72)
    assert mine == [hour + 14 * DAY for hour in other]
    assert as_text(mine) == "Mon 0–24, Tue 0–24, Wed 0–24"


def test_only_whole_hours_are_compared():
    """A period from 9:30 to 17:10 has the hours from 10 to 17."""
    span = Span(MONDAY + 9.5 * HOUR, MONDAY + 17 * HOUR + HOUR / 6)
    mine, _ = common_hours(span, span.earlier(7 * DAY))
    assert as_text(mine) == "Mon 10–17"
    assert common_hours(span, span.earlier(DAY)) == ([], [])
    assert as_text(common_hours(Span(MONDAY, MONDAY + 14 * DAY), Span(MONDAY - 14 * DAY, MONDAY))[0]) == "all"
    twice = Span(MONDAY, MONDAY + 8 * DAY)
    assert as_text(common_hours(twice, twice.earlier(14 * DAY))[0]).startswith("Mon 0–24 twice, Tue 0–24, Wed")


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (
            {"before_until": "2026-03-10T00:00Z"},
            "before_until: the period that ends at 2026-03-10T00:00",
        ),
        ({"until": "", "before_until": "2026-03-10T12:00Z"}, "before_until: the period that ends at 2026-03-10T12:00"),
        (
            {"before_until": "2026-03-12T00:00Z"},
            "before_until: 2026-03-12T00:00Z is in the future; it is now 2026-03-11",
        ),
        ({"until": "2026-03-11T12:00Z"}, "until: 2026-03-11T12:00Z is in the future; it is now 2026-03-11T01:00Z"),
        (
            {"hours": "week", "period": "6h", "before_until": "2026-03-09T00:00Z"},
            "hours: the two periods have no whole hour of the week in common",
        ),
        (
            {"hours": "week", "period": "30m", "until": "2026-03-10T23:50Z"},
            "hours: the two periods have no whole hour of the week in common",
        ),
        ({"hours": "some"}, "hours: 'some' is not one of all, week"),
        ({"before": "1d"}, "before: 1d is less than the period of 2d"),
    ],
)
def test_periods_that_cannot_be_compared_are_refused(given: dict[str, str], complaint: str):
    with pytest.raises(BadParameter, match=complaint):
        JOBS["compare"].checked({"until": "2026-03-11T00:00Z", "period": "2d"} | given, MONDAY + 9 * DAY + HOUR)
    later = {"until": "2026-03-11T00:00Z", "period": "2d", "before_until": "2026-03-13T00:00Z"}
    assert JOBS["compare"].checked(later).other(MONDAY).since == datetime(2026, 3, 11, tzinfo=UTC)


@pytest.mark.spark
def test_the_report_compares_the_common_hours_and_names_them(spark, archive: Path, tmp_path: Path, write):
    """Two days from Sunday noon, and two from Monday noon of the week before: Monday afternoon is in both. The depth is
    100 on a Monday and 7 on other days, so that all other hours would change the mean."""
    samples = []
    for hour in range(-8 * 24, 3 * 24):
        at = MONDAY + hour * HOUR
        depth = 100 if at.weekday() == 0 else 7
        for minutes in (0, 15, 30, 45):
            taken_at = at + timedelta(minutes=minutes)
            figures = {"depth": depth, "message_count": 0, "finish_count": 0, "hist_zero_count": 0, "hist_offset": 0}
            samples.append(
                Sample(taken_at=taken_at, node="n", boot_id="1", topic="t", channel="c", hist_counts=[], **figures)
            )
    write(samples)
    given = {"until": (MONDAY + 36 * HOUR).isoformat(), "period": "2d", "hours": "week"}
    other = {"before_until": (MONDAY - 7 * DAY + 60 * HOUR).isoformat()}
    job, place = JOBS["compare"], Locations(str(archive), str(tmp_path / "result"))
    job.run(spark, place, job.checked(given | other), MONDAY, Progress(io.StringIO()))
    result = Result(tmp_path / "result")
    assert result.hours == "Mon 12–24, Tue 0–12"
    [row] = [dict(zip(result.names, row, strict=True)) for row in result.page(0, 10) if "depth_mean" in row]
    assert row["now"] == row["before"] == pytest.approx((100 + 7) / 2, rel=0.05)
