"""The last two minutes of all series that a page shows: the initial values of its sparklines and trends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from redis import Redis

from nsqplatform.cluster.history.records import METRICS, RECORDS, STEP_S, key_of, layout_of
from nsqplatform.cluster.readings.matrix import Floats
from nsqplatform.cluster.snapshots.snapshot import EVERYTHING, Snapshot, View
from nsqwire.figures import Scope
from nsqwire.units import WholeSeconds

SHOWN_S = 120
"""Time that the figures of a page show; lists of topics and channels show half of it."""
LISTED: Mapping[Scope, Sequence[str]] = {
    "cluster": ("depth", "publish_rate", "finish_rate", "in_flight", "clients"),
    "node": ("depth", "publish_rate", "finish_rate"),
    "topic": ("depth", "publish_rate"),
    "channel": ("depth", "finish_rate", "timeout_rate", "dead"),
}
"""The metrics that lists and the overview show or filter by."""


class RecentSeries(NamedTuple):
    """The records of all series of one scope. The time of record ``n`` of series ``s`` is ``times[n] + phases[s]``.

    ``columns`` by metric: for each series its values, NaN where there is no record.
    """

    scope: Scope
    names: Sequence[str]
    times: Sequence[int]
    phases: Sequence[int]
    columns: Mapping[str, Floats]


def recent(redis: Redis, snapshot: Snapshot, view: View, now: WholeSeconds) -> list[RecentSeries]:
    """The recent records of the series in ``view``. ``now``: Unix seconds."""
    part = snapshot.part(view)
    names: dict[Scope, Sequence[str]] = {
        "cluster": [""] if view == EVERYTHING else [],
        "node": [view.node] if view.node is not None else part["nodes"].names if view == EVERYTHING else [],
        "topic": part["topics"].names if view.node is None else [],
        "channel": part["channels"].names if view.node is None else [],
    }
    return [
        records_of(
            redis,
            scope,
            series,
            LISTED[scope] if view == EVERYTHING else METRICS[scope],
            now,
            seconds=SHOWN_S // 2 if view == EVERYTHING and scope in ("topic", "channel") else SHOWN_S,
        )
        for scope, series in names.items()
        if series
    ]


def records_of(
    redis: Redis, scope: Scope, names: Sequence[str], metrics: Sequence[str], now: WholeSeconds, *, seconds: int
) -> RecentSeries:
    """The records of the last ``seconds`` and of the step before, of which only the needed part of each ring is
    read."""
    kind = layout_of(scope)
    first, last = (now - seconds) // STEP_S - 1, now // STEP_S
    places = [number % RECORDS for number in range(first, last + 1)]
    # One range of bytes, or two if the ring's end is within.
    cut = places.index(0) if 0 in places else 0
    ranges = [each for each in (places[:cut], places[cut:]) if each]
    pipe = redis.pipeline(transaction=False)
    for name in names:
        for each in ranges:
            pipe.getrange(key_of(scope, name), each[0] * kind.itemsize, (each[-1] + 1) * kind.itemsize - 1)
    found: Sequence[bytes] = pipe.execute()
    sizes = [len(each) * kind.itemsize for each in ranges] * len(names)
    padded = b"".join(part.ljust(size, b"\0") for part, size in zip(found, sizes, strict=True))
    records = np.frombuffer(padded, kind).reshape(len(names), len(places))
    at = records["at"].astype(np.int64)
    numbers = np.arange(first, last + 1)
    is_recent = at // STEP_S == numbers  # others are of an hour ago, or were never written
    phases = np.max(np.where(is_recent, at % STEP_S, 0), axis=1)
    values = np.where(is_recent[:, :, None], records["values"], np.nan)
    places_of = {name: place for place, name in enumerate(METRICS[scope])}
    return RecentSeries(
        scope,
        names,
        (numbers * STEP_S).tolist(),
        phases.tolist(),
        {metric: values[:, :, places_of[metric]] for metric in metrics},
    )


def shortened(columns: Floats) -> list[list[float | int | None]]:
    """Each row as a list, None for NaN. A row whose values are all the same is a list of one; most rows of a large
    cluster are."""
    known = ~np.isnan(columns)
    largest = np.where(known, columns, -np.inf).max(axis=1)
    steady = known.any(axis=1) & (largest == np.where(known, columns, np.inf).min(axis=1))
    # The first and the last record may be missing; other gaps are shown.
    steady &= known[:, 1:-1].all(axis=1)
    return [
        [number(next(value for value in row if value == value))] if same else [number(value) for value in row]
        for row, same in zip(columns.tolist(), steady.tolist(), strict=True)
    ]


def number(value: Any) -> float | int | None:
    if value != value:
        return None
    return int(value) if value == int(value) else float(f"{value:.4g}")
