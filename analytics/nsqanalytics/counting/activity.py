"""ACTIVITY: the figures of each node, topic and channel in each window. Every report is computed from it.

ACTIVITY of several nodes or windows can be added up in any order. A rollup stores that of one hour or day.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from nsqanalytics.counting.columns import NULL, TIME, Integers, as_table, codes, floats, integers
from nsqanalytics.counting.ends import AREAS
from nsqanalytics.counting.histograms import TYPE, Histograms, middles_ms, upper_bounds_ms
from nsqanalytics.counting.readings import LATER_COUNTERS, SERIES
from nsqanalytics.counting.runs import Runs
from nsqanalytics.counting.validation import check_histograms
from nsqanalytics.tables import PERMILLES

SUMS = (
    *("sample_count", "left_out_count", "carried_count", "unplaced_count", "uncertain_count"),
    *("in_count", "in_bytes", "out_count", "requeue_count", "timeout_count", *LATER_COUNTERS),
)
KEY = ("window_start", "node", "topic", "channel")
OF_ALL_NODES = ("window_start", "topic", "channel")
ACTIVITY = pa.schema(
    [
        ("window_start", TIME),
        *((name, pa.string()) for name in KEY[1:]),
        *((name, pa.int64()) for name in SUMS),
        *((name, pa.float64()) for name in AREAS),
        *((name, pa.int64()) for name in ("depth_max", "depth_last", "dead_last", "oldest_max_ns")),
        *((name, TIME) for name in ("last_at", "carried_since")),
        ("histogram", TYPE),
    ]
)
"""``channel`` is empty for a topic's own row. ``observed_s``, ``depth_area`` (message-seconds) and ``client_area``
(consumer-seconds) are integrals over the observed time; ``histogram`` is null if no sample had one. ``dead_last`` and
LATER_COUNTERS are null for topics, and if no sample had them. ``depth_last`` and ``dead_last`` are those of the last
reading, also of a channel that was deleted after it. ``out_count`` is null for topics; that of Go nodes may be negative
(nsqanalytics/counting/ends.py)."""
OVER_NODES = pa.schema(
    [
        *(field for field in ACTIVITY if field.name != "node"),
        *((name, pa.int64()) for name in ("node_count", "merged_node_count", "count")),
        *((name, pa.float64()) for name in (*PERMILLES, "max_ms")),
    ]
)
"""The figures of all nodes together. ``count`` is the number of the histogram's values; the percentiles and ``max_ms``
are null if there are none. ``out_count`` is 0 if it would be negative. ``depth_max`` is the sum of the nodes' highest
depths, which may be of different times: an upper bound."""
READ = pa.schema(
    [
        *((name, pa.string()) for name in SERIES),
        ("last_at", TIME),
        *(("finish_count", pa.int64()), ("hist_zero_count", pa.int64()), ("hist_offset", pa.int32())),
        *(("hist_counts", pa.list_(pa.int64())), ("file", pa.string())),
    ]
)
"""The histogram of a reading at ``last_at``, in the columns of a SAMPLE row, and the URI of its file."""


def with_histograms(ends: pa.Table, read: pa.Table) -> pa.Table:
    """ENDS and READ of whole series -> ACTIVITY that is not added up yet: the histogram of each row is that of its last
    reading minus that of its base.

    Raises InvalidReading if one of these is invalid.
    """
    both = pa.concat_tables([ends.select(SERIES), read.select(SERIES)])
    of = codes(both, SERIES)
    at = integers(read["last_at"])
    times = np.unique(at)
    read_key = of[ends.num_rows :] * (len(times) + 1) + np.searchsorted(times, at)
    order = _first_by_count(read, read_key)
    read_key = read_key[order]
    is_merged = np.asarray(ends["is_merged"].to_numpy())
    last, base = (
        _found(read_key, times, of[: ends.num_rows], integers(ends[name]), is_merged) for name in ("last_at", "base_at")
    )
    used = np.unique(np.concatenate([last[last >= 0], base[base >= 0]]))
    some = read.take(pa.array(order[used]))
    histograms = Histograms.of(some["hist_zero_count"], some["hist_offset"], some["hist_counts"])
    has_counts = np.asarray(some["hist_counts"].is_valid().to_numpy())
    check_histograms(histograms, has_counts, some["finish_count"], some["file"])
    last, base = (np.where(row >= 0, np.searchsorted(used, row), -1) for row in (last, base))
    column = histograms.rows(last).minus(histograms.rows(base)).column()
    columns = {name: ends[name] for name in ACTIVITY.names if name != "histogram"}
    return pa.table({**columns, "histogram": column}, schema=ACTIVITY)


def _first_by_count(read: pa.Table, key: Integers) -> Integers:
    """Return the rows in the order of their keys, once each. If two readings have the same time, ends.py uses the one
    with the lower counters."""
    columns = [integers(read[name]) for name in ("hist_offset", "hist_zero_count", "finish_count")]
    order = np.lexsort((*columns, key))
    return order[Runs(key[order]).is_first]


def _found(key: Integers, times: Integers, of: Integers, at: Integers, is_merged: Any) -> Integers:
    """Return for each end the number of its key, -1 if it has none."""
    if not len(key):
        return np.full(len(of), -1)
    place = np.minimum(np.searchsorted(times, at), len(times) - 1)
    wanted = of * (len(times) + 1) + place
    row = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
    return np.where(is_merged & (times[place] == at) & (key[row] == wanted), row, -1)


def added_up(rows: pa.Table) -> pa.Table:
    """ACTIVITY -> ACTIVITY with one row per KEY."""
    rows, runs = _in_runs(rows, KEY)
    return as_table(_figures(rows, runs, KEY), ACTIVITY)


def over_nodes(rows: pa.Table) -> pa.Table:
    """ACTIVITY -> OVER_NODES: a row per window, topic and channel."""
    rows, runs = _in_runs(rows, OF_ALL_NODES)
    figures = _figures(rows, runs, OF_ALL_NODES)
    observed_s = floats(rows["observed_s"])
    longest = np.maximum.reduceat(observed_s, runs.starts) if runs.count else observed_s
    with np.errstate(divide="ignore", invalid="ignore"):
        for name in ("depth_area", "client_area"):
            mean = np.where(observed_s == 0, np.nan, floats(rows[name]) / observed_s)
            figures[name] = runs.total(mean) * longest
    histograms = Histograms.of_column(figures["histogram"])
    *indexes, highest = histograms.indexes_at([*PERMILLES.values(), 1000])
    figures |= {
        **{name: runs.sum(integers(rows[name])) for name in ("depth_max", "depth_last", "dead_last")},
        "out_count": np.where(figures["out_count"] == NULL, NULL, np.maximum(figures["out_count"], 0)),
        "observed_s": longest,
        # Each node has one row per group.
        "node_count": runs.lengths(),
        "merged_node_count": runs.count_of(np.asarray(rows["histogram"].is_valid().to_numpy())),
        "count": histograms.count(),
        "max_ms": upper_bounds_ms(highest),
        **{name: middles_ms(index) for name, index in zip(PERMILLES, indexes, strict=True)},
    }
    return as_table(figures, OVER_NODES)


def _in_runs(rows: pa.Table, key: Sequence[str]) -> tuple[pa.Table, Runs]:
    """Return the rows in the order of ``key``, then of nodes, and the runs of ``key``."""
    start, of = integers(rows["window_start"]), codes(rows, key[1:])
    order = np.lexsort((codes(rows, ["node"]), start, of))
    return rows.take(pa.array(order)), Runs(of[order], start[order])


def _figures(rows: pa.Table, runs: Runs, key: Sequence[str]) -> dict[str, Any]:
    last_at = integers(rows["last_at"])
    is_last = last_at == runs.highest(last_at)[runs.of]
    firsts = rows.select(key).take(pa.array(runs.starts))
    return {
        **{name: firsts[name] for name in key},
        **{name: runs.sum(integers(rows[name])) for name in SUMS},
        **{name: runs.total(floats(rows[name])) for name in AREAS},
        "depth_max": runs.highest(integers(rows["depth_max"])),
        # That of the last time; the highest if two rows have the same, so that it is the same in every run.
        **{name: runs.highest(np.where(is_last, integers(rows[name]), NULL)) for name in ("depth_last", "dead_last")},
        "oldest_max_ns": runs.highest(integers(rows["oldest_max_ns"])),
        "last_at": runs.highest(last_at),
        "carried_since": runs.lowest(integers(rows["carried_since"])),
        "histogram": pa.chunked_array([Histograms.of_column(rows["histogram"]).merged(runs).column()]),
    }
