"""Finds hours of a figure that are unlike the same hour of past weeks.

An hour is compared with the same hour of the week in up to ``weeks`` weeks before it. A week's own level is subtracted
first, so that growth from week to week is not unusual. It is the median of the 168 hours before the hour in question,
which is the level of their middle, plus the trend of these hours until the hour in question, so that a backlog which
has begun to grow steadily is not unusual for weeks. The trend is the change from one day to the next that two thirds of
their changes reach; without such a trend, it is 0, and noise is not taken for one. The expected value is the level of
the hour plus the median of these differences. To find the usual error, each past week is compared with the median of
the others; the scale is 1.4826 times the median of these absolute errors, over all hours at the same time of the day,
the hour before and the hour after. The score is the deviation from the expected value in units of the scale.

Source of the scale: Rousseeuw and Croux, Alternatives to the Median Absolute Deviation (1993): 1.4826 makes it the
standard deviation of a normal distribution. Nothing here knows of Spark.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from nsqanalytics.span import HOURS_OF_DAY, HOURS_OF_WEEK

Values = NDArray[np.float64]

LEAST_WEEKS = 3
"""Past weeks that need to have the hour."""
_SCALE_OF_MEDIAN = 1.4826
_LEAST_SHARE = 0.05
"""Smallest scale, as a share of the expected value."""
_TREND_SHARE = 2 / 3
"""Share of the changes from day to day that reach the trend."""


@dataclass(frozen=True)
class Judged:
    """For each hour: the expected value, the scale of deviations from it, and the number of past weeks.

    ``expected`` and ``scale`` are NaN where fewer than LEAST_WEEKS past weeks have the hour.
    """

    expected: Values
    scale: Values
    weeks: NDArray[np.int64]

    def score(self, values: Values) -> Values:
        """Return the deviation of each value from the expected one, in units of its scale; negative below it."""
        return score(values, self.expected, self.scale)

    def band(self, threshold: float) -> tuple[Values, Values]:
        """Return the lowest and the highest value of each hour whose score is at most ``threshold``. Values are not
        negative."""
        return band(self.expected, self.scale, threshold)


def score(values: Values, expected: Values, scale: Values) -> Values:
    """Return the deviation of each value from the expected one, in units of its scale; negative below it."""
    return (values - expected) / scale


def band(expected: Values, scale: Values, threshold: float) -> tuple[Values, Values]:
    """Return the lowest and the highest values whose score is at most ``threshold``. Values are not negative."""
    margin = threshold * scale
    return np.maximum(0.0, expected - margin), np.maximum(0.0, expected + margin)


def judged(values: Values, first_hour: int, since: int, *, weeks: int, least: float) -> Judged:
    """Judge the hours from index ``since`` on.

    ``values`` has a value for each hour, NaN for an hour without readings; ``first_hour`` is that of the first value,
    in hours since the epoch. ``least`` is the smallest scale, in the figure's unit.
    """
    levels = _levels(values)
    apart = values - levels
    count = len(values) - since
    past = np.full((weeks, count), np.nan)
    for row in range(weeks):
        start = since - (row + 1) * HOURS_OF_WEEK
        begin = max(0, start)
        if (known := apart[begin : max(start + count, 0)]).size:
            past[row, begin - start : begin - start + known.size] = known
    found = np.isfinite(past).sum(axis=0)
    expected = np.where(found >= LEAST_WEEKS, np.maximum(0.0, levels[since:] + _median(past)), np.nan)
    hours = (first_hour + since + np.arange(count)) % HOURS_OF_DAY
    scale = _by_hour(_errors(past), hours)[hours]
    scale = np.maximum(scale, np.maximum(least, _LEAST_SHARE * np.abs(expected)))
    return Judged(expected, scale, found)


def _levels(values: Values) -> Values:
    """Return the level of each hour: the median of the week before it, plus the trend since the middle of that week.

    It is NaN if fewer than half of these hours are known, and never negative.
    """
    medians = np.full(len(values), np.nan)
    for at, before in enumerate(_before(values, HOURS_OF_WEEK)):
        if (known := len(before)) >= HOURS_OF_WEEK // 2:
            medians[at] = (before[(known - 1) // 2] + before[known // 2]) / 2
    return np.maximum(0.0, medians + _trends(values) * (HOURS_OF_WEEK + 1) / 2)


def _trends(values: Values) -> Values:
    """Return the change per hour in the week before each hour; 0 if it is not the same on most days."""
    changes = np.full(len(values), np.nan)
    changes[HOURS_OF_DAY:] = (values[HOURS_OF_DAY:] - values[:-HOURS_OF_DAY]) / HOURS_OF_DAY
    trends = np.zeros(len(values))
    for at, before in enumerate(_before(changes, HOURS_OF_WEEK - HOURS_OF_DAY)):
        if (known := len(before)) >= (HOURS_OF_WEEK - HOURS_OF_DAY) // 2:
            place = round((1 - _TREND_SHARE) * (known - 1))
            trends[at] = max(0.0, before[place]) + min(0.0, before[-1 - place])
    return trends


def _before(values: Values, count: int) -> Iterator[list[float]]:
    """Yield for each hour the known values of the ``count`` hours before it, ascending. Do not change the list."""
    before: list[float] = []  # six times as fast as sorting them for each hour
    for at, value in enumerate(values.tolist()):
        yield before
        if isfinite(value):
            insort(before, value)
        if at >= count and isfinite(values[at - count]):
            del before[bisect_left(before, values[at - count])]


def _errors(past: Values) -> Values:
    """Return the difference of each past value from the median of those of the other weeks."""
    others = [_median(np.delete(past, row, axis=0)) for row in range(len(past))]
    return past - np.array(others)


def _by_hour(errors: Values, hours: NDArray[np.int64]) -> Values:
    """Return the scale of errors for each hour of the day; that of all hours where an hour has no error."""
    every = _spread(errors)
    scales = np.full(HOURS_OF_DAY, every)
    for hour in range(HOURS_OF_DAY):
        near = np.isin(hours, [(hour - 1) % HOURS_OF_DAY, hour, (hour + 1) % HOURS_OF_DAY])
        if np.isfinite(errors[:, near]).sum() >= 2 * LEAST_WEEKS:
            scales[hour] = _spread(errors[:, near])
    return scales


def _spread(errors: Values) -> float:
    known = np.abs(errors[np.isfinite(errors)])
    return _SCALE_OF_MEDIAN * float(np.median(known)) if known.size else 0.0


def _median(table: Values) -> Values:
    """Return the median of each column's known values, NaN for a column without any."""
    ordered = np.sort(table, axis=0)  # unknown values last
    count = np.isfinite(table).sum(axis=0)
    columns = np.arange(table.shape[1])
    low, high = np.maximum(count - 1, 0) // 2, count // 2
    middle = (ordered[low, columns] + ordered[np.minimum(high, len(table) - 1), columns]) / 2
    return np.where(count > 0, middle, np.nan)
