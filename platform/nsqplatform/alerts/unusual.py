"""Compares the means of the last ten minutes with the bands of past weeks. No clock and no I/O.

Past weeks have the means of hours. A single reading varies much more than such a mean, so it is not compared: a job
that publishes once a minute would be unusual twice a minute.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from nsqanalytics.past_weeks import Values
from nsqplatform.alerts.bands import Band, Bands
from nsqplatform.alerts.catalogue import Metric
from nsqplatform.number_format import number
from nsqwire.units import Seconds

SPAN_S = 600.0
STEP_S = 10.0
"""Interval of the values that a mean is computed of."""


@dataclass
class _Series:
    """The values of one metric in the last SPAN_S: an array each for the same keys."""

    keys: Sequence[str] = ()
    values: deque[tuple[Seconds, Values]] = field(default_factory=deque)
    means: dict[str, float] = field(default_factory=dict)
    """Of the keys with a value."""


class RecentMeans:
    """The means of metrics over the last SPAN_S, or since the first value, by the keys of the snapshot's rows."""

    def __init__(self) -> None:
        self._series: dict[Metric, _Series] = {}

    def keep(self, metrics: set[Metric]) -> None:
        """Forget the values of other metrics."""
        for metric in self._series.keys() - metrics:
            del self._series[metric]

    def is_due(self, metric: Metric, now: Seconds) -> bool:
        values = self._series.setdefault(metric, _Series()).values
        return not values or not 0 <= now - values[-1][0] < STEP_S

    def add(self, metric: Metric, keys: Sequence[str], values: Values, now: Seconds) -> None:
        """Add the values of all rows, NaN where one is unknown. ``now`` is in unix seconds."""
        series = self._series.setdefault(metric, _Series())
        if list(series.keys) != list(keys):
            known = {key: place for place, key in enumerate(series.keys)}
            old = np.array([known.get(key, len(known)) for key in keys], np.int64)
            series.values = deque((at, np.append(each, np.nan)[old]) for at, each in series.values)
            series.keys = list(keys)
        series.values.append((now, values))
        while not now - SPAN_S < series.values[0][0] <= now:
            series.values.popleft()
        table = np.array([each for _, each in series.values])
        is_known = np.isfinite(table)
        count = is_known.sum(axis=0)
        sums = np.where(is_known, table, 0.0).sum(axis=0)
        places = np.flatnonzero(count).tolist()
        series.means = {series.keys[place]: float(sums[place] / count[place]) for place in places}

    def of(self, metric: Metric, key: str) -> float | None:
        """The mean; None if no value is known."""
        series = self._series.get(metric)
        return None if series is None else series.means.get(key)


@dataclass(frozen=True)
class Unusual:
    """What is usual at ``now`` (unix seconds). Without ``means``, single values are compared."""

    bands: Bands
    means: RecentMeans | None
    now: Seconds

    def value(self, metric: Metric, key: str, latest: float) -> float | None:
        """The value that is compared: the mean, or else the latest value."""
        return latest if self.means is None else self.means.of(metric, key)

    def band(self, metric: Metric, key: str) -> Band | None:
        since = self.now if self.means is None else self.now - SPAN_S
        return self.bands.between(metric, key, since, self.now)

    def score(self, metric: Metric, key: str, latest: float) -> float | None:
        value, band = self.value(metric, key, latest), self.band(metric, key)
        return None if value is None or band is None else band.score(value)

    def detail(self, metric: Metric, key: str, threshold: float) -> str:
        """What is usual, such as ``usual 80 to 140, expected 110, from 4 past weeks``; empty if that is unknown."""
        band = self.band(metric, key)
        if band is None:
            return ""
        low, high = band.range(threshold)
        return f"usual {number(low)} to {number(high)}, expected {number(band.expected)}, from {band.weeks} past weeks"


def is_unusual(comparison: str, score: float, threshold: float) -> bool:
    """Whether a score is at least the threshold: above the expected value, below it, or on either side of it."""
    if comparison == "outside":
        return abs(score) >= threshold
    return score >= threshold if comparison == "above" else score <= -threshold
