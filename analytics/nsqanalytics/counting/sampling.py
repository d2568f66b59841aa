"""When nodes were sampled: which earlier readings a reading is compared with depends on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import pyarrow as pa

from nsqanalytics.counting.columns import NULL, Integers, integers

HOUR_US = 3_600_000_000
Contexts = Sequence[tuple[datetime, Sequence[datetime]]]
"""Hours of the archive, each with the hours that it is computed from, its own included. A rollup's hour is computed
from itself and the hours before it only, so that its result is independent of the run."""


def hour_of(times: Integers) -> Integers:
    """Return the start of each time's hour; all in microseconds since the epoch."""
    return times // HOUR_US * HOUR_US


@dataclass(frozen=True)
class Sampling:
    """``times`` has the sorted times at which each node was sampled, ``hours`` the sorted hours of all of them."""

    times: dict[str, Integers]
    hours: Integers

    @classmethod
    def of(cls, table: pa.Table) -> Sampling:
        """Return that of rows with ``node`` and ``taken_at``; rows without these are left out."""
        table = table.select(["node", "taken_at"]).drop_null()
        nodes = table["node"].combine_chunks().dictionary_encode()
        at, index = integers(table["taken_at"]), nodes.indices.to_numpy()
        times = {node: np.unique(at[index == n]) for n, node in enumerate(nodes.dictionary.to_pylist())}
        return cls(times, np.unique(hour_of(at)))

    @classmethod
    def of_all(cls, several: Sequence[Sampling]) -> Sampling:
        """Return that of several parts of an archive together."""
        times: dict[str, list[Integers]] = {}
        for each in several:
            for node, at in each.times.items():
                times.setdefault(node, []).append(at)
        joined = {node: np.unique(np.concatenate(parts)) for node, parts in times.items()}
        return cls(joined, np.unique(np.concatenate([each.hours for each in several])))

    def in_contexts(self, contexts: Contexts | None) -> Iterator[tuple[int, Sampling]]:
        """Yield for each context its own hour, and the sampling in its hours; without contexts, NULL and all of it."""
        if contexts is None:
            yield NULL, self
            return
        for own, hours in contexts:
            there = np.intersect1d(self.hours, np.array([_micros(hour) for hour in hours], np.int64))
            yield _micros(own), Sampling(self.times, there)

    def seen_since(self, times: Integers) -> Integers:
        """Return for each time, in one of ``hours``, the start of the last sampled hour before its own; of its own hour
        if there is none."""
        return self.hours[np.maximum(np.searchsorted(self.hours, hour_of(times)) - 1, 0)]

    def before(self, node: str, times: Integers) -> Integers:
        """Return the last time within ``hours`` before each time at which the node was sampled; NULL if there is
        none."""
        known = self.times[node]
        at = np.searchsorted(known, times) - 1
        found = known[np.maximum(at, 0)]
        return np.where((at >= 0) & np.isin(hour_of(found), self.hours), found, NULL)


def _micros(moment: datetime) -> int:
    return int(moment.timestamp()) * 1_000_000


def covers(sampling: Sampling, times: Integers) -> Integers:
    """Return the rows whose time is in one of the hours."""
    return np.flatnonzero(np.isin(hour_of(times), sampling.hours))
