"""The last hour of every topic, channel and node: a record every ten seconds, in rings of fixed size in Redis.

Each series is one string: a ring buffer of RECORDS records. The record of Unix second ``t`` has the number
``t // STEP_S % RECORDS``.

    at u32 (Unix seconds) | a float32 for each of the scope's METRICS, NaN where it was unknown; little-endian

Readers skip records that are older than an hour: these were not overwritten, because the series ended or no collector
ran. The ring of a channel takes 20 kB. The ring of a series that has ended expires as a whole. Keys contain a checksum
of the scope's METRICS, so that the records of a release with other metrics are not misread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from nsqplatform.cluster.readings.matrix import Floats, Ints
from nsqplatform.cluster.snapshots.snapshot import Snapshot
from nsqplatform.cluster.snapshots.table import Table
from nsqplatform.cluster.store import HISTORY
from nsqwire.figures import LATENCY_RANGE, RATE, Figure, Scope, in_rows, recorded
from nsqwire.units import WholeSeconds

STEP_S = 10
RECORDS = 360
HOUR_S = STEP_S * RECORDS

SCOPES: tuple[Scope, ...] = ("cluster", "node", "topic", "channel")
Floats32 = NDArray[np.float32]
GAUGES: Mapping[str, Sequence[Figure]] = {
    scope: [figure for figure in recorded(scope) if figure.kind is not RATE] for scope in SCOPES
}
"""Recorded with their values at the time of the record."""
RATES: Mapping[str, Sequence[Figure]] = {
    scope: [figure for figure in recorded(scope) if figure.kind is RATE] for scope in SCOPES
}
"""Recorded as the mean since the previous record."""
METRICS: Mapping[str, tuple[str, ...]] = {
    scope: tuple(figure.history for figure in (*GAUGES[scope], *RATES[scope])) for scope in SCOPES
}


class Write(NamedTuple):
    """A write of ``record`` at byte ``offset`` of the string ``key``."""

    key: str
    offset: int
    record: bytes


class Series(NamedTuple):
    """The names of one scope, and a column for each of its gauges and rates."""

    names: Sequence[str]
    gauges: Floats
    rates: Floats


@dataclass
class _Means:
    """The rates since the last record of each key: their sums, and the number of known values."""

    keys: Sequence[str]
    due: NDArray[np.int64]
    """The second within STEP_S at which each key is due."""
    sums: Floats
    known: NDArray[np.int64]

    @classmethod
    def of(cls, keys: Sequence[str], rates: int) -> _Means:
        due = np.array([crc32(key.encode()) % STEP_S for key in keys], np.int64)
        return cls(keys, due, np.zeros((len(keys), rates)), np.zeros((len(keys), rates), np.int64))

    def moved(self, keys: Sequence[str]) -> _Means:
        """A copy for these keys. New keys are empty; those of other keys are dropped."""
        after = _Means.of(keys, self.sums.shape[1])
        places = {key: place for place, key in enumerate(self.keys)}
        found = np.array([places.get(key, -1) for key in keys], np.int64)
        stay = found >= 0
        after.sums[stay], after.known[stay] = self.sums[found[stay]], self.known[found[stay]]
        return after


@dataclass
class Recorder:
    """Turns snapshots into records. A tenth of the series is due each second, so that no poll writes all of them."""

    _means: dict[str, _Means] = field(default_factory=dict)
    _names: dict[str, Sequence[str]] = field(default_factory=dict)
    _at: WholeSeconds = 0

    def record(self, snapshot: Snapshot) -> list[Write]:
        """The records that are due since the last poll."""
        now = snapshot.taken_at_ms // 1000
        # Seconds without a poll are due with this one; after a pause, or after the clock was set back, all are.
        due = {second % STEP_S for second in range(self._at + 1, now + 1)[:STEP_S]} if now - self._at > 0 else set()
        if now < self._at:
            due = set(range(STEP_S))
        self._at = now
        return [write for scope, each in series(snapshot).items() for write in self._due_records(scope, each, due, now)]

    def _due_records(self, scope: str, columns: Series, due: set[int], now: WholeSeconds) -> list[Write]:
        means = self._means.get(scope) or _Means.of([], len(RATES[scope]))
        if columns.names != self._names.get(scope):
            self._names[scope] = columns.names
            means = means.moved([key_of(scope, name) for name in columns.names])
        self._means[scope] = means
        means.sums += np.nan_to_num(columns.rates)
        means.known += ~np.isnan(columns.rates)
        places = np.flatnonzero(np.isin(means.due, [*due]))
        with np.errstate(invalid="ignore"):
            mean = np.where(means.known[places] > 0, means.sums[places] / means.known[places], np.nan)
        means.sums[places] = means.known[places] = 0
        records = np.zeros(len(places), layout_of(scope))
        records["at"] = now
        records["values"] = np.hstack([columns.gauges[places], mean])
        size = records.dtype.itemsize
        offset, written = now // STEP_S % RECORDS * size, records.tobytes()
        return [
            Write(means.keys[place], offset, written[number * size : (number + 1) * size])
            for number, place in enumerate(places.tolist())
        ]


def series(snapshot: Snapshot) -> dict[Scope, Series]:
    """The series of all scopes. Nodes that are down have none."""
    up = [place for place, state in enumerate(snapshot.nodes.columns.get("state", ())) if state == "up"]
    columns: dict[Scope, dict[str, Floats]] = {
        "node": columns_of("node", snapshot.nodes.only(up)),
        "channel": columns_of("channel", snapshot.channels),
        "topic": columns_of("topic", snapshot.topics),
    }
    names = snapshot.channels.columns.get("topic", ())
    topics = np.array([snapshot.topics.places.get(name, -1) for name in names], np.int64)
    columns["topic"] |= {
        figure.name: total_by_topic(figure, columns, topics)
        for figure in recorded("topic")
        if figure.name not in columns["topic"]
    }
    columns["cluster"] = {figure.name: total(figure, columns) for figure in recorded("cluster")}
    keys: dict[Scope, Sequence[str]] = {
        "channel": snapshot.channels.names,
        "topic": snapshot.topics.names,
        "node": snapshot.nodes.only(up).names,
        "cluster": [""],
    }
    return {
        scope: Series(
            keys[scope],
            np.column_stack([columns[scope][figure.name] for figure in GAUGES[scope]]),
            np.column_stack([columns[scope][figure.name] for figure in RATES[scope]]),
        )
        for scope in keys
    }


def columns_of(scope: Scope, table: Table) -> dict[str, Floats]:
    """The columns of a table's figures that are recorded or summed."""
    return {figure.name: values(table, figure.name) for figure in in_rows(scope) if figure.kind is not LATENCY_RANGE}


def total_by_topic(figure: Figure, columns: Mapping[Scope, Mapping[str, Floats]], topics: Ints) -> Floats:
    """The sums of ``figure.sum_of``, NaN where all are unknown. ``topics``: the place of each channel's topic."""
    count = len(columns["topic"]["depth"])
    sums, known = np.zeros(count), np.zeros(count, bool)
    for each in figure.sum_of:
        scope, _, name = each.partition(".")
        if scope == "topic":
            own = columns["topic"][name]
            sums += np.nan_to_num(own)
            known |= ~np.isnan(own)
        else:
            shares = columns["channel"][name]
            np.add.at(sums, topics, np.nan_to_num(shares))
            known[topics[~np.isnan(shares)]] = True
    return np.where(known, sums, np.nan)


def total(figure: Figure, columns: Mapping[Scope, Mapping[str, Floats]]) -> Floats:
    """The sum over the whole cluster, as an array of one."""
    sums = [np.nansum(columns[scope_of(each)][each.partition(".")[2]]) for each in figure.sum_of]
    return np.array([np.sum(sums)])


def scope_of(name: str) -> Scope:
    """The scope of ``topic.depth`` is ``topic``."""
    return cast(Scope, name.partition(".")[0])


def values(table: Table, name: str) -> Floats:
    """A column of a table, NaN for None."""
    return np.array(table.columns.get(name, ()), np.float64)


def layout_of(scope: str) -> np.dtype[np.void]:
    return np.dtype([("at", "<u4"), ("values", "<f4", (len(METRICS[scope]),))])


def key_of(scope: str, name: str) -> str:
    return f"{prefix_of(scope)}{name}"


def prefix_of(scope: str) -> str:
    """The prefix of the keys of all series of a scope."""
    return f"{HISTORY()}{scope}:{crc32(','.join(METRICS[scope]).encode()):08x}:"


def scope_and_name(key: str) -> tuple[Scope, str] | None:
    """The inverse of ``key_of``; None for keys of a release with other metrics."""
    for scope in SCOPES:
        if key.startswith(prefix := prefix_of(scope)):
            return scope, key.removeprefix(prefix)
    return None


def fresh(scope: str, ring: bytes, now: WholeSeconds) -> tuple[Ints, Floats32]:
    """The records of the last hour, oldest first: their times in Unix seconds, and a row of metrics each."""
    kind = layout_of(scope)
    found = np.frombuffer(ring[: len(ring) // kind.itemsize * kind.itemsize], kind)
    at = found["at"].astype(np.int64)
    found = found[(at > now - HOUR_S) & (at <= now + STEP_S)]
    found = found[np.argsort(found["at"], kind="stable")]
    return found["at"].astype(np.int64), found["values"]


def read(scope: str, ring: bytes, now: WholeSeconds) -> tuple[list[int], dict[str, list[float | None]]]:
    """Times, oldest first, in Unix seconds, and a column for each of the scope's metrics."""
    at, values = fresh(scope, ring, now)
    return at.tolist(), {name: known(values[:, place]) for place, name in enumerate(METRICS[scope])}


def known(values: Any) -> list[float | None]:
    """The values as a list, None for NaN."""
    return [None if value != value else value for value in column(values)]


def column(values: Any) -> Sequence[float]:
    """The values as a list, rounded to the seven digits of a float32."""
    return [float(f"{value:.7g}") for value in values.tolist()]
