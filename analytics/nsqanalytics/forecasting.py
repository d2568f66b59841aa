"""Forecasts of one hourly figure, with bands that are calibrated on the errors of earlier forecasts.

A figure is the sum of a season and a deviation from it. The season is the mean of each hour of the week, or of the day
if there are too few weeks. The deviation, in units of its size at that hour of the day, is forecast by one of three
models, fitted by statsmodels; the one whose forecasts of the past were best is used:

- ``level``: simple exponential smoothing, ETS(A,N,N);
- ``autoregression``: of order 1, which returns to the mean so far;
- ``growth``: the same around the straight line through the deviations so far.

The bands are quantiles of the errors that the same model has made in the history, by hours ahead. For each of these
errors, the season is computed without the cycle (day or week) in question: otherwise the errors would be too small.
A figure whose size grows is forecast by its logarithm, if that made the smaller errors. A figure that repeats itself
exactly is its ``season``, without a model.

Sources: exponential smoothing: Hyndman, Koehler, Ord and Snyder, Forecasting with Exponential Smoothing (2008); MASE:
Hyndman and Koehler, Another look at measures of forecast accuracy (2006); bands from past errors: Hyndman and
Athanasopoulos, Forecasting: Principles and Practice (3rd edition), section 5.5. The shrinkage of the week's season is
that of an empirical Bayes estimate.

Nothing here knows of Spark. statsmodels is imported when the first forecast is made, because that takes seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nsqanalytics.span import HOURS_OF_DAY, HOURS_OF_WEEK
from nsqwire.counted import counted

Values = NDArray[np.float64]

LEAST_HISTORY_HOURS = 5 * HOURS_OF_DAY
"""Hours with readings that a forecast needs."""
LEAST_KNOWN = 0.6
"""Share of the hours since the first reading that need to have one."""
OLDEST_END = 2 * HOURS_OF_DAY
"""A history whose last reading is older than this, in hours, is not continued."""
WEEKLY_FROM = 2 * HOURS_OF_WEEK
"""Hours of history from which the season is that of a week. A back-test has less history than its forecast."""
QUANTILES = (0.025, 0.1, 0.9, 0.975)
"""Of the bands: low 95, low 80, high 80 and high 95 %."""
_LEADS = np.array([1, 2, 3, 4, 6, 9, 12, 18, 24, 36, 48, 72, 96, 120, 144, 168, 216])
"""Hours ahead for which past errors are measured; between them, bands are interpolated."""
_CLIPPED_AT = 5.0
"""Deviations from the season are limited to this many standard deviations when the season is computed."""
_CAUTION = 2.0
"""The square of the size of ``n`` independent past errors is multiplied by 1 + this / n: few may be small by chance."""
_LEAST_OF_MEAN = 0.1
"""What is added to values before their logarithm is taken, as a share of their mean."""
_NOTHING = 1e-9
"""Differences that are a smaller share of the values than this are rounding errors."""
_ENOUGH = 30
"""Least number of past errors at a lead that are used."""


@dataclass(frozen=True)
class BackTest:
    """How a forecast of the last ``hours`` of the history, made without them, compares with their values.

    ``mase`` is the mean absolute error divided by that of repeating the last day or week; None if that has no error.
    ``within_80`` and ``within_95`` are the shares of hours that lie in the bands, 0 to 1.
    """

    hours: int
    mae: float
    mase: float | None
    within_80: float
    within_95: float


@dataclass(frozen=True)
class Forecast:
    """``values`` by hour. ``bands`` has a row for each of QUANTILES. ``season`` is ``day`` or ``week``."""

    values: Values
    bands: Values
    model: str
    season: str
    back_test: BackTest | None


def reason_against(values: Values, late: int) -> str | None:
    """Return why a history cannot be continued, None if it can be.

    ``values`` begin at the first reading and end at the last one; ``late`` is the number of hours since then.
    """
    known = int(np.isfinite(values).sum())
    if known == 0:
        return "no readings"
    if late > OLDEST_END:
        return f"the last reading is {counted(late, 'hour')} old; a forecast needs one of the last {OLDEST_END} hours"
    if known < LEAST_HISTORY_HOURS:
        return f"{counted(known, 'hour')} of history; a forecast needs {LEAST_HISTORY_HOURS}"
    if known < LEAST_KNOWN * len(values):
        return f"{known} of {len(values)} hours have readings; a forecast needs {LEAST_KNOWN:.0%}"
    return None


def forecast(values: Values, first_hour: int, ahead: int, late: int = 0) -> Forecast:
    """Forecast the ``ahead`` hours that begin ``late`` hours after the end of the history.

    ``values`` has a value for each hour, NaN for an hour without readings; its ends have values. ``first_hour`` is that
    of the first value, in hours since the epoch. Values are not negative, so bands end at 0. The history is one for
    which ``reason_against`` returns None.
    """
    tested = min(HOURS_OF_WEEK, len(values) // 4)
    is_weekly = len(values) - tested >= WEEKLY_FROM
    fitted = _Fitted(values, first_hour, HOURS_OF_WEEK if is_weekly else HOURS_OF_DAY)
    point, bands = fitted.ahead(late + 1, late + ahead)
    back_test = _back_test(values, first_hour, fitted.cycle, tested)
    return Forecast(point, bands, fitted.model, "week" if is_weekly else "day", back_test)


def _back_test(values: Values, first_hour: int, cycle: int, tested: int) -> BackTest | None:
    """Forecast the last ``tested`` hours from the ones before. None if too few of these have readings."""
    before, came = values[:-tested], values[-tested:]
    end = int(np.flatnonzero(np.isfinite(before))[-1]) + 1
    if np.isfinite(before).sum() < LEAST_HISTORY_HOURS / 2 or not np.isfinite(came).any():
        return None
    gap = len(before) - end
    point, bands = _Fitted(before[:end], first_hour, cycle).ahead(gap + 1, gap + tested)
    known = np.isfinite(came)
    mae = float(np.mean(np.abs(point - came)[known]))
    steps = np.abs(before[cycle:] - before[:-cycle])
    naive = float(np.mean(steps[np.isfinite(steps)])) if np.isfinite(steps).any() else 0.0
    rounding = _NOTHING * _spread(values)
    low_95, low_80, high_80, high_95 = bands + rounding * np.array([[-1], [-1], [1], [1]])
    return BackTest(
        hours=int(known.sum()),
        mae=mae,
        mase=mae / naive if naive > rounding else None,
        within_80=float(np.mean(((low_80 <= came) & (came <= high_80))[known])),
        within_95=float(np.mean(((low_95 <= came) & (came <= high_95))[known])),
    )


class _Fitted:
    """A season, a model of the deviations from it, and the quantiles of its past errors: in the figure's own units, or
    of its logarithm, whichever made the smaller errors."""

    def __init__(self, values: Values, first_hour: int, cycle: int) -> None:
        self.cycle = cycle
        plain = _Deviations(values, first_hour, cycle)
        self._chosen, self._offset = plain, 0.0
        if plain.model != "season":
            offset = max(_LEAST_OF_MEAN * float(np.nanmean(values)), 1e-12)
            logarithm = _Deviations(np.log(values + offset), first_hour, cycle)
            if _cost_of_logarithm(logarithm, values, offset) < plain.cost:
                self._chosen, self._offset = logarithm, offset

    @property
    def model(self) -> str:
        return self._chosen.model

    def ahead(self, first: int, last: int) -> tuple[Values, Values]:
        """Return the forecast of the hours ``first`` to ``last`` after the history, and its bands."""
        point, bands = self._chosen.ahead(first, last)
        if self._offset:
            point, bands = np.exp(point) - self._offset, np.exp(bands) - self._offset
        return np.maximum(point, 0.0), np.maximum(bands, 0.0)


class _Deviations:
    """A season of values and the best model of the deviations from it. ``cost`` is its mean absolute past error."""

    def __init__(self, values: Values, first_hour: int, cycle: int) -> None:
        self._end_hour = first_hour + len(values)
        self._season = _Season(values, first_hour, cycle)
        left_out = self._season.left_out
        deviations = _filled(left_out)
        known = np.isfinite(left_out)
        # Models cannot be fitted to a figure that repeats itself exactly.
        is_exact = _spread(deviations) * self._season.scale <= _NOTHING * _spread(values)
        models = _EXACT if is_exact else _MODELS
        predicted = {name: make(deviations) for name, (make, _) in models.items()}
        errors = {name: _errors(of, deviations, known) for name, of in predicted.items()}
        costs = {name: models[name][1] * float(np.nanmean(np.abs(of))) for name, of in errors.items()}
        self.model = min(costs, key=costs.__getitem__)
        self._predicted, self.errors = predicted[self.model], errors[self.model]
        self.sizes = self._season.size(first_hour + np.arange(len(values)))
        self.cost = float(np.nanmean(np.abs(_at_arrival(self.errors, self.sizes))))
        self._quantiles = _quantiles(self.errors) * self._season.precision

    def ahead(self, first: int, last: int) -> tuple[Values, Values]:
        """Return the forecast of the hours ``first`` to ``last`` after the history, and its bands, which may be
        negative."""
        leads = np.arange(first, last + 1)
        hours = self._end_hour + leads - 1
        mean, size = self._season.mean(hours), self._season.size(hours)
        point = mean + size * np.array([self._predicted(int(lead))[-1] for lead in leads])
        return point, np.array([point + size * np.interp(leads, _LEADS, of) for of in self._quantiles])


def _at_arrival(errors: Values, of_hour: Values) -> Values:
    """Return the errors times the value of ``of_hour`` at the hour that was forecast."""
    burn_in = len(of_hour) - errors.shape[1]
    scaled = np.full(errors.shape, np.nan)
    for row, lead in enumerate(_LEADS):
        there = of_hour[burn_in + lead :]
        scaled[row, : len(there)] = errors[row, : len(there)] * there
    return scaled


def _cost_of_logarithm(found: _Deviations, values: Values, offset: float) -> float:
    """Return the mean absolute past error in the figure's own units: |y - y exp(-e)|."""
    logs = np.clip(_at_arrival(found.errors, found.sizes), -20, 20)
    y = _at_arrival(np.ones_like(logs), values + offset)
    return float(np.nanmean(np.abs(y * (1 - np.exp(-logs)))))


class _Season:
    """The mean of each hour of the cycle, and the size of deviations from it by hour of the day.

    ``left_out`` are the deviations from a season that is computed without the cycle of the value, in units of their
    size; NaN where there is no value.
    """

    def __init__(self, values: Values, first_hour: int, cycle: int) -> None:
        self._cycle = cycle
        rows = -(-len(values) // cycle)
        # Whole cycles from the end: the first one may be incomplete.
        padded = np.concatenate([np.full(rows * cycle - len(values), np.nan), values])
        table = padded.reshape(rows, cycle)
        self._first = first_hour + len(values) - rows * cycle
        # The mean of all cycles is more exact than that without one: by this much, errors of the forecast are smaller.
        self.precision = math.sqrt((1 + 1 / max(rows, 2)) / (1 + 1 / (max(rows, 2) - 1)))
        slope = _slope(padded, cycle)
        trend = slope * np.arange(rows * cycle).reshape(rows, cycle)
        level = np.zeros(rows)
        table = table - trend
        base = float(np.nanmean(table))
        profile = np.full(cycle, base)
        for _ in range(3):
            residual = table - profile - level[:, None]
            limit = _CLIPPED_AT * max(_spread(residual), 1e-12)
            clipped = profile + level[:, None] + np.clip(residual, -limit, limit)
            level = _middle((clipped - profile).T, 0.0)
            level -= level.mean()
            profile = _middle(clipped - level[:, None], base)
        apart = clipped - level[:, None]
        middle = float(trend.mean())
        self._profile = self._shrunk(profile, apart) + middle
        others = np.array([self._without(apart, row, profile) for row in range(rows)])
        deviations = (padded.reshape(rows, cycle) - others - middle).ravel()
        self._size = self._sizes(deviations)
        self.scale = float(self._size.max())
        hours = self._first + np.arange(rows * cycle)
        self.left_out = (deviations / self.size(hours))[rows * cycle - len(values) :]

    def mean(self, hours: NDArray[np.int64]) -> Values:
        return np.asarray(self._profile[(hours - self._first) % self._cycle])

    def size(self, hours: NDArray[np.int64]) -> Values:
        return np.asarray(self._size[hours % HOURS_OF_DAY])

    def _shrunk(self, profile: Values, apart: Values) -> Values:
        """Return a profile of the week that is as close to that of the day as the noise of its means suggests."""
        if self._cycle == HOURS_OF_DAY:
            return profile
        days = profile.reshape(7, HOURS_OF_DAY)
        by_day = np.tile(days.mean(axis=0), 7) + np.repeat(days.mean(axis=1) - days.mean(), HOURS_OF_DAY)
        noise = float(np.nanmean((apart - profile) ** 2)) / max(1, len(apart) - 1)
        signal = max(0.0, float(np.mean((profile - by_day) ** 2)) - noise)
        return np.asarray(by_day + (profile - by_day) * (signal / (signal + noise) if signal > 0 else 0.0))

    def _without(self, apart: Values, row: int, profile: Values) -> Values:
        """Return the season without a cycle. An hour that only this cycle has keeps its value."""
        rest = np.delete(apart, row, axis=0)
        means = _middle(rest, np.nan)
        return self._shrunk(np.where(np.isfinite(means), means, profile), rest)

    def _sizes(self, deviations: Values) -> Values:
        """Return the size of deviations by hour of the day (UTC), as a mean with the neighbouring hours."""
        of_hour = (self._first + np.arange(len(deviations))) % HOURS_OF_DAY
        overall = _spread(deviations)
        squares = np.minimum(deviations**2, (_CLIPPED_AT * overall) ** 2) if overall else deviations**2
        by_hour = np.array(
            [np.nanmean(np.append(squares[of_hour == hour], overall**2)) for hour in range(HOURS_OF_DAY)]
        )
        smoothed = (np.roll(by_hour, 1) + 2 * by_hour + np.roll(by_hour, -1)) / 4
        return np.asarray(np.sqrt(np.maximum(smoothed, max(0.1 * float(smoothed.mean()), 1e-18))))


def _slope(padded: Values, cycle: int) -> float:
    """Return the growth per hour: the median of the differences between two cycles."""
    steps = padded[cycle:] - padded[:-cycle]
    known = steps[np.isfinite(steps)]
    return float(np.median(known)) / cycle if len(known) >= cycle else 0.0


def _spread(values: Values) -> float:
    known = values[np.isfinite(values)]
    return float(np.sqrt(np.mean(known**2))) if len(known) else 0.0


def _middle(table: Values, default: float) -> Values:
    """Return the mean of the middle half of each column's known values; ``default`` for a column without any.

    One cycle with a disturbance does not change the season by it.
    """
    ordered = np.sort(table, axis=0)  # unknown values last
    count = np.isfinite(table).sum(axis=0)
    rank = np.arange(len(table))[:, None]
    kept = (rank >= count // 4) & (rank < count - count // 4)
    return np.where(count > 0, np.where(kept, ordered, 0.0).sum(axis=0) / np.maximum(kept.sum(axis=0), 1), default)


def _filled(deviations: Values) -> Values:
    """Return the deviations with those of unknown hours interpolated."""
    known = np.isfinite(deviations)
    places = np.arange(len(deviations))
    return np.interp(places, places[known], deviations[known])


Predicted = Callable[[int], Values]
"""Hours ahead -> for each hour of the history, the forecast that is made after it."""


def _level(deviations: Values) -> Predicted:
    from statsmodels.tsa.exponential_smoothing.ets import ETSModel

    start = float(np.mean(deviations[:HOURS_OF_DAY]))
    found = ETSModel(deviations, initialization_method="known", initial_level=start).fit(disp=False)
    level: Values = np.asarray(found.states)[:, 0]
    return lambda lead: level


def _autoregression(deviations: Values) -> Predicted:
    rate = _rate(deviations)
    mean = np.cumsum(deviations) / np.arange(1, len(deviations) + 1)
    return lambda lead: mean + rate**lead * (deviations - mean)


def _growth(deviations: Values) -> Predicted:
    """The line through the deviations up to each hour, and an autoregression of the distance from it."""
    n = np.arange(1, len(deviations) + 1, dtype=float)
    at = n - 1
    sums, products = np.cumsum(deviations), np.cumsum(at * deviations)
    at_sum, squares = at * n / 2, at * n * (2 * n - 1) / 6
    slope = (n * products - at_sum * sums) / np.maximum(n * squares - at_sum**2, 1.0)
    here = sums / n + slope * (at - at_sum / n)
    rate = _rate(deviations - here)
    return lambda lead: here + slope * lead + rate**lead * (deviations - here)


def _rate(deviations: Values) -> float:
    """Return the share of a deviation that is left after an hour."""
    from statsmodels.tsa.ar_model import AutoReg

    return float(np.clip(AutoReg(deviations, 1).fit().params[1], 0.0, 0.999))


_MODELS: dict[str, tuple[Callable[[Values], Predicted], float]] = {
    "autoregression": (_autoregression, 1.0),
    "level": (_level, 1.0),
    "growth": (_growth, 1.1),
}
"""Each with a factor of its errors: a model with a slope has to be better by this much."""
_EXACT: dict[str, tuple[Callable[[Values], Predicted], float]] = {
    "season": (lambda deviations: lambda lead: np.zeros_like(deviations), 1.0)
}


def _errors(predicted: Predicted, deviations: Values, known: NDArray[np.bool_]) -> Values:
    """Return the errors of the forecasts of each lead in _LEADS; NaN where the forecast hour is unknown.

    Forecasts are made from each hour but those of the first third, or of the first two days of a short history.
    """
    errors = np.full((len(_LEADS), len(deviations)), np.nan)
    for row, lead in enumerate(_LEADS):
        if lead < len(deviations):
            of = deviations[lead:] - predicted(int(lead))[:-lead]
            errors[row, :-lead] = np.where(known[lead:], of, np.nan)
    return errors[:, max(2 * HOURS_OF_DAY, len(deviations) // 3) :]


def _independent(errors: Values) -> float:
    """Return how many independent errors would show their size as exactly as these, which are of consecutive hours."""
    before, after = errors[:-1], errors[1:]
    square = float(np.mean(errors**2))
    if square <= 0:
        return float(len(errors))
    kept = float(np.clip(np.mean(before * after) / square, 0.0, 0.999))
    return max(1.0, len(errors) * (1 - kept) / (1 + kept))


def _quantiles(errors: Values) -> Values:
    """Return QUANTILES of the errors, a column for each of _LEADS.

    The shape is that of all leads together, the size is that of the lead, which does not fall with the lead. Leads with
    few errors have the size of the one before.
    """
    sizes: list[float] = []
    shares: list[Values] = []
    for of in errors:
        known = of[np.isfinite(of)]
        size = 0.0
        if len(known) >= _ENOUGH and (square := float(np.mean(known**2))) > 0:
            shares.append(known / math.sqrt(square))
            size = math.sqrt(square * (1 + _CAUTION / _independent(known)))
        sizes.append(max([size, *sizes[-1:]]))
    shape = np.quantile(np.concatenate(shares), QUANTILES) if shares else np.zeros(len(QUANTILES))
    return np.outer(shape, np.array(sizes))
