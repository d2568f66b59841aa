"""The bands of the report ``anomalies`` for the present hour, from the rollups by hour, without Spark.

An hour's band is that of a report with its default ``weeks`` on the PERIOD that ends with the hours given: the same
function judges both (past_weeks.py). Hours that are not rolled up, such as the present one, have no readings. The
report computes them from samples, so its levels may differ slightly from those of bands that were found earlier.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nsqanalytics import past_weeks
from nsqanalytics.channel_hours import ANOMALY_FIGURES, HOUR_S
from nsqanalytics.files import File
from nsqanalytics.past_weeks import Values
from nsqanalytics.rollups import Rollups
from nsqanalytics.span import HOURS_OF_WEEK

PERIOD = HOURS_OF_WEEK
"""Hours that are judged together, as in the report: the usual size of deviations is that of all of them."""
WEEKS = 4
"""Past weeks that an hour is compared with."""

Name = tuple[str, str]
"""A topic and a channel, which is empty for the topic's own figures."""
Wanted = Callable[[str, str], Collection[str]]
"""Returns the names of the figures (ANOMALY_FIGURES) whose bands are wanted, of a topic and channel."""

_SUMS = ("in_count", "out_count", "requeue_count", "timeout_count")
_AREAS = ("depth_area", "client_area")
_COLUMNS = ("topic", "channel", "observed_s", *_SUMS, *_AREAS)
_SOURCES = {
    "depth": "depth_area",
    "in_rate": "in_count",
    "out_rate": "out_count",
    "requeue_rate": "requeue_count",
    "timeout_rate": "timeout_count",
    "consumers": "client_area",
}
"""The column that, divided by the observed time, is the figure."""


@dataclass(frozen=True)
class Usual:
    """What is usual for a figure in some consecutive hours.

    ``expected`` and ``scale`` are in the figure's unit, NaN where too few past weeks have the hour; ``weeks`` is their
    number.
    """

    expected: Values
    scale: Values
    weeks: NDArray[np.int64]


def usual_hours(root: str, first: int, last: int, wanted: Wanted) -> dict[tuple[str, str, str], Usual]:
    """Return what is usual in each of the hours ``first`` to ``last`` (since the epoch), by topic, channel and figure.

    A topic or channel that the rollups do not have is left out. Raises OSError, or pyarrow's ArrowException for a
    damaged file.
    """
    count = last - first + 1
    begin = last + 1 - PERIOD - (WEEKS + 1) * HOURS_OF_WEEK
    table = _HourlyValues(last + 1 - begin)
    rollups = Rollups(root)
    for hour in rollups.between(_moment(begin), _moment(last + 1)):
        if hour.rollup is not None:
            table.add(int(hour.start.timestamp()) // HOUR_S - begin, _read(rollups, hour.rollup), wanted)
    found = {}
    for name, figure, values in table.series():
        least = ANOMALY_FIGURES[figure][1]
        judged = past_weeks.judged(values, begin, len(values) - PERIOD, weeks=WEEKS, least=least)
        found[*name, figure] = Usual(judged.expected[-count:], judged.scale[-count:], judged.weeks[-count:])
    return found


def _moment(hour: int) -> datetime:
    return datetime.fromtimestamp(hour * HOUR_S, UTC)


def _read(rollups: Rollups, file: File) -> pa.Table:
    """Return the figures of an hour by topic and channel, as ``transforms.hours.hourly`` computes them."""
    rows = rollups.columns_of(file, _COLUMNS)
    if rows is None:
        return pa.table({"topic": pa.array([], pa.string()), "channel": pa.array([], pa.string())})
    divisor_s = pc.if_else(pc.equal(rows["observed_s"], 0.0), None, rows["observed_s"])
    for name in _AREAS:
        rows = rows.set_column(rows.schema.get_field_index(name), name, pc.divide(rows[name], divisor_s))
    sums = [(name, "sum") for name in (*_SUMS, *_AREAS)]
    merged = rows.group_by(["topic", "channel"]).aggregate([*sums, ("observed_s", "max")])
    observed = merged["observed_s_max"]
    observed = pc.if_else(pc.equal(observed, 0.0), None, observed)
    figures = {}
    for figure, source in _SOURCES.items():
        total = merged[f"{source}_sum"]
        # The area of several nodes is the sum of their means over the longest time, so its mean is that sum.
        figures[figure] = total if source in _AREAS else pc.divide(pc.cast(total, pa.float64()), observed)
    return pa.table({"topic": merged["topic"], "channel": merged["channel"], **figures})


class _HourlyValues:
    """The hourly values of the wanted figures; NaN where an hour has none."""

    def __init__(self, hours: int) -> None:
        self._hours = hours
        self._values: dict[str, dict[Name, Values]] = defaultdict(dict)
        self._wanted: dict[Name, Collection[str]] = {}

    def add(self, hour: int, figures: pa.Table, wanted: Wanted) -> None:
        """Add the figures of the hour with this index."""
        names: list[Name] = list(zip(figures["topic"].to_pylist(), figures["channel"].to_pylist(), strict=True))
        columns: dict[str, list[float | None]] = {}
        for place, name in enumerate(names):
            if name not in self._wanted:
                self._wanted[name] = wanted(*name)
            for figure in self._wanted[name]:
                if figure not in columns:
                    columns[figure] = figures[figure].to_pylist()
                value = columns[figure][place]
                if value is not None:
                    self._of(figure, name)[hour] = value

    def _of(self, figure: str, name: Name) -> Values:
        there = self._values[figure].get(name)
        if there is None:
            there = self._values[figure][name] = np.full(self._hours, np.nan)
        return there

    def series(self) -> Iterator[tuple[Name, str, Values]]:
        for figure, of in self._values.items():
            for name, values in of.items():
                yield name, figure, values
