"""Forecasts of series with known truth, and the report on an archive."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nsqanalytics.channel_hours import COLUMNS, Hours, outlook
from nsqanalytics.forecasting import forecast, reason_against
from nsqanalytics.span import HOURS_OF_DAY as DAY
from nsqanalytics.span import HOURS_OF_WEEK as WEEK
from tests.analytics.hourly_archive import with_known_truth

HISTORY = 28 * DAY


def test_the_bands_contain_the_share_of_hours_that_they_name():
    """Of 30 series whose next week is known, the 80 % band has 75 to 85 % of the hours, the other 92 to 98 %; the
    forecast is better than last week again, and its back-test estimates its error and its coverage roughly."""
    rows = []
    for seed in range(30):
        truth = with_known_truth(seed, HISTORY + WEEK, kind=seed % 4)
        came = truth[HISTORY:]
        found = forecast(truth[:HISTORY], 0, WEEK)
        low_95, low_80, high_80, high_95 = found.bands
        assert (np.diff(found.bands, axis=0) >= 0).all()
        test = found.back_test
        assert test is not None
        assert (test.hours, found.season) == (WEEK, "week")
        assert test.mase is not None
        within = (np.mean((low_80 <= came) & (came <= high_80)), np.mean((low_95 <= came) & (came <= high_95)))
        error = np.mean(np.abs(found.values - came))
        again = np.mean(np.abs(truth[HISTORY - WEEK : HISTORY] - came))
        rows.append((*within, error, again, test.mae, test.within_80))
    within_80, within_95, error, again, said, said_80 = np.mean(rows, axis=0)
    assert 0.75 <= within_80 <= 0.85
    assert 0.92 <= within_95 <= 0.98
    assert error < 0.85 * again
    assert said == pytest.approx(error, rel=0.25)
    assert 0.7 <= said_80 <= 0.88


def test_the_season_is_a_week_from_three_weeks_of_history_on():
    """A back-test has to leave two weeks."""
    figure = with_known_truth(1, 4 * WEEK, kind=1)
    assert [forecast(figure[:hours], 0, WEEK).season for hours in (6 * DAY, 2 * WEEK, 3 * WEEK)] == [
        "day",
        "day",
        "week",
    ]


def test_growth_goes_on():
    """A figure that doubled in four weeks grows further, in both bands."""
    at = np.arange(HISTORY)
    figure = (100 + 100 * at / HISTORY) * (1 + 0.3 * np.sin(2 * np.pi * at / DAY))
    figure = figure + np.random.default_rng(5).normal(size=HISTORY)
    found = forecast(figure, 0, WEEK)
    assert np.mean(found.values) == pytest.approx(212, rel=0.06)


def test_figures_without_noise_repeat_themselves():
    """A constant, nothing at all and an exact season have bands without width, and an error of zero."""
    at = np.arange(HISTORY)
    for figure in (np.full(HISTORY, 7.0), np.zeros(HISTORY), 50 + 10 * np.sin(2 * np.pi * at / DAY)):
        found = forecast(figure, 0, WEEK)
        assert found.values == pytest.approx(figure[:WEEK], abs=1e-9)
        assert np.ptp(found.bands, axis=0).max() == pytest.approx(0, abs=1e-9)
        assert found.back_test is not None
        assert (found.back_test.mase, found.back_test.within_80) == (None, 1.0)


@pytest.mark.parametrize(
    "disturb", ["hours are missing", "days are missing", "an hour of the day is missing", "a burst"]
)
def test_gaps_and_bursts_leave_the_forecast_as_it_is(disturb):
    """It stays within a tenth of the forecast of the whole series."""
    figure = with_known_truth(3, HISTORY, kind=0)
    damaged = figure.copy()
    match disturb:
        case "hours are missing":
            damaged[1:-1][np.random.default_rng(1).random(HISTORY - 2) < 0.3] = np.nan
        case "days are missing":
            damaged[200:320] = np.nan
        case "an hour of the day is missing":
            damaged[3:-3:24] = np.nan
        case _:
            damaged[500] *= 50
    whole, other = forecast(figure, 0, WEEK), forecast(damaged, 0, WEEK)
    assert np.isfinite(other.bands).all()
    if disturb == "an hour of the day is missing":
        return
    assert np.mean(np.abs(whole.values - other.values)) < 0.1 * figure.mean()


def test_rare_bursts_are_forecast_without_an_error_of_the_arithmetic():
    """Mostly zeros, zeros up to the last hour, and a figure that stopped: finite, never negative."""
    rare = np.random.default_rng(2).poisson(0.05, HISTORY).astype(float)
    last = np.zeros(HISTORY)
    last[-1] = 5
    stopped = np.where(np.arange(HISTORY) < HISTORY - 72, 100.0, 0.0)
    for figure in (rare, last, stopped):
        found = forecast(figure, 0, WEEK)
        assert np.isfinite(found.bands).all()
        assert (found.bands >= 0).all()
        assert (found.values >= 0).all()


@pytest.mark.parametrize(
    ("history", "late", "reason"),
    [
        (np.zeros(0), 0, "no readings"),
        (np.ones(119), 0, "119 hours of history; a forecast needs 120"),
        (np.ones(200), 49, "the last reading is 49 hours old; a forecast needs one of the last 48 hours"),
        (np.where(np.arange(400) % 3, np.nan, 1.0), 0, "134 of 400 hours have readings; a forecast needs 60%"),
        (np.ones(120), 48, None),
    ],
)
def test_a_history_that_cannot_be_continued_has_a_reason(history, late, reason):
    assert reason_against(history, late) == reason


def of_channel(hours: int, first: int = 0, **figures: Any) -> Any:
    """A channel's hours as Spark gives them, with these figures and otherwise zeros."""
    import pyarrow as pa

    columns = {name: np.broadcast_to(np.asarray(figures.get(name, 0.0), float), (hours,)) for name in COLUMNS}
    at = {"topic": ["t"] * hours, "channel": ["c"] * hours, "hour": np.arange(first, first + hours)}
    return pa.table(at | columns | {"message_bytes": np.full(hours, 100.0)})


def test_a_backlog_is_gone_when_consumers_have_caught_up_with_the_day():
    """By day as much arrives as the two consumers finish, at night nothing: twelve hours' work is done in the night,
    not in the mean time."""
    at = np.arange(10 * DAY)
    in_rate = np.where(at % DAY < 12, 10.0, 0.0)
    backlog = 12 * 3600 * 10.0 - 1
    table = of_channel(
        10 * DAY, in_rate=in_rate, out_rate=10.0, consumers=2.0, served=5.0, depth=backlog, depth_last=backlog
    )
    [row] = outlook(table, 10 * DAY, WEEK, None).to_pylist()
    assert row["service_rate"] == 5.0
    assert (row["method"], row["reason"]) == ("forecast", None)
    assert row["drains_at"].timestamp() == (11 * DAY) * 3600


def test_a_backlog_without_consumers_fills_the_disk():
    """Ten messages of 100 bytes a second: after a hundred hours, 360 MB. Nothing drains."""
    table = of_channel(10 * DAY, in_rate=10.0, depth=5e6, depth_last=5e6)
    [row] = outlook(table, 10 * DAY, WEEK, 360e6).to_pylist()
    assert row["disk_full_at"].timestamp() == (10 * DAY + 100) * 3600
    assert row["drains_at"] is None


def test_a_short_history_is_continued_by_a_straight_line():
    """And the report says so; a channel that keeps up has no backlog that could drain."""
    table = of_channel(50, in_rate=10.0, out_rate=15.0, consumers=1.0, served=15.0, depth=18_000.0, depth_last=18_000.0)
    [row] = outlook(table, 50, WEEK, 1e9).to_pylist()
    assert (row["method"], row["reason"]) == ("straight line", "50 hours of history; a forecast needs 120")
    assert row["drains_at"].timestamp() == 51 * 3600
    idle = of_channel(50, in_rate=10.0, out_rate=10.0, consumers=1.0, served=10.0, depth=3.0, depth_last=3.0)
    [row] = outlook(idle, 50, WEEK, 1e9).to_pylist()
    assert (row["drains_at"], row["disk_full_at"]) == (None, None)


def test_one_lucky_hour_does_not_decide_the_rate_of_a_consumer():
    """With a backlog, it is the median of the busy hours; without, what one hour in ten exceeds."""
    served = np.full(100, 5.0)
    served[50] = 500.0
    figures = {name: np.zeros(100) for name in COLUMNS} | {"served": served, "out_rate": np.full(100, 5.0)}
    assert Hours("t", "c", 0, figures, 100.0).service_rate() == 5.0
    with_backlog = figures | {"depth": np.where(np.arange(100) < 10, 1000.0, 0.0), "served": np.arange(100.0)}
    assert Hours("t", "c", 0, with_backlog, 100.0).service_rate() == 5.0  # the median of 1 to 9


def test_a_process_that_only_lists_jobs_does_not_import_statsmodels():
    """Nor pandas: each takes a second or two."""
    import subprocess
    import sys

    code = (
        "import nsqanalytics.job_list, nsqanalytics.channel_hours, sys; "
        "print(sorted({'statsmodels', 'pandas'} & {*sys.modules}))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
