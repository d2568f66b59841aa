"""The reports ``forecast``, ``anomalies`` and ``capacity`` on one archive of 31 days."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nsqanalytics.channel_hours import ANOMALY_FIGURES, has_figure
from nsqanalytics.job_list import JOBS
from nsqanalytics.locations import Locations
from nsqanalytics.progress import Progress
from nsqanalytics.results import Result
from nsqanalytics.span import HOURS_OF_DAY as DAY
from nsqanalytics.span import HOURS_OF_WEEK as WEEK
from nsqanalytics.usual_hours import usual_hours
from tests.analytics.hourly_archive import BEGAN, HOUR, SAMPLED, write_archive

pytestmark = pytest.mark.spark

HOURS = 31 * DAY
BURST = HOURS - 14
THRESHOLD = 4.0
"""The default of the report on anomalies."""
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def an_archive(tmp_path_factory) -> tuple[Path, datetime]:
    """An archive with a burst of 20,000 messages, a gap, a restart, a channel that ended a day ago, and a new one."""
    root = tmp_path_factory.mktemp("forecast") / "archive"
    return root, write_archive(root, HOURS, lambda hour: 20_000 * (hour == BURST))


@pytest.fixture
def run(spark, an_archive, tmp_path) -> Callable[..., Rows]:
    """Runs a job up to 20 minutes after the last hour, and returns its rows. Its columns are those it declares."""
    root, end = an_archive

    def rows(job: str, **given: object) -> Rows:
        parameters = JOBS[job].checked({"until": (end + timedelta(minutes=20)).isoformat()} | given)
        JOBS[job].run(spark, Locations(str(root), str(tmp_path / job)), parameters, end, Progress(io.StringIO()))
        result = Result(tmp_path / job)
        assert [(c.name, c.type, c.unit) for c in result.columns] == [
            (f.name, f.type, f.unit) for f in JOBS[job].figures
        ]
        names = [column.name for column in result.columns]
        return [dict(zip(names, row, strict=True)) for row in result.page(0, 100_000)]

    return rows


def milliseconds(hour: int) -> int:
    return int((BEGAN + hour * HOUR).timestamp() * 1000)


def test_a_forecast_begins_after_the_period_and_has_a_back_test_or_a_reason(run):
    """The period ends twenty minutes into an hour, so the next whole hour is the first, also for a channel that ended a
    day ago. One of two days has no forecast, and the reason in its place."""
    found = run("forecast")
    coming = [row for row in found if row["forecast"] is not None]
    assert {row["channel"] for row in coming} == {None, "billing", "ended", "stuck"}
    for channel in ("billing", "ended"):
        hours = [row["window_start"] for row in coming if (row["channel"], row["figure"]) == (channel, "in_rate")]
        assert hours == [milliseconds(HOURS + 1 + n) for n in range(WEEK)]
    new = [row for row in found if row["channel"] == "new" and row["window_start"] >= milliseconds(HOURS)]
    assert {row["reason"] for row in new} == {"46 hours of history; a forecast needs 120"}
    assert {row["figure"] for row in new} == {"depth", "in_rate", "out_rate", "bytes_behind", "capacity_rate"}
    assert {row["window_start"] for row in new} == {milliseconds(HOURS + 1)}
    rate = next(row for row in coming if (row["channel"], row["figure"]) == ("billing", "in_rate"))
    assert rate["season"] == "week"
    assert 160 <= rate["tested_hours"] <= WEEK  # an hour without a reading before it has no observed time
    assert 0 < rate["mase"] < 4  # the burst is in the hours of the back-test
    assert 50 <= rate["within_80_percent"] <= 100
    assert rate["low_95"] <= rate["low_80"] <= rate["forecast"] <= rate["high_80"] <= rate["high_95"]
    past = [row for row in found if row["actual"] is not None]
    assert max(row["window_start"] for row in past) == milliseconds(HOURS - 1)
    behind = [row["actual"] for row in past if (row["channel"], row["figure"]) == ("billing", "bytes_behind")]
    assert behind == pytest.approx([2_000.0] * len(behind))
    capacity = [row["actual"] for row in past if (row["channel"], row["figure"]) == ("stuck", "capacity_rate")]
    assert capacity == pytest.approx([400 / 60] * len(capacity))


def test_the_hour_of_a_burst_is_the_only_anomaly_and_comes_first(run):
    """Every hour that is judged has its band; a channel of two days has the reason why it is not."""
    rows = run("anomalies", period="3d", weeks=3)
    unusual = [row for row in rows if row["state"] in ("high", "low")]
    assert {(row["channel"], row["figure"], row["window_start"]) for row in unusual} == {
        *((channel, figure, milliseconds(BURST)) for channel, figure in ((None, "in_rate"), ("billing", "in_rate"))),
        ("billing", "out_rate", milliseconds(BURST)),
    }
    assert rows[: len(unusual)] == unusual
    assert all(row["low"] <= row["expected"] <= row["high"] < row["actual"] for row in unusual)
    new = [row for row in rows if row["channel"] == "new"]
    assert {row["reason"] for row in new} == {"past weeks with these hours: 0; a comparison needs 3"}
    hours = [row for row in rows if (row["channel"], row["figure"]) == ("billing", "in_rate")]
    assert [row["window_start"] for row in sorted(hours, key=lambda row: row["window_start"])] == [
        milliseconds(HOURS - 71 + n) for n in range(71)
    ]
    # Three weeks before these hours, the archive has its gap, which leaves two weeks.
    gap = {milliseconds(hour + 3 * WEEK) for hour in range(200, 206)}
    assert {row["window_start"] for row in hours if row["high"] is None} == gap


def test_the_bands_of_the_present_hour_are_those_of_the_report(run, an_archive):
    """They are found in rollups, without Spark, before the hour is over. The report on the hours is made later, from
    rollups and samples. Of the hours after the present one, only the level may differ."""
    root, end = an_archive
    present = int(end.timestamp()) // 3600 - SAMPLED
    found = usual_hours(str(root), present - 1, present + 2, lambda topic, channel: ANOMALY_FIGURES)
    until = datetime.fromtimestamp((present + 3) * 3600, UTC)
    rows = run("anomalies", until=until.isoformat())
    report = {(row["topic"], row["channel"] or "", row["figure"], row["window_start"]): row for row in rows}
    compared = 0
    for (topic, channel, figure), usual in found.items():
        if not has_figure(channel, figure):
            continue
        for place in range(4):
            row = report[topic, channel, figure, (present - 1 + place) * 3_600_000]
            assert row["weeks"] == usual.weeks[place]
            assert (row["expected"] is None) == np.isnan(usual.expected[place])
            if place < 2 and row["expected"] is not None:
                low, high = THRESHOLD * usual.scale[place] * np.array([-1, 1]) + usual.expected[place]
                assert row["expected"] == pytest.approx(usual.expected[place], rel=1e-9)
                assert (row["low"], row["high"]) == pytest.approx((max(0.0, low), high), rel=1e-9)
                compared += 1
    assert compared == 2 * (2 + 3 * 6)  # two hours of the topic's two figures, and of three channels' six


def test_capacity_looks_ahead_by_a_forecast_or_says_why_by_a_straight_line(run):
    """The backlog that grows fills the disk; channels that keep up have none. A channel that ended does not fail it."""
    found = {row["channel"]: row for row in run("capacity", period="10d", free_gb=0.001)}
    assert (found["billing"]["method"], found["billing"]["reason"]) == ("forecast", None)
    assert (found["billing"]["drains_at"], found["billing"]["disk_full_at"]) == (None, None)
    assert found["billing"]["consumers_needed_at_horizon"] > 0
    assert (found["stuck"]["service_rate"], found["stuck"]["drains_at"]) == (pytest.approx(200 / 60), None)
    assert found["stuck"]["consumers_needed"] == 5  # at 70 % of 3.3 messages/s each, for 10 messages/s
    # 10,000 messages of 100 bytes, of which 3.3 a second are not finished: an hour is enough.
    assert found["stuck"]["disk_full_at"] == milliseconds(HOURS + 1)
    assert found["new"]["method"] == "straight line"
    assert found["new"]["reason"] == "46 hours of history; a forecast needs 120"
    assert found["ended"]["method"] == "forecast"


def test_one_node_is_forecast_alone(run):
    """A node that the archive does not have has no rows."""
    assert run("forecast", node="10.0.0.1:4151", channel="ended", period="6d")
    assert run("forecast", node="10.0.0.2:4151", channel="ended", period="6d") == []
