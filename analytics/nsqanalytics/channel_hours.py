"""The hours of one topic or channel, and what the forecasts and anomalies of its figures say about them.

These functions run in Python processes of Spark's, one group of rows at a time, so this module does not import Spark.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nsqanalytics import forecasting, past_weeks
from nsqanalytics.forecasting import Forecast
from nsqanalytics.results import ARROW_TYPES
from nsqanalytics.span import HOURS_OF_DAY, HOURS_OF_WEEK
from nsqanalytics.tables import ANOMALIES, CAPACITY_OUTLOOK, COVERED, FORECAST, Figure

Values = NDArray[np.float64]

HOUR_S = 3600

COLUMNS = ("depth", "depth_last", "in_rate", "out_rate", "requeue_rate", "timeout_rate", "consumers", "served")
"""What an hour has, as doubles that may be null: ``served`` is the messages that one consumer finished per second."""

FORECAST_FIGURES = {
    "depth": "messages",
    "in_rate": "messages/s",
    "out_rate": "messages/s",
    "bytes_behind": "bytes",
    "capacity_rate": "messages/s",
}
_OF_TOPICS = ("depth", "in_rate")
_WORSE_IF_HIGH = ("depth", "in_rate", "bytes_behind")
ANOMALY_FIGURES = {
    "depth": ("messages", 10.0),
    "in_rate": ("messages/s", 10 / HOUR_S),
    "out_rate": ("messages/s", 10 / HOUR_S),
    "requeue_rate": ("messages/s", 10 / HOUR_S),
    "timeout_rate": ("messages/s", 10 / HOUR_S),
    "consumers": ("consumers", 0.25),
}
"""Unit and smallest scale: ten messages more or less in an hour are not unusual."""

BUSY_HOURS = 3
"""With at least this many hours with a backlog, a consumer's rate is measured in these alone."""
BACKLOG_S = 60
"""A channel has a backlog if more messages wait than arrive, or are finished, in this many seconds."""


@dataclass(frozen=True)
class Hours:
    """Each value is that of an hour, from ``first`` (in hours since the epoch) on; NaN where there is none.

    The first and the last hour have readings. ``message_bytes`` is the mean size of the topic's bodies, NaN if unknown.
    """

    topic: str
    channel: str
    first: int
    values: dict[str, Values]
    message_bytes: float

    @property
    def count(self) -> int:
        """Number of hours, those without readings included."""
        return len(self.values["in_rate"])

    @property
    def end(self) -> int:
        """The hour after the last one."""
        return self.first + self.count

    def service_rate(self) -> float | None:
        """Return the messages per second that a busy consumer finishes; None if none ever finished one.

        It is the median of the hours in which the channel had a backlog, so that consumers were busy. Without such
        hours, it is the rate that one hour in ten exceeded, a lower bound. No single hour decides it.
        """
        served = self.values["served"]
        known = np.isfinite(served)
        if not (served[known] > 0).any():
            return None
        had_backlog = self.values["depth"] > BACKLOG_S * self.values["out_rate"]
        busy = served[known & had_backlog & (served > 0)]
        return float(np.median(busy) if len(busy) >= BUSY_HOURS else np.quantile(served[known], 0.9))

    def figure(self, name: str) -> Values | None:
        """Return a figure of FORECAST_FIGURES or ANOMALY_FIGURES; None if a topic, or this channel, has none."""
        if not has_figure(self.channel, name):
            return None
        if name == "bytes_behind":
            return self.values["depth"] * self.message_bytes if np.isfinite(self.message_bytes) else None
        if name == "capacity_rate":
            rate = self.service_rate()
            return None if rate is None else self.values["consumers"] * rate
        return self.values[name]


def hours_of(table: pa.Table) -> Hours:
    """Return the hours of a group: ``topic``, ``channel``, ``hour`` (since the epoch), ``message_bytes``, COLUMNS."""
    hours = table["hour"].to_numpy()
    first = int(hours.min())
    count = int(hours.max()) - first + 1
    values = {}
    for name in COLUMNS:
        values[name] = np.full(count, np.nan)
        values[name][hours - first] = table[name].to_numpy()
    message_bytes = float(table["message_bytes"].to_numpy()[0])
    return Hours(table["topic"][0].as_py(), table["channel"][0].as_py(), first, values, message_bytes)


def known_part(values: Values, first: int) -> tuple[Values, int]:
    """Return the values from the first known one to the last, and the hour of the first. Empty if none is known."""
    known = np.flatnonzero(np.isfinite(values))
    if not known.size:
        return values[:0], first
    return values[known[0] : known[-1] + 1], first + int(known[0])


def forecasts(table: pa.Table, start: int, ahead: int) -> pa.Table:
    """Hours of a topic or channel -> FORECAST rows of its figures: the last week, and ``ahead`` hours from ``start``.

    A figure that is not forecast has its last week, and at ``start`` a row with the reason.
    """
    hours = hours_of(table)
    rows: list[dict[str, Any]] = []
    for name, unit in FORECAST_FIGURES.items():
        values = hours.figure(name)
        if values is not None:
            rows += _forecast_rows(hours, name, unit, values, start, ahead)
    return as_table(rows, FORECAST)


def _forecast_rows(
    hours: Hours, name: str, unit: str, values: Values, start: int, ahead: int
) -> Iterator[dict[str, Any]]:
    history, first = known_part(values, hours.first)
    late = start - (first + len(history))
    key: dict[str, Any] = {"topic": hours.topic, "channel": hours.channel or None, "figure": name, "unit": unit}
    key["history_hours"] = int(np.isfinite(history).sum())
    for at in range(max(first, start - HOURS_OF_WEEK), first + len(history)):
        yield key | {"window_start": at, "actual": history[at - first]}
    reason = forecasting.reason_against(history, late)
    if reason is not None:
        yield key | {"window_start": start, "reason": reason}
        return
    found = forecast(history, first, ahead, late)
    key |= {"model": found.model, "season": found.season}
    if (test := found.back_test) is not None:
        key |= {"mae": test.mae, "mase": test.mase, "tested_hours": test.hours}
        key |= {"within_80_percent": 100 * test.within_80, "within_95_percent": 100 * test.within_95}
    recent = history[-HOURS_OF_WEEK:]
    peak = float(np.nanmax(recent))
    for n in range(ahead):
        low_95, low_80, high_80, high_95 = found.bands[:, n]
        yield key | {
            "window_start": start + n,
            "forecast": found.values[n],
            "low_95": low_95,
            "low_80": low_80,
            "high_80": high_80,
            "high_95": high_95,
            "above_peak_percent": 100 * (found.values[n] / peak - 1) if peak > 0 and name in _WORSE_IF_HIGH else None,
        }


def forecast(history: Values, first: int, ahead: int, late: int) -> Forecast:
    """As ``forecasting.forecast``, without the warnings of statsmodels: bands and back-test say how good a fit is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return forecasting.forecast(history, first, ahead, late)


def has_figure(channel: str, figure: str) -> bool:
    """Whether a topic (``channel`` empty) or a channel has the figure: topics have _OF_TOPICS only."""
    return bool(channel) or figure in _OF_TOPICS


def anomalies(table: pa.Table, since: int, until: int, weeks: int, threshold: float) -> pa.Table:
    """Hours of a topic or channel -> ANOMALIES rows of the hours in [since, until), for all its figures.

    A figure without any hour that can be judged has one row, with the reason.
    """
    hours = hours_of(table)
    rows: list[dict[str, Any]] = []
    for name, (unit, least) in ANOMALY_FIGURES.items():
        values = hours.figure(name)
        if values is not None and since < hours.end:
            rows += _anomaly_rows(hours, name, unit, least, since=since, until=until, weeks=weeks, threshold=threshold)
    return as_table(rows, ANOMALIES)


def _anomaly_rows(
    hours: Hours, name: str, unit: str, least: float, *, since: int, until: int, weeks: int, threshold: float
) -> Iterator[dict[str, Any]]:
    values = hours.figure(name)
    assert values is not None
    key: dict[str, Any] = {"topic": hours.topic, "channel": hours.channel or None, "figure": name, "unit": unit}
    begin = max(since, hours.first)
    judged = past_weeks.judged(values, hours.first, begin - hours.first, weeks=weeks, least=least)
    lows, highs = judged.band(threshold)
    actual = values[begin - hours.first :]
    scores = judged.score(actual)
    if not np.isfinite(judged.expected[: until - begin]).any():
        most = int(judged.weeks.max(initial=0))
        reason = f"past weeks with these hours: {most}; a comparison needs {past_weeks.LEAST_WEEKS}"
        yield key | {"window_start": begin, "state": "unknown", "weeks": most, "reason": reason}
        return
    for n in range(min(until, hours.end) - begin):
        row = key | {"window_start": begin + n, "actual": actual[n], "weeks": int(judged.weeks[n])}
        expected, score = judged.expected[n], scores[n]
        if np.isfinite(expected):
            row |= {"expected": expected, "low": lows[n], "high": highs[n]}
        state = "unknown"
        if np.isfinite(score):
            state = "high" if score >= threshold else "low" if score <= -threshold else "as usual"
            row |= {"score": abs(score), "difference": actual[n] - expected}
        yield row | {"state": state}


def outlook(table: pa.Table, start: int, ahead: int, free_bytes: float | None) -> pa.Table:
    """Hours of a channel -> one CAPACITY_OUTLOOK row: what the ``ahead`` hours from ``start`` bring.

    The backlog grows by what arrives and shrinks by what its consumers can finish, hour by hour. Both are forecast, or
    the means of the last day if they cannot be.
    """
    hours = hours_of(table)
    service_rate = hours.service_rate()
    row: dict[str, Any] = {"topic": hours.topic, "channel": hours.channel, "service_rate": service_rate}
    arrivals, first = known_part(hours.values["in_rate"], hours.first)
    late = start - (first + len(arrivals))
    reason = forecasting.reason_against(arrivals, late)
    if reason is None and ahead > HOURS_OF_WEEK:
        reason = "the horizon is longer than a week"
    if reason is None:
        found = forecast(arrivals, first, late + ahead, 0)
        row |= {"method": "forecast", "forecast_in_rate": float(np.mean(found.values[-HOURS_OF_DAY:]))}
        row["forecast_peak_rate"] = float(np.max(found.bands[2]))
        coming = found.values
    else:
        row |= {"method": "straight line", "reason": reason}
        recent = arrivals[-HOURS_OF_DAY:]
        coming = np.full(max(late, 0) + ahead, np.nanmean(recent) if np.isfinite(recent).any() else 0.0)
    depths = hours.values["depth_last"]
    known = np.flatnonzero(np.isfinite(depths))
    if known.size and late <= forecasting.OLDEST_END:
        row |= _backlog(hours, float(depths[known[-1]]), coming, service_rate or 0.0, start - late, start, free_bytes)
    return as_table([row], CAPACITY_OUTLOOK)


def _backlog(
    hours: Hours, depth: float, coming: Values, service_rate: float, first: int, start: int, free_bytes: float | None
) -> dict[str, Any]:
    """Return when the backlog is gone, and when it has grown by ``free_bytes``; nothing for a channel without one.

    Without a backlog, consumers keep up, and how much more they could finish is unknown.
    """
    if depth <= BACKLOG_S * max(float(coming[0]), 0.0):
        return {}
    consumers = hours.values["consumers"][-HOURS_OF_DAY:]
    connected = float(np.nanmean(consumers)) if np.isfinite(consumers).any() else 0.0
    rest = depth
    found: dict[str, Any] = {}
    for n, rate in enumerate(coming):
        rest += HOUR_S * (float(rate) - connected * service_rate)
        at = max(first + n + 1, start)
        if rest <= 0:
            return found | {"drains_at": at}
        if (
            free_bytes is not None
            and "disk_full_at" not in found
            and (rest - depth) * hours.message_bytes >= free_bytes
        ):
            found["disk_full_at"] = at
    return found


def as_table(rows: Sequence[dict[str, Any]], figures: Sequence[Figure]) -> pa.Table:
    """Return rows as a table of ``figures`` but COVERED. Timestamps are given in hours since the epoch; NaN is null."""
    wanted = [figure for figure in figures if figure not in COVERED]
    columns = []
    for figure in wanted:
        values = [row.get(figure.name) for row in rows]
        if figure.type == "timestamp":
            values = [None if hour is None else datetime.fromtimestamp(hour * HOUR_S, UTC) for hour in values]
        columns.append(pa.array(values, ARROW_TYPES[figure.type], from_pandas=True))
    return pa.table(columns, names=[figure.name for figure in wanted])
