"""The last hour of every topic, channel and node, a record each ten seconds, in a fixed place in Redis.

A series is one string, a ring of RECORDS records: the record of unix second ``t`` stands at ``t // STEP_S % RECORDS``.

    at u32 (unix seconds) | a float32 for each of the scope's METRICS, NaN where nothing was known; little-endian

A record older than an hour is one that was not written over, because the series had ended or the collector was away;
the reader passes it over. A series of a channel takes 17 kB; one that is written no more expires as a whole.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias
from zlib import crc32

import numpy as np

from cluster.picture import Picture
from cluster.store import HISTORY

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
LAYOUTS = {scope: struct.Struct(f"<I{len(metrics)}f") for scope, metrics in METRICS.items()}
NAN = float("nan")


class Write(NamedTuple):
    """``record`` belongs at byte ``offset`` of the string ``key``."""

    key: str
    offset: int
    record: bytes


@dataclass(slots=True)
class _Means:
    """Rates since the last record: their sums, and how many of each were known."""

    sums: list[float]
    known: list[int]
    seen: int = 0


@dataclass
class Recorder:
    """Fed each beat's picture; says what to write. A tenth of the series is due each second, so that no beat pays for
    all of them."""

    _means: dict[str, _Means] = field(default_factory=dict)
    _at: int = 0
    _beats: int = 0

    def beat(self, picture: Picture) -> list[Write]:
        """The records that are due since the last beat."""
        now = picture.taken_at // 1000
        # The seconds that no beat fell into are due with this one; after a pause, or a step back, all are.
        due = {second % STEP_S for second in range(self._at + 1, now + 1)[:STEP_S]} if now - self._at > 0 else set()
        if now < self._at:
            due = set(range(STEP_S))
        self._at = now
        self._beats += 1
        writes: list[Write] = []
        for scope, name, row in series(picture):
            key = key_of(scope, name)
            means = self._means.get(key)
            rates = RATES[scope]
            if means is None:
                means = self._means[key] = _Means([0.0] * len(rates), [0] * len(rates))
            means.seen = self._beats
            for place, metric in enumerate(rates):
                rate = row[metric]
                if rate is not None:
                    means.sums[place] += rate
                    means.known[place] += 1
            if crc32(key.encode()) % STEP_S in due:
                writes.append(self._record(scope, key, row, means, now))
        if len(self._means) > len(writes) and self._beats % RECORDS == 0:
            self._means = {key: means for key, means in self._means.items() if means.seen == self._beats}
        return writes

    def _record(self, scope: str, key: str, row: Mapping[str, Any], means: _Means, now: int) -> Write:
        values = [NAN if (value := row[name]) is None else value for name in GAUGES[scope].values()]
        values += [total / count if count else NAN for total, count in zip(means.sums, means.known, strict=True)]
        means.sums = [0.0] * len(means.sums)
        means.known = [0] * len(means.known)
        layout = LAYOUTS[scope]
        return Write(key, now // STEP_S % RECORDS * layout.size, layout.pack(now, *values))


def series(picture: Picture) -> Iterator[tuple[Scope, str, Mapping[str, Any]]]:
    """Scope, name and figures of all there is. A topic's ``backlog`` is what waits in it and in its channels."""
    backlog: dict[str, int] = {}
    finish: dict[str, float] = {}
    total = {"depth": 0, "in_flight": 0, "clients": 0, "publish_rate": 0.0, "finish_rate": 0.0}
    for key, channel in picture.channels.items():
        topic = channel["topic"]
        backlog[topic] = backlog.get(topic, 0) + channel["depth"]
        if channel["finish_rate"] is not None:
            finish[topic] = finish.get(topic, 0.0) + channel["finish_rate"]
        total["in_flight"] += channel["in_flight_count"]
        total["clients"] += channel["client_count"]
        yield "channel", key, channel
    for name, topic in picture.topics.items():
        waiting = topic["depth"] + backlog.get(name, 0)
        total["depth"] += waiting
        total["publish_rate"] += topic["publish_rate"] or 0.0
        total["finish_rate"] += finish.get(name, 0.0)
        yield "topic", name, {**topic, "backlog": waiting, "finish_rate": finish.get(name)}
    for name, node in picture.nodes.items():
        if node["state"] == "up":
            yield "node", name, node
    yield "cluster", "", total


def key_of(scope: str, name: str) -> str:
    return f"{HISTORY}{scope}:{name}"


def read(scope: str, ring: bytes, now: int) -> tuple[list[int], dict[str, list[float | None]]]:
    """Times, oldest first, in unix seconds, and a column for each of the scope's metrics."""
    metrics = METRICS[scope]
    kind = np.dtype([("at", "<u4"), ("values", "<f4", (len(metrics),))])
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
