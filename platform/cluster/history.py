"""The last hour of every topic, channel and node, a record each ten seconds, in a fixed place in Redis.

A series is one string, a ring of RECORDS records: the record of unix second ``t`` stands at ``t // STEP_S % RECORDS``.

    at u32 (unix seconds) | a float32 for each of the scope's METRICS, NaN where nothing was known; little-endian

A record older than an hour is one that was not written over, because the series had ended or the collector was away;
the reader passes it over. A series of a channel takes 17 kB; one that is written no more expires as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from cluster.figures import Floats
from cluster.picture import Picture
from cluster.store import HISTORY
from cluster.table import Table

STEP_S = 10
RECORDS = 360
HOUR_S = STEP_S * RECORDS

Scope: TypeAlias = Literal["cluster", "node", "topic", "channel"]
GAUGES: Mapping[str, Mapping[str, str]] = {
    "cluster": {"depth": "depth", "in_flight": "in_flight", "clients": "clients"},
    "node": {"depth": "depth", "clients": "client_count"},
    "topic": {
        "depth": "backlog",
        "in_flight": "in_flight_count",
        "clients": "client_count",
        "oldest_age_ms": "oldest_age_ms",
    },
    "channel": {
        "depth": "depth",
        "in_flight": "in_flight_count",
        "deferred": "deferred_count",
        "clients": "client_count",
        "oldest_age_ms": "oldest_age_ms",
        "p50_ms": "p50_ms",
        "p99_ms": "p99_ms",
    },
}
"""What a record tells as it is at its second: metric, and the row's field."""
RATES: Mapping[str, tuple[str, ...]] = {
    "cluster": ("publish_rate", "finish_rate"),
    "node": ("publish_rate", "finish_rate"),
    "topic": ("publish_rate", "byte_rate", "finish_rate"),
    "channel": ("publish_rate", "finish_rate", "requeue_rate", "timeout_rate"),
}
"""What a record tells as the mean since the one before."""
METRICS: Mapping[str, tuple[str, ...]] = {scope: (*GAUGES[scope], *RATES[scope]) for scope in GAUGES}


class Write(NamedTuple):
    """``record`` belongs at byte ``offset`` of the string ``key``."""

    key: str
    offset: int
    record: bytes


class Series(NamedTuple):
    """Names of one scope, and a column of what is known of them for each of the scope's gauges and rates."""

    names: Sequence[str]
    gauges: Floats
    rates: Floats


@dataclass
class _Means:
    """Rates since the last record of each key: their sums, and how many of each were known."""

    keys: Sequence[str]
    due: NDArray[np.int64]
    """At which second of STEP_S each is."""
    sums: Floats
    known: NDArray[np.int64]

    @classmethod
    def of(cls, keys: Sequence[str], rates: int) -> _Means:
        due = np.array([crc32(key.encode()) % STEP_S for key in keys], np.int64)
        return cls(keys, due, np.zeros((len(keys), rates)), np.zeros((len(keys), rates), np.int64))

    def moved(self, keys: Sequence[str]) -> _Means:
        """The same for these keys, of which some may be new; what is known of others is dropped."""
        after = _Means.of(keys, self.sums.shape[1])
        places = {key: place for place, key in enumerate(self.keys)}
        found = np.array([places.get(key, -1) for key in keys], np.int64)
        stay = found >= 0
        after.sums[stay], after.known[stay] = self.sums[found[stay]], self.known[found[stay]]
        return after


@dataclass
class Recorder:
    """Fed each beat's picture; says what to write. A tenth of the series is due each second, so that no beat pays for
    all of them."""

    _means: dict[str, _Means] = field(default_factory=dict)
    _names: dict[str, Sequence[str]] = field(default_factory=dict)
    _at: int = 0

    def beat(self, picture: Picture) -> list[Write]:
        """The records that are due since the last beat."""
        now = picture.taken_at // 1000
        # The seconds that no beat fell into are due with this one; after a pause, or a step back, all are.
        due = {second % STEP_S for second in range(self._at + 1, now + 1)[:STEP_S]} if now - self._at > 0 else set()
        if now < self._at:
            due = set(range(STEP_S))
        self._at = now
        return [write for scope, told in series(picture).items() for write in self._told(scope, told, due, now)]

    def _told(self, scope: str, told: Series, due: set[int], now: int) -> list[Write]:
        means = self._means.get(scope) or _Means.of([], len(RATES[scope]))
        if told.names != self._names.get(scope):
            self._names[scope] = told.names
            means = means.moved([key_of(scope, name) for name in told.names])
        self._means[scope] = means
        means.sums += np.nan_to_num(told.rates)
        means.known += ~np.isnan(told.rates)
        places = np.flatnonzero(np.isin(means.due, [*due]))
        with np.errstate(invalid="ignore"):
            mean = np.where(means.known[places] > 0, means.sums[places] / means.known[places], np.nan)
        means.sums[places] = means.known[places] = 0
        records = np.zeros(len(places), layout_of(scope))
        records["at"] = now
        records["values"] = np.hstack([told.gauges[places], mean])
        size = records.dtype.itemsize
        offset, written = now // STEP_S % RECORDS * size, records.tobytes()
        return [
            Write(means.keys[place], offset, written[number * size : (number + 1) * size])
            for number, place in enumerate(places.tolist())
        ]


def series(picture: Picture) -> dict[Scope, Series]:
    """All there is. A topic's ``backlog`` is what waits in it and in its channels."""
    channels, topics = picture.channels, picture.topics
    nodes = picture.nodes.only([place for place, row in enumerate(picture.nodes.rows) if row["state"] == "up"])
    of_topic = np.array([topics.places.get(topic, -1) for topic in channels.columns.get("topic", ())], np.int64)
    backlog, finish, known = values(topics, "depth"), np.zeros(len(topics)), np.zeros(len(topics), bool)
    finished = values(channels, "finish_rate")
    np.add.at(backlog, of_topic, values(channels, "depth"))
    np.add.at(finish, of_topic, np.nan_to_num(finished))
    known[of_topic[~np.isnan(finished)]] = True
    own = {"backlog": backlog, "finish_rate": np.where(known, finish, np.nan)}
    total = [
        backlog.sum(),
        values(channels, "in_flight_count").sum(),
        values(channels, "client_count").sum(),
    ]
    rates = [np.nansum(values(topics, "publish_rate")), finish.sum()]
    return {
        "channel": of_scope("channel", channels),
        "topic": of_scope("topic", topics, own),
        "node": of_scope("node", nodes),
        "cluster": Series([""], np.array([total]), np.array([rates])),
    }


def of_scope(scope: Scope, table: Table, own: Mapping[str, Floats] = MappingProxyType({})) -> Series:
    """``own`` are columns that the table does not have."""

    def columns(names: Iterable[str]) -> Floats:
        return np.column_stack([own[name] if name in own else values(table, name) for name in names])

    return Series(table.names, columns(GAUGES[scope].values()), columns(RATES[scope]))


def values(table: Table, name: str) -> Floats:
    """A column, NaN where nothing is known."""
    return np.array(table.columns.get(name, ()), np.float64)


def layout_of(scope: str) -> np.dtype[np.void]:
    return np.dtype([("at", "<u4"), ("values", "<f4", (len(METRICS[scope]),))])


def key_of(scope: str, name: str) -> str:
    return f"{HISTORY}{scope}:{name}"


def read(scope: str, ring: bytes, now: int) -> tuple[list[int], dict[str, list[float | None]]]:
    """Times, oldest first, in unix seconds, and a column for each of the scope's metrics."""
    metrics = METRICS[scope]
    kind = layout_of(scope)
    records = np.frombuffer(ring[: len(ring) // kind.itemsize * kind.itemsize], kind)
    at = records["at"].astype(np.int64)
    fresh = records[(at > now - HOUR_S) & (at <= now + STEP_S)]
    fresh = fresh[np.argsort(fresh["at"], kind="stable")]
    return fresh["at"].tolist(), {
        name: [None if value != value else value for value in column(fresh["values"][:, place])]
        for place, name in enumerate(metrics)
    }


def column(values: Any) -> Sequence[float]:
    """Seven digits are what float32 holds; more would only be sent."""
    return [float(f"{value:.7g}") for value in values.tolist()]
