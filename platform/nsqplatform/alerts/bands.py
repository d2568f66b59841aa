"""The bands that past weeks give for the present hours, in Redis: a task finds them, the collector and the API read
them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias, TypedDict, cast

import numpy as np
import orjson

from nsqanalytics import past_weeks
from nsqanalytics.past_weeks import Values
from nsqplatform.alerts.catalogue import Metric
from nsqplatform.cluster import store
from nsqplatform.clusters.current import Key
from nsqwire.units import Seconds

BANDS = Key("alerts:bands")
"""JSON of Stored."""
FOUND_AT = Key("alerts:bands_at")
"""The time of the stored bands, which the collector reads with every poll."""
HOUR_S = 3600
HOURS_AHEAD = 2
"""Bands are stored for the hour before, the present one and this many after it, in case the next task is late."""
EXPIRES_S = (HOURS_AHEAD + 1) * HOUR_S

Hour: TypeAlias = "tuple[float, float, int] | None"
"""The expected value, the scale of deviations from it, and the number of past weeks; None where these are too few."""


class Stored(TypedDict):
    """``at``: Unix seconds. ``first``: the first hour, since the epoch. ``bands``: by metric (``scope:name``) and the
    subject's key, one for each hour. ``rules``: those that they were found for, as ``watched_by``. ``error``: why the
    rollups could not be read; empty if they could."""

    at: Seconds
    first: int
    bands: dict[str, dict[str, list[Hour]]]
    rules: list[list[str]]
    error: str


class Watching(Protocol):
    """What a rule compares with past weeks; :class:`alerts.models.Rule` is one."""

    topic_pattern: str
    channel_pattern: str

    @property
    def watched(self) -> Metric: ...


class Band(NamedTuple):
    """The expected value and the scale of deviations from it, in the metric's unit, and the number of past weeks."""

    expected: float
    scale: float
    weeks: int

    def range(self, threshold: float) -> tuple[float, float]:
        """The lowest and highest value whose score is within the threshold. No value is negative."""
        low, high = past_weeks.band(np.array([self.expected]), np.array([self.scale]), threshold)
        return float(low[0]), float(high[0])


@dataclass(frozen=True)
class Columns:
    """The bands of a metric's subjects at one time, in the order of ``places``; NaN where they are unknown."""

    places: Mapping[str, int]
    expected: Values
    scale: Values
    weeks: Values

    def band(self, key: str) -> Band | None:
        place = self.places.get(key)
        if place is None or np.isnan(self.expected[place]):
            return None
        return Band(float(self.expected[place]), float(self.scale[place]), int(self.weeks[place]))


class Bands:
    """Stored bands, as columns."""

    def __init__(self, stored: Stored) -> None:
        self.at = stored["at"]
        self.error = stored["error"]
        self._first = stored["first"]
        self._rules = stored["rules"]
        self._stored = stored["bands"]
        self._columns: dict[str, Columns] = {}

    def has(self, rule: Watching) -> bool:
        """Whether they were found for a rule of this metric and these patterns."""
        return watched_by(rule) in self._rules

    def between(self, metric: Metric, since: Seconds, until: Seconds) -> Columns:
        """The bands of a time that lies in at most two hours: the means of those of both hours, by time.

        Times are Unix seconds.
        """
        stored, last = self._of(name_of(metric)), int(until // HOUR_S)
        last_began = last * HOUR_S
        now = self._at(stored, last)
        if since >= last_began:
            return now
        before, share = self._at(stored, last - 1), (until - last_began) / (until - since)
        return Columns(
            places=stored.places,
            expected=share * now.expected + (1 - share) * before.expected,
            scale=share * now.scale + (1 - share) * before.scale,
            weeks=np.minimum(now.weeks, before.weeks),
        )

    def _of(self, name: str) -> Columns:
        """All hours of a metric, as columns of a row for each subject."""
        found = self._columns.get(name)
        if found is None:
            subjects = self._stored.get(name, {})
            rows = [[hour or (np.nan, np.nan, 0) for hour in hours] for hours in subjects.values()]
            table = np.array(rows, np.float64) if rows else np.empty((0, 0, 3))
            places = {key: place for place, key in enumerate(subjects)}
            found = self._columns[name] = Columns(places, *(table[:, :, part] for part in range(3)))
        return found

    def _at(self, stored: Columns, hour: int) -> Columns:
        place = hour - self._first
        if 0 <= place < stored.expected.shape[1]:
            return Columns(stored.places, stored.expected[:, place], stored.scale[:, place], stored.weeks[:, place])
        unknown = np.full(len(stored.places), np.nan)
        return Columns(stored.places, unknown, unknown, np.zeros(len(stored.places)))


def watched_by(rule: Watching) -> list[str]:
    return [name_of(rule.watched), rule.topic_pattern, rule.channel_pattern]


def name_of(metric: Metric) -> str:
    return f"{metric.scope}:{metric.name}"


def parse(kept: bytes | str | None) -> Bands | None:
    """The value of BANDS; None if there is none."""
    return Bands(orjson.loads(kept)) if kept else None


def bands() -> Bands | None:
    """The bands that a task has found; None if none has, or too long ago."""
    with store.connect() as redis:
        return parse(cast(bytes | None, redis.get(BANDS())))


def put(stored: Stored) -> None:
    """Store the bands, unless newer ones are stored."""
    with store.connect() as redis:
        there = cast(bytes | None, redis.get(FOUND_AT()))
        if there is not None and float(there) > stored["at"]:
            return
        pipe = redis.pipeline()
        pipe.set(BANDS(), orjson.dumps(stored), ex=EXPIRES_S)
        pipe.set(FOUND_AT(), repr(stored["at"]), ex=EXPIRES_S)
        pipe.execute()
