"""Histograms of many rows, subtracted, merged and read as whole arrays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from nsqanalytics.counting.columns import NULL, Flags, Floats, Integers, integers
from nsqanalytics.counting.runs import Runs
from nsqanalytics.counting.sums import exact, may_wrap, sums_at
from nsqwire.histogram import BUCKETS_PER_OCTAVE, MAX_BUCKETS, ZERO_THRESHOLD_NS, midpoint

TYPE = pa.struct([("zero", pa.int64()), ("offset", pa.int32()), ("counts", pa.list_(pa.int64()))])
ZERO_BUCKET = -1
"""Index that stands for ``zero``. The indexes of buckets begin at 318."""


@dataclass(frozen=True)
class Histograms:
    """A histogram per row: ``zero`` values of at most 1 µs, and counts of the buckets from ``offset`` on.

    The counts of row ``n`` are ``counts[bounds[n]:bounds[n + 1]]``. Rows for which ``is_there`` is false have none.
    """

    is_there: Flags
    zero: Integers
    offset: Integers
    counts: Integers
    bounds: Integers

    @classmethod
    def of(cls, zero: pa.ChunkedArray, offset: pa.ChunkedArray, counts: pa.ChunkedArray) -> Histograms:
        """Return those of three columns; a row is there if its ``zero`` and ``counts`` are."""
        lists = counts.combine_chunks().cast(pa.list_(pa.int64()))
        zeros, offsets = integers(zero), integers(offset)
        is_there = (zeros != NULL) & lists.is_valid().to_numpy(zero_copy_only=False)
        lengths = np.where(is_there, integers(lists.value_lengths()), 0)
        bounds = np.concatenate([[0], np.cumsum(lengths)])
        values = integers(lists.flatten())
        if len(values) != bounds[-1]:  # a row without ``zero`` that has counts
            starts = np.concatenate([[0], np.cumsum(np.maximum(integers(lists.value_lengths()), 0))])[:-1]
            values = values[_ranges(starts, lengths)]
        return cls(is_there, np.where(is_there, zeros, 0), np.where(offsets == NULL, 0, offsets), values, bounds)

    @classmethod
    def of_column(cls, column: pa.ChunkedArray) -> Histograms:
        """Return those of a column of structs."""
        parts = [pa.chunked_array([c.field(n) for c in column.chunks], TYPE.field(n).type) for n in range(3)]
        is_there = pa.chunked_array([c.is_valid() for c in column.chunks], pa.bool_()).to_numpy()
        zero = pa.array(np.where(is_there, integers(parts[0]), NULL), mask=~is_there)
        return cls.of(pa.chunked_array([zero]), parts[1], parts[2])

    def column(self) -> pa.Array:
        """Return them as a column of structs."""
        lists = pa.ListArray.from_arrays(pa.array(self.bounds, pa.int32()), pa.array(self.counts, pa.int64()))
        fields = [pa.array(self.zero), pa.array(self.offset, pa.int32()), lists]
        return pa.StructArray.from_arrays(fields, fields=list(TYPE), mask=pa.array(~self.is_there))

    def __len__(self) -> int:
        return len(self.zero)

    @property
    def lengths(self) -> Integers:
        """The number of buckets of each."""
        return np.diff(self.bounds)

    @property
    def of_bucket(self) -> Integers:
        """The row of each of ``counts``."""
        return np.repeat(np.arange(len(self)), self.lengths)

    def _index(self) -> Integers:
        """Return the bucket's index of each of ``counts``."""
        return np.arange(len(self.counts)) + np.repeat(self.offset - self.bounds[:-1], self.lengths)

    def rows(self, rows: Integers) -> Histograms:
        """Return those of the rows; none for a row of -1."""
        is_there = rows >= 0
        at = np.where(is_there, rows, 0)
        if not len(self):
            return _none(len(rows))
        is_there = is_there & self.is_there[at]
        lengths = np.where(is_there, self.lengths[at], 0)
        values = self.counts[_ranges(self.bounds[at], lengths)]
        return Histograms(
            is_there,
            np.where(is_there, self.zero[at], 0),
            np.where(is_there, self.offset[at], 0),
            values,
            np.concatenate([[0], np.cumsum(lengths)]),
        )

    def minus(self, base: Histograms) -> Histograms:
        """Return the histograms minus the earlier ``base``; all of one whose base is not there, or in which any bucket
        fell."""
        rows, place = base.of_bucket, base._index() - np.repeat(self.offset, base.lengths)
        is_within = (place >= 0) & (place < self.lengths[rows])
        fell = ~base.is_there | (self.zero < base.zero)
        fell[rows[~is_within]] = True
        less = self.counts.copy()
        less[(self.bounds[:-1][rows] + place)[is_within]] -= base.counts[is_within]
        of = self.of_bucket
        fell[of[less < 0]] = True
        return Histograms(
            self.is_there,
            np.where(fell, self.zero, self.zero - base.zero),
            self.offset,
            np.where(fell[of], self.counts, less),
            self.bounds,
        )

    def merged(self, runs: Runs) -> Histograms:
        """Return the sum of each run's histograms; none for a run without any. Raises TooLarge."""
        is_alone = runs.count_of(self.is_there) == 1
        is_occupied = self.lengths > 0
        offset = runs.lowest(np.where(is_occupied, self.offset, NULL))
        end = runs.highest(np.where(is_occupied, self.offset + self.lengths, NULL))
        lengths = np.where(end == NULL, 0, end - offset)
        # The offset of an empty histogram is kept.
        own = runs.highest(np.where(self.is_there, self.offset, NULL))
        offset = np.where(offset == NULL, np.where(is_alone, own, 0), offset)
        bounds = np.concatenate([[0], np.cumsum(lengths)])
        run = runs.of[self.of_bucket]
        counts = np.zeros(bounds[-1], np.int64)
        place = bounds[:-1][run] + self._index() - offset[run]
        np.add.at(counts, place, self.counts)
        if may_wrap(self.counts):
            counts = exact(counts, sums_at(place, self.counts, len(counts)))
        return Histograms(runs.any(self.is_there), runs.sum(self.zero), offset, counts, bounds)

    def count(self) -> Integers:
        """Return the number of values of each; 0 for none. Raises TooLarge."""
        totals: Integers = self.zero + self._so_far()[1]
        return exact(totals, self.rough_count()) if may_wrap(np.append(self.counts, self.zero)) else totals

    def rough_count(self) -> Floats:
        """Return the number of values of each in floating point, which never wraps around."""
        return self.zero + sums_at(self.of_bucket, self.counts, len(self))

    def _so_far(self) -> tuple[Integers, Integers]:
        """Return for each of ``counts`` the sum up to it within its histogram, and the sum of each histogram.

        The sum over all rows may exceed 64 bits. Differences of wrapped sums are right nevertheless.
        """
        with np.errstate(over="ignore"):
            running = np.concatenate([[0], np.cumsum(self.counts)])
            return running[1:] - running[self.bounds[:-1]][self.of_bucket], np.diff(running[self.bounds])

    def indexes_at(self, permilles: Iterable[int]) -> list[Integers]:
        """Return for each permille the index of the bucket of the value of rank ``ceil(q · count)`` of each histogram;
        ZERO_BUCKET for a value in ``zero``, NULL for a histogram without values.

        Ranks are computed in integers: in floating point, 0.07 · 100 is more than 7, which would select the eighth
        value.
        """
        so_far, totals = self._so_far()
        count, of = self.zero + totals, self.of_bucket
        found = []
        for permille in permilles:
            # In two parts, because a thousand times a count may not fit into 64 bits.
            rank = count // 1000 * permille + (count % 1000 * permille + 999) // 1000
            passed = np.bincount(of[so_far < (rank - self.zero)[of]], minlength=len(self))
            index = np.where(self.zero >= rank, ZERO_BUCKET, self.offset + passed)
            found.append(np.where(count > 0, index, NULL))
        return found


def _none(count: int) -> Histograms:
    zeros = np.zeros(count, np.int64)
    return Histograms(np.zeros(count, bool), zeros, zeros, np.zeros(0, np.int64), np.zeros(count + 1, np.int64))


def _ranges(starts: Integers, lengths: Integers) -> Integers:
    """Return the numbers of all ranges, one after another."""
    ends = np.cumsum(lengths)
    found: Integers = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - lengths), lengths)
    return found


def middles_ms(index: Integers) -> Floats:
    """Return the value that represents each bucket: within 1.09 % of every value in it. NaN for NULL."""
    return _looked_up(index, _MIDDLES_MS, 0.0)


def upper_bounds_ms(index: Integers) -> Floats:
    """Return the upper bound of each bucket, in milliseconds. NaN for NULL."""
    return _looked_up(index, _BOUNDS_MS, ZERO_THRESHOLD_NS / 1e6)


_MIDDLES_MS = np.array([midpoint(index) for index in range(MAX_BUCKETS)]) / 1e6
_BOUNDS_MS = 2.0 ** ((np.arange(MAX_BUCKETS) + 1) / BUCKETS_PER_OCTAVE) / 1e6


def _looked_up(index: Integers, values: Floats, zero: float) -> Floats:
    found = values[np.maximum(index, 0)]
    return np.where(index == NULL, np.nan, np.where(index == ZERO_BUCKET, zero, found))
