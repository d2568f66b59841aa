"""Explains falls of counters without an uptime: a channel was created again, or a collector's clock was set back.

Counters of one process only grow, unless a topic or channel is deleted and created again. For two readings of a node:

- If a series fell and another of the same node and boot rose, the clock was right, and the series that fell was
  created again.
- If none rose and series of two topics or more fell, the clock was set back.
- If none rose and series of one topic fell, counters prove nothing (``is_unproven``). A clock set back makes readings
  of two times alternate. Sorted by counter, the times step back once; sorted by time, the counter falls repeatedly.
  More falls than steps back within an hour: the clock was set back.

Otherwise the next reading decides (nsqanalytics/counting/ends.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from nsqanalytics.counting.columns import NULL, TIME, Flags, Integers, as_table, codes, flags, integers
from nsqanalytics.counting.readings import SERIES, Readings
from nsqanalytics.counting.runs import Runs
from nsqanalytics.counting.sampling import hour_of
from nsqanalytics.counting.streams import whole_groups

FINDINGS = ("is_created_again", "is_set_back", "is_unproven")
EVIDENCE = pa.schema(
    [*((name, pa.string()) for name in SERIES), ("taken_at", TIME), *((name, pa.bool_()) for name in FINDINGS)]
)
"""A row per reading at which a series fell. ``is_created_again`` and ``is_set_back`` are never both true.
``is_unproven`` is true if no other series rose and no other topic's series fell."""
COMPARED = (*SERIES, "taken_at", "counter_sum")


def evidence(table: pa.Table, since: int = NULL) -> pa.Table:
    """Return EVIDENCE about readings from ``since`` on, in microseconds.

    ``table`` has the columns COMPARED of all series of some nodes' boots, in any order. Readings before ``since`` are
    only compared with, so the last one of each series is enough.
    """
    table = table.drop_null()
    of = codes(table, SERIES)
    at, counter_sum = integers(table["taken_at"]), integers(table["counter_sum"])
    order = np.lexsort((counter_sum, at, of))
    once = order[Runs(of[order], at[order]).is_first]  # the lowest of several at the same time
    table, of, at, counter_sum = table.take(pa.array(once)), of[once], at[once], counter_sum[once]
    series = Runs(of)
    at_before, sum_before = series.before(at), series.before(counter_sum)
    has_before = at_before != NULL
    fell = has_before & (counter_sum < sum_before)
    moment, latest = _moments(table, at, at_before)
    # A series without a value at the node's previous reading is compared with an older one, which proves no rise.
    rose = has_before & (at_before == latest) & (counter_sum > sum_before)
    any_rose = np.zeros(len(latest), bool)
    any_rose[moment[rose]] = True
    topics = np.unique(np.stack([moment[fell], codes(table, ["topic"])[fell]]), axis=1)[0]
    topics_fell = np.bincount(topics, minlength=len(latest))[moment]
    any_rose = any_rose[moment]
    is_clock = (topics_fell > 1) | _alternating(of, at, counter_sum)
    found = {
        "taken_at": at,
        "is_created_again": any_rose,
        "is_set_back": ~any_rose & is_clock,
        "is_unproven": ~any_rose & (topics_fell == 1),
    }
    rows = np.flatnonzero(fell & (at >= since))
    names = table.select(SERIES).take(pa.array(rows))
    return as_table({name: names[name] for name in SERIES} | {n: v[rows] for n, v in found.items()}, EVIDENCE)


def _moments(table: pa.Table, at: Integers, at_before: Integers) -> tuple[Integers, Integers]:
    """Return the number of each reading's moment (its boot and time), and for each reading the latest earlier reading
    of all series of the same moment."""
    boot = codes(table, SERIES[:2])
    _, times = np.unique(at, return_inverse=True)
    _, moment = np.unique(boot * (len(at) + 1) + times, return_inverse=True)
    latest = np.full(len(at), NULL)
    np.maximum.at(latest, moment, at_before)
    return moment, latest[moment]


def _alternating(of: Integers, at: Integers, counter_sum: Integers) -> Flags:
    """Return for each reading whether its series, within its hour, has more falls in the order of time than steps back
    in time in the order of its counters."""
    hour = hour_of(at)
    groups = Runs(of, hour)
    fell = ~groups.is_first & (counter_sum < groups.before(counter_sum))
    order = np.lexsort((at, counter_sum, hour, of))
    ordered = Runs(of[order], hour[order])
    goes_back = ~ordered.is_first & (ordered.before(at[order]) > at[order])
    return (groups.count_of(fell) > ordered.count_of(goes_back))[groups.of]


def in_hours(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield EVIDENCE about a stream of COMPARED columns and ``hour``, sorted by node, boot and hour.

    One hour of one boot is in memory at a time, and the last reading of each of its series before that.
    """
    lasts: pa.Table | None = None
    for table in whole_groups(batches, ("node", "boot_id", "hour"), 1):
        for part in _hours_of(table):
            boot = [part[name][0].as_py() for name in SERIES[:2]]
            if lasts is not None and lasts.num_rows and [lasts[n][0].as_py() for n in SERIES[:2]] != boot:
                lasts = None
            compared = part.select(COMPARED)
            since = int(integers(part["hour"])[0])
            yield from evidence(compared if lasts is None else pa.concat_tables([lasts, compared]), since).to_batches()
            lasts = _lasts(compared if lasts is None else pa.concat_tables([lasts, compared]))


def of_hours(hours: Iterable[tuple[int, pa.Table]]) -> pa.Table:
    """Return EVIDENCE about consecutive hours, each with its start in microseconds and its columns COMPARED."""
    found = []
    lasts: pa.Table | None = None
    for since, compared in hours:
        both = compared if lasts is None else pa.concat_tables([lasts, compared])
        found.append(evidence(both, since))
        lasts = _lasts(both)
    return pa.concat_tables(found)


def _hours_of(table: pa.Table) -> Iterator[pa.Table]:
    runs = Runs(codes(table, SERIES[:2]), integers(table["hour"]))
    for start, end in zip(runs.starts, runs.ends, strict=True):
        yield table.slice(start, end + 1 - start)


def _lasts(table: pa.Table) -> pa.Table:
    """Return the last reading of each series; the lowest of several at the same time."""
    of = codes(table, SERIES)
    order = np.lexsort((-integers(table["counter_sum"]), integers(table["taken_at"]), of))
    return table.take(pa.array(order[Runs(of[order]).is_last]))


class Findings:
    """EVIDENCE about the readings of many series."""

    def __init__(self, evidence: pa.Table) -> None:
        self._of: dict[tuple[str, ...], list[int]] = {}
        for row, key in enumerate(zip(*(evidence[name].to_pylist() for name in SERIES), strict=True)):
            self._of.setdefault(key, []).append(row)
        self._at = integers(evidence["taken_at"])
        self._flags = np.stack([flags(evidence[name]) for name in FINDINGS])

    def about(self, readings: Readings) -> dict[str, Flags]:
        """Return FINDINGS for each reading; false for a reading without evidence."""
        found = np.zeros((len(FINDINGS), readings.count), bool)
        names = zip(*(readings.series[name].to_pylist() for name in SERIES), strict=True)
        at = readings["taken_at"]
        for n, key in enumerate(names):
            if (rows := self._of.get(key)) is None:
                continue
            first, last = np.searchsorted(readings.of, [n, n + 1])
            times = self._at[rows]
            order = np.argsort(times)
            there = np.searchsorted(times[order], at[first:last])
            there = np.minimum(there, len(rows) - 1)
            is_found = times[order][there] == at[first:last]
            found[:, first:last] = self._flags[:, np.array(rows)[order][there]] & is_found
        return dict(zip(FINDINGS, found, strict=True))


def comparable(readings: Readings) -> pa.Table:
    """Return the columns COMPARED of readings."""
    names = readings.series.take(pa.array(readings.of))
    return pa.table(
        [
            *(names[name] for name in SERIES),
            pa.array(readings["taken_at"]).cast(TIME),
            pa.array(readings["counter_sum"]),
        ],
        names=list(COMPARED),
    )
