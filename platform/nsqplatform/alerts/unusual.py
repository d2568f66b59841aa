"""Compares the means of the last ten minutes with the bands of past weeks. No clock and no I/O.

Past weeks have the means of hours. A single reading varies much more than such a mean, so it is not compared: a job
that publishes once a minute would be unusual twice a minute.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from nsqanalytics import past_weeks
from nsqanalytics.past_weeks import Values
from nsqplatform.alerts.bands import Band, Bands, Columns
from nsqplatform.alerts.catalogue import Metric
from nsqplatform.number_format import number
from nsqwire.units import Seconds

SPAN_S = 600.0
STEP_S = 10.0
"""Interval of the values that a mean is computed of."""


@dataclass
class _Series:
    """The values of one metric in the last SPAN_S: an array each for the same keys, in which ``places`` has each
    key's index; and their means, NaN where all are unknown."""

    places: dict[str, int] = field(default_factory=dict)
    values: deque[tuple[Seconds, Values]] = field(default_factory=deque)
    means: Values = field(default_factory=lambda: np.empty(0))


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
        """Add the values of all rows, NaN where one is unknown. ``now`` is in Unix seconds."""
        series = self._series.setdefault(metric, _Series())
        if list(series.places) != list(keys):
            old = indices(series.places, keys)
            series.values = deque((at, at_indices(each, old)) for at, each in series.values)
            series.places = {key: place for place, key in enumerate(keys)}
        series.values.append((now, values))
        while not now - SPAN_S < series.values[0][0] <= now:
            series.values.popleft()
        table = np.array([each for _, each in series.values])
        is_known = np.isfinite(table)
        count = is_known.sum(axis=0)
        sums = np.where(is_known, table, 0.0).sum(axis=0)
        series.means = np.divide(sums, count, out=np.full(len(keys), np.nan), where=count > 0)

    def of(self, metric: Metric, keys: Sequence[str]) -> Values:
        """The means of these keys, NaN where no value is known."""
        series = self._series.get(metric, _Series())
        return at_indices(series.means, indices(series.places, keys))


def indices(places: Mapping[str, int], keys: Sequence[str]) -> NDArray[np.int64]:
    """The place of each key; one behind the last for a key without a place."""
    return np.fromiter((places.get(key, len(places)) for key in keys), np.int64, len(keys))


def at_indices(values: Values, places: NDArray[np.int64]) -> Values:
    """The values at these places, NaN for the place behind the last one."""
    return np.append(values, np.nan)[places]


class Unusual:
    """What is usual at ``now`` (Unix seconds). Without ``means``, single values are compared."""

    def __init__(self, bands: Bands, means: RecentMeans | None, now: Seconds) -> None:
        self.bands = bands
        self._means = means
        self._now = now
        self._columns: dict[Metric, Columns] = {}

    def columns(self, metric: Metric) -> Columns:
        found = self._columns.get(metric)
        if found is None:
            since = self._now if self._means is None else self._now - SPAN_S
            found = self._columns[metric] = self.bands.between(metric, since, self._now)
        return found

    def values(self, metric: Metric, keys: Sequence[str], latest: Values) -> Values:
        """The values that are compared: the means, or else the latest values, which are in the order of ``keys``."""
        return latest if self._means is None else self._means.of(metric, keys)

    def scores(self, metric: Metric, keys: Sequence[str], latest: Values) -> Values:
        """The deviation of each value from the expected one, in units of its scale; NaN where one is unknown."""
        columns = self.columns(metric)
        places = indices(columns.places, keys)
        values = self.values(metric, keys, latest)
        return past_weeks.score(values, at_indices(columns.expected, places), at_indices(columns.scale, places))

    def band(self, metric: Metric, key: str) -> Band | None:
        return self.columns(metric).band(key)

    def detail(self, metric: Metric, key: str, threshold: float) -> str:
        """What is usual, such as ``usual 80 to 140, expected 110, from 4 past weeks``; empty if that is unknown."""
        band = self.band(metric, key)
        if band is None:
            return ""
        low, high = band.range(threshold)
        return f"usual {number(low)} to {number(high)}, expected {number(band.expected)}, from {band.weeks} past weeks"


def are_unusual(comparison: str, scores: Values, threshold: float) -> NDArray[np.bool_]:
    """Whether scores are at least the threshold: above the expected value, below it, or on either side of it.

    NaN is not.
    """
    sides = {"outside": np.abs, "above": np.positive, "below": np.negative}
    return np.asarray(sides[comparison](scores) >= threshold)
