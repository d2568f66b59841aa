"""Hours that are unlike the same hour of past weeks: injected into series, and in the report on an archive."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from nsqanalytics.channel_hours import COLUMNS, anomalies
from nsqanalytics.past_weeks import judged
from nsqanalytics.span import HOURS_OF_WEEK as WEEK
from tests.analytics.hourly_archive import with_known_truth

THRESHOLD = 4.0
LEAST = 10 / 3600


def test_injected_anomalies_are_found_and_little_else():
    """Of 240 hours in 60 series that have between nothing and three times their messages, most are found."""
    found = false = injected = 0
    for seed in range(60):
        figure = with_known_truth(seed, 6 * WEEK, kind=seed % 4)
        rng = np.random.default_rng(1000 + seed)
        places = rng.choice(WEEK, 4, replace=False)
        figure[5 * WEEK + places] *= rng.choice([0, 0.2, 0.3, 1.8, 2.5, 3], 4)
        scores = judged(figure, 0, 5 * WEEK, weeks=4, least=LEAST).score(figure[5 * WEEK :])
        unusual = np.flatnonzero(np.abs(scores) >= THRESHOLD)
        injected += len(places)
        found += len({*unusual} & {*places})
        false += len({*unusual} - {*places})
    assert injected == 240
    assert found / (found + false) >= 0.8
    assert found / injected >= 0.6


def test_ten_messages_more_or_less_are_not_unusual():
    """A channel that never requeues has one requeue of ten messages: its score is 1."""
    requeues = np.zeros(6 * WEEK)
    requeues[-5] = 10 / 3600
    scores = judged(requeues, 0, 5 * WEEK, weeks=4, least=LEAST).score(requeues[5 * WEEK :])
    assert scores.max() == pytest.approx(1)
    requeues[-5] = 1000 / 3600
    assert judged(requeues, 0, 5 * WEEK, weeks=4, least=LEAST).score(requeues[5 * WEEK :]).max() == pytest.approx(100)


def test_growth_from_week_to_week_is_not_unusual():
    """A figure that grows by a tenth a week has no unusual hour, and one that stands still after that has none."""
    figure = with_known_truth(2, 7 * WEEK, kind=2)
    scores = judged(figure, 0, 5 * WEEK, weeks=4, least=LEAST).score(figure[5 * WEEK :])
    assert np.mean(np.abs(scores) >= THRESHOLD) < 0.01


def with_trend(seed: int, since_week: float) -> np.ndarray:
    """A backlog that is small, and from a week on grows steadily, by more or less in each hour."""
    rng = np.random.default_rng(seed)
    at = np.arange(6 * WEEK)
    growth = np.where(
        at > since_week * WEEK, rng.uniform(20, 400) * (1 + rng.uniform(0, 1) * rng.normal(size=at.size)), 0
    )
    return np.maximum(0.0, rng.uniform(10, 1000) + np.cumsum(growth) + rng.uniform(0, 50) * rng.normal(size=at.size))


@pytest.mark.parametrize("since_week", [0, 2, 4, 4.5])
def test_a_backlog_that_grows_steadily_is_not_unusual_after_six_days(since_week):
    """However many of the past weeks lie below it. Hours with a part of their backlog, or a multiple of it, are."""
    found = false = hours = 0
    for seed in range(40):
        figure = with_trend(seed, since_week)
        begun = max(0, int((since_week + 0.8 - 5) * WEEK))
        places = np.random.default_rng(1000 + seed).choice(np.arange(begun, WEEK), 4, replace=False)
        figure[5 * WEEK + places] *= np.random.default_rng(2000 + seed).choice([0, 0.2, 0.3, 1.8, 2.5, 3], 4)
        scores = judged(figure, 0, 5 * WEEK, weeks=4, least=10).score(figure[5 * WEEK :])
        unusual = np.flatnonzero(np.abs(scores[begun:]) >= THRESHOLD) + begun
        found += len({*unusual} & {*places})
        false += len({*unusual} - {*places})
        hours += WEEK - begun
    assert false / hours <= 0.01
    assert found / 160 >= 0.8


def test_a_backlog_that_was_worked_off_is_not_expected_below_nothing():
    """It shrank steadily for a week, until nothing was left: no hour without messages is unusual after that."""
    left = np.maximum(0.0, 168_000 - 1000.0 * np.arange(WEEK + WEEK))
    figure = np.concatenate([np.full(4 * WEEK, 168_000.0), left])
    found = judged(figure, 0, 5 * WEEK, weeks=4, least=10)
    assert found.expected.min() >= 0
    assert np.abs(found.score(figure[5 * WEEK :])[WEEK // 2 + 1 :]).max() < THRESHOLD


def test_a_peak_of_a_day_is_no_trend():
    """Most changes from day to day are those of other days."""
    figure = with_known_truth(1, 6 * WEEK, kind=0)
    peak = figure.copy()
    peak[5 * WEEK - 60 : 5 * WEEK - 36] *= 3
    difference = (
        judged(peak, 0, 5 * WEEK, weeks=4, least=LEAST).expected
        - judged(figure, 0, 5 * WEEK, weeks=4, least=LEAST).expected
    )
    assert np.abs(difference).max() < 0.2 * figure.mean()


def test_a_disturbed_past_week_does_not_make_an_ordinary_hour_unusual():
    """The median of four weeks ignores one of them."""
    figure = with_known_truth(5, 6 * WEEK, kind=1)
    figure[4 * WEEK + 30 : 4 * WEEK + 60] *= 10
    scores = judged(figure, 0, 5 * WEEK, weeks=4, least=LEAST).score(figure[5 * WEEK :])
    assert np.mean(np.abs(scores[30:60]) >= THRESHOLD) == 0


def test_hours_that_too_few_past_weeks_have_are_not_judged():
    """Three weeks are needed, besides the one before for the level; a gap is one week less for its hours."""
    figure = with_known_truth(4, 6 * WEEK, kind=0)
    figure[2 * WEEK : 2 * WEEK + 10] = np.nan
    found = judged(figure, 0, 4 * WEEK, weeks=4, least=LEAST)  # of the first week, no hour has a level
    assert {*found.weeks[:10]} == {2}
    assert {*found.weeks[10 : WEEK // 2]} == {3}
    assert np.isnan(found.expected[:10]).all()
    assert np.isfinite(found.expected[10:]).all()
    assert not np.isfinite(judged(figure[: 3 * WEEK], 0, 2 * WEEK, weeks=4, least=LEAST).expected).any()


def test_a_short_history_is_silent_and_says_so():
    """Each figure has one row, with the reason, and no score."""
    hours = 3 * WEEK
    columns = {name: np.ones(hours) for name in COLUMNS}
    at = {"topic": ["t"] * hours, "channel": ["c"] * hours, "hour": np.arange(hours)}
    table = pa.table(at | columns | {"message_bytes": np.ones(hours)})
    rows = anomalies(table, 2 * WEEK, 3 * WEEK, 4, THRESHOLD).to_pylist()
    assert {row["state"] for row in rows} == {"unknown"}
    assert {row["reason"] for row in rows} == {"past weeks with these hours: 2; a comparison needs 3"}
    assert [row["figure"] for row in rows] == [
        *("depth", "in_rate", "out_rate", "requeue_rate", "timeout_rate", "consumers")
    ]
    assert {row["score"] for row in rows} == {None}
