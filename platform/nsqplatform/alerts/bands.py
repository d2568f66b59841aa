"""The bands that past weeks give for the present hours, in Redis: a task finds them, the collector and the API read
them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias, TypedDict, cast

import orjson

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
"""Bands are stored for the hour before, the present one and so many after it, in case the next task is late."""
EXPIRES_S = (HOURS_AHEAD + 1) * HOUR_S

Hour: TypeAlias = "tuple[float, float, int] | None"
"""The expected value, the scale of deviations from it, and the number of past weeks; None where these are too few."""


class Stored(TypedDict):
    """``at``: unix seconds. ``first``: the first hour, since the epoch. ``bands``: by metric (``scope:name``) and the
    subject's key, one for each hour. ``error``: why the rollups could not be read; empty if they could."""

    at: Seconds
    first: int
    bands: dict[str, dict[str, list[Hour]]]
    error: str


class Band(NamedTuple):
    """The expected value and the scale of deviations from it, in the metric's unit, and the number of past weeks."""

    expected: float
    scale: float
    weeks: int

    def score(self, value: float) -> float:
        """The deviation from the expected value in units of its scale; negative below it."""
        return (value - self.expected) / self.scale

    def range(self, threshold: float) -> tuple[float, float]:
        """The lowest and highest value whose score is within the threshold. No value is negative."""
        margin = threshold * self.scale
        return max(0.0, self.expected - margin), max(0.0, self.expected + margin)


class Bands:
    """Stored bands, in a form in which they are looked up."""

    def __init__(self, stored: Stored) -> None:
        self.at = stored["at"]
        self.error = stored["error"]
        self._first = stored["first"]
        self._bands = stored["bands"]

    def of(self, metric: Metric) -> Mapping[str, Sequence[Hour]]:
        """The bands of each subject that the rollups have."""
        return self._bands.get(name_of(metric), {})

    def between(self, metric: Metric, key: str, since: Seconds, until: Seconds) -> Band | None:
        """The band of a time that lies in at most two hours: the mean of their bands, by time. None if one is unknown.

        Times are unix seconds.
        """
        hours = self.of(metric).get(key)
        if hours is None:
            return None
        last = int(until // HOUR_S)
        turn = last * HOUR_S
        now = self._at(hours, last)
        if now is None or since >= turn:
            return now
        before = self._at(hours, last - 1)
        if before is None:
            return None
        share = (until - turn) / (until - since)
        return Band(
            expected=share * now.expected + (1 - share) * before.expected,
            scale=share * now.scale + (1 - share) * before.scale,
            weeks=min(now.weeks, before.weeks),
        )

    def _at(self, hours: Sequence[Hour], hour: int) -> Band | None:
        place = hour - self._first
        found = hours[place] if 0 <= place < len(hours) else None
        return None if found is None else Band(*found)


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
