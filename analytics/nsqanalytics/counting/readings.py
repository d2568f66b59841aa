"""The readings of many series, each figure as an array of 64-bit integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nsqanalytics.counting.columns import NULL, Flags, Integers, codes, integers
from nsqanalytics.counting.runs import Runs

SERIES = ("node", "boot_id", "topic", "channel")
LATER_COUNTERS = ("died_count", "dropped_count")
"""Counters that older archives lack: null there, and for topics."""
COUNTERS = (
    *("message_count", "message_bytes", "done_count", "finish_count", "requeue_count", "timeout_count"),
    *LATER_COUNTERS,
)
SUMMED = ("message_count", "finish_count", "requeue_count", "timeout_count")
"""The counters that all archives have. ``counter_sum`` is their sum, which grows with each of them."""
HIGHEST_COUNT = 10**18
"""Largest valid count. Sums of four such counts fit into 64 bits."""
_ORDER = ("taken_at", "counter_sum", "uptime_ns", "depth", "client_count")
FIGURES = (*_ORDER, "started_at", "oldest_unfinished_age_ns", "dead_count", *COUNTERS)
PACKED = pa.schema([*((name, pa.string()) for name in SERIES), ("lacks_count", pa.bool_()), ("readings", pa.binary())])
"""Some readings of one series: ``readings`` has FIGURES one after another, each with a value of 64 bits per reading.
Spark moves and sorts one such row in place of many. ``lacks_count``: a reading has a histogram and no ``finish_count``,
because it is older than that column."""
READINGS_IN_ROW = 250
"""Spark counts rows, not bytes, when it passes rows to Python: 1,000 such rows are at most 32 MB."""


@dataclass(frozen=True)
class Readings:
    """Readings sorted by series, then by time.

    ``series`` has a row for each series, ``of`` is the row of each reading's series. ``values`` has a row for each of
    FIGURES and a column for each reading. ``lacks_count`` is true for series of which a reading has a histogram and no
    ``finish_count``.
    """

    series: pa.Table
    of: Integers
    values: Integers
    lacks_count: Flags

    def __getitem__(self, figure: str) -> Integers:
        found: Integers = self.values[FIGURES.index(figure)]
        return found

    @property
    def count(self) -> int:
        """The number of readings."""
        return len(self.of)

    def only(self, rows: Integers | Flags) -> Readings:
        """Return these readings, of the same series."""
        return Readings(self.series, self.of[rows], self.values[:, rows], self.lacks_count)

    @classmethod
    def of_samples(cls, table: pa.Table) -> Readings:
        """Return those of SAMPLE rows, in which ``channel`` is empty for a topic, not null.

        ``done_count`` is ``finish_count``; without it, the messages that were received and are finished or were
        emptied. A Go node does not read both numbers at one instant, so this may fall by some messages. It is negative
        after a restart with a backlog.
        """
        is_channel = pc.not_equal(table["channel"], "").to_numpy()
        given = {name: integers(table[name]) for name in FIGURES if name not in ("counter_sum", "done_count")}
        finish_count = given["finish_count"]
        for name in ("dead_count", *LATER_COUNTERS):
            given[name] = np.where(is_channel, given[name], NULL)
        unfinished = sum(integers(table[name]) for name in ("depth", "in_flight_count", "deferred_count"))
        left = np.where(is_channel, given["message_count"] - unfinished, NULL)
        given["done_count"] = np.where(finish_count == NULL, left, finish_count)
        # Counts of readings that are only compared with are not checked: null becomes 0, the lowest valid count.
        given["counter_sum"] = np.sum([np.clip(given[name], 0, HIGHEST_COUNT) for name in SUMMED], axis=0)
        lacking = (finish_count == NULL) & table["hist_offset"].is_valid().to_numpy()
        of = codes(table, SERIES)
        first_rows = np.unique(of, return_index=True)[1]
        lacks_count = np.zeros(len(first_rows), bool)
        lacks_count[of[lacking]] = True
        series = table.select(SERIES).take(pa.array(first_rows))
        return _sorted(series, of, np.stack([given[name] for name in FIGURES]), lacks_count)

    @classmethod
    def of_packed(cls, table: pa.Table) -> Readings:
        """Return those of PACKED rows, which are together for each series."""
        parts = [np.frombuffer(blob, np.int64).reshape(len(FIGURES), -1) for blob in _blobs(table["readings"])]
        row_codes = codes(table, SERIES)
        first_rows = np.unique(row_codes, return_index=True)[1]
        of = np.repeat(row_codes, [part.shape[1] for part in parts])
        lacks_count = np.zeros(len(first_rows), bool)
        lacks_count[row_codes[table["lacks_count"].to_numpy()]] = True
        values = np.concatenate(parts, axis=1) if parts else np.empty((len(FIGURES), 0), np.int64)
        return _sorted(table.select(SERIES).take(pa.array(first_rows)), of, values, lacks_count)

    def packed(self) -> pa.Table:
        """Return PACKED rows, each with at most READINGS_IN_ROW readings of a series."""
        series = Runs(self.of)
        rows = Runs(self.of, (np.arange(self.count) - series.starts[series.of]) // READINGS_IN_ROW)
        of = self.of[rows.starts]
        blobs = [self.values[:, start : end + 1].tobytes() for start, end in zip(rows.starts, rows.ends, strict=True)]
        names = self.series.select(SERIES).take(pa.array(of))
        columns = [*names.columns, pa.array(self.lacks_count[of]), pa.array(blobs, pa.binary())]
        return pa.table(columns, schema=PACKED)


def _blobs(column: pa.ChunkedArray) -> Sequence[memoryview]:
    return [blob.as_buffer() for blob in column]


def _sorted(series: pa.Table, of: Integers, values: Integers, lacks_count: Flags) -> Readings:
    """Return the readings in the one order that every step uses.

    The first of several readings with the same time is used. Two may differ in nothing but their uptime, or their
    gauges: without these in the order, a report run again could use the other one.
    """
    keys = [values[FIGURES.index(name)] for name in reversed(_ORDER)]
    order = np.lexsort((keys[-1], of))
    at, there = keys[-1][order], of[order]
    if ((at[1:] == at[:-1]) & (there[1:] == there[:-1])).any():
        order = np.lexsort((*keys, of))
    return Readings(series, of[order], values[:, order], lacks_count)
