"""Latency percentiles of the last minute, from cumulative histograms.

The counts are arrays over all channels. The difference of a node's last two responses is added to each channel's total
over the nodes, and subtracted when it is a minute old. Percentiles are computed again only for channels whose total
changed, so the cost depends on the finished messages and not on the number of channels.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from nsqplatform.cluster.readings.histograms import Histograms
from nsqplatform.cluster.readings.reading import QUANTILES
from nsqplatform.cluster.readings.stats import PolledStats
from nsqwire.histogram import MAX_BUCKETS, midpoint
from nsqwire.units import Seconds

WINDOW_S = 60.0
SLOT_S = 5.0
"""Length of a slot. Counts leave the window by slots, so the window is up to this much shorter than a minute."""

Ints: TypeAlias = NDArray[np.int64]
Key: TypeAlias = tuple[str, str]

# A cell is a channel's row and a column in it: 0 counts as zero, 1 + i is bucket i.
COLUMN_BITS = 11
COLUMNS = 1 << COLUMN_BITS
assert COLUMNS > MAX_BUCKETS + 1
VALUES_MS = np.array([0.0, *(midpoint(index) / 1e6 for index in range(COLUMNS - 1))])
ROWS_AT_ONCE = 512


@dataclass(slots=True)
class _Slot:
    """A node's finished messages of SLOT_S seconds from ``start``: cells, and the number of messages in each."""

    start: float
    cells: list[NDArray[np.int32]] = field(default_factory=list)
    counts: list[Ints] = field(default_factory=list)

    def close(self) -> None:
        """Merge duplicate cells."""
        if len(self.cells) > 1:
            cells, place = np.unique(np.concatenate(self.cells), return_inverse=True)
            counts = np.bincount(place, np.concatenate(self.counts), len(cells))
            self.cells, self.counts = [cells], [counts.astype(np.int64)]


@dataclass(slots=True)
class _Node:
    """A node's process and its last response: a count for each of ``cells``."""

    boot: str
    keys: Sequence[Key] = field(default_factory=list)
    rows: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    offsets: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    lengths: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    cells: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    counts: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    slots: deque[_Slot] = field(default_factory=deque)


class LatencyWindow:
    """Takes each node's readings; computes latencies over the last minute and all nodes. Times are arguments."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}
        self._boots: dict[str, str] = {}
        self._rows: dict[Key, int] = {}
        self._free: deque[tuple[float, int]] = deque()
        """Rows of removed channels, with the time of removal. Slots may refer to them for another minute."""
        self._total = np.zeros((256, COLUMNS), np.int64)
        self._read = np.full((256, len(QUANTILES)), np.nan)
        self._dirty = np.zeros(256, bool)
        self._first, self._last = COLUMNS, 0  # the range of used columns, without that of zero

    def observe(self, node: str, stats: PolledStats, now: Seconds) -> None:
        """Add a node's reading at ``now``, in seconds of a monotonic clock."""
        before = self._nodes.get(node)
        # After a node's restart, all its counts are new, so the base of the difference is empty. The same applies to a
        # channel that the last reading did not have. The counts of a node that was not known before may be old, so
        # its first reading is the base.
        met = node not in self._boots or (before is None and self._boots[node] == stats.boot)
        self._boots[node] = stats.boot
        if before is not None and before.boot != stats.boot:
            self.lose(node)
            before = None
        if before is None:
            before = self._nodes[node] = _Node(stats.boot)
            # Nodes close their slots at different polls, not all at once.
            before.slots.append(_Slot(now - len(self._nodes) % SLOT_S))
        cells, counts = self._read_answer(before, stats.histograms, now)
        if met:
            before.cells, before.counts = cells, counts
        finished = self._finished(before, cells, counts)
        before.cells, before.counts = cells, counts
        self._slide(before, now)
        some = np.flatnonzero(finished)
        if len(some):
            self._take(before.slots[-1], cells[some], finished[some])

    def lose(self, node: str) -> None:
        """Drop the counts of a node that is down."""
        lost = self._nodes.pop(node, None)
        for slot in lost.slots if lost else ():
            self._subtract(slot)

    def forget(self, node: str) -> None:
        """Drop a removed node."""
        self.lose(node)
        self._boots.pop(node, None)

    def compute_percentiles(self) -> None:
        """Compute the percentiles of the channels whose counts changed since the last call."""
        dirty = np.flatnonzero(self._dirty)
        for start in range(0, len(dirty), ROWS_AT_ONCE):
            rows = dirty[start : start + ROWS_AT_ONCE]
            zero = self._total[rows, 0]
            seen = np.cumsum(self._total[rows, self._first : self._last + 1], axis=1)
            everything = zero + (seen[:, -1] if seen.shape[1] else 0)
            for number, quantile in enumerate(QUANTILES):
                rank = np.maximum(1, np.ceil(quantile * everything)).astype(np.int64)
                column = self._first + (seen < (rank - zero)[:, None]).sum(axis=1)
                value = np.where(rank <= zero, 0.0, VALUES_MS[np.minimum(column, COLUMNS - 1)])
                self._read[rows, number] = np.where(everything > 0, np.round(value, 3), np.nan)
        self._dirty[dirty] = False

    def percentiles_ms(self, channels: Sequence[Key]) -> NDArray[np.float64]:
        """For each channel, the percentiles over all nodes at each of QUANTILES, in milliseconds, as of the last
        ``compute_percentiles``; NaN if nothing was finished."""
        rows = np.array([self._rows.get(key, -1) for key in channels], np.int64)
        found: NDArray[np.float64] = self._read[rows]
        found[rows < 0] = np.nan
        return found

    def _read_answer(self, node: _Node, reported: Histograms, now: Seconds) -> tuple[Ints, Ints]:
        """Cells and counts of a response: the zeros of each channel, then each channel's buckets. Unchanged cells are
        the same object as before."""
        counts = np.concatenate([reported.zeros, reported.counts])
        if reported.keys != node.keys:
            self._assign_rows(node, reported.keys, now)
        elif np.array_equal(reported.offsets, node.offsets) and np.array_equal(reported.lengths, node.lengths):
            return node.cells, counts
        node.offsets, node.lengths = reported.offsets, reported.lengths
        bases = (node.rows << COLUMN_BITS) + reported.offsets + 1 - (reported.ends - reported.lengths)
        cells = np.repeat(bases, reported.lengths) + np.arange(len(reported.counts))
        return np.concatenate([node.rows << COLUMN_BITS, cells]), counts

    def _assign_rows(self, node: _Node, keys: Sequence[Key], now: Seconds) -> None:
        """Assign a row to each channel; free the rows of channels that are on no node."""
        node.keys = keys
        held = {key for each in self._nodes.values() for key in each.keys}
        for key in [key for key in self._rows if key not in held]:
            row = self._rows.pop(key)
            self._read[row] = np.nan
            self._free.append((now, row))
        for key in keys:
            if key not in self._rows:
                self._rows[key] = self._new_row(now)
        node.rows = np.fromiter(map(self._rows.__getitem__, keys), np.int64, len(keys))

    def _new_row(self, now: Seconds) -> int:
        if self._free and now - self._free[0][0] > WINDOW_S + 2 * SLOT_S:
            return self._free.popleft()[1]
        row = len(self._rows) + len(self._free)
        if row >= len(self._total):
            self._total = np.concatenate([self._total, np.zeros_like(self._total)])
            self._read = np.concatenate([self._read, np.full_like(self._read, np.nan)])
            self._dirty = np.concatenate([self._dirty, np.zeros_like(self._dirty)])
        return row

    @staticmethod
    def _finished(before: _Node, cells: Ints, counts: Ints) -> Ints:
        """The messages finished since the node's last response, by cell; never negative."""
        lost: Ints = np.zeros(0, np.int64)  # the rows of cells that are missing in the response and had counts
        if cells is before.cells:
            finished = counts - before.counts
        else:
            order = np.argsort(before.cells)
            sorted_cells = before.cells[order]
            place = np.searchsorted(sorted_cells, cells)
            place[place == len(sorted_cells)] = 0
            base = np.zeros_like(counts)
            if len(sorted_cells):
                known = sorted_cells[place] == cells
                base[known] = before.counts[order][place[known]]
            gone = ~np.isin(before.cells, cells) & (before.counts > 0)
            lost = before.cells[gone] >> COLUMN_BITS
            finished = counts - base
        if not len(lost) and (not len(finished) or finished.min() >= 0):
            return finished
        # A count decreased: the channel was deleted and created again. With fewer messages than before, all are new;
        # otherwise, it is unknown which are new, and the response becomes the base.
        rows = cells >> COLUMN_BITS
        fell = np.union1d(rows[finished < 0], lost)
        size = int(max(rows.max(initial=0), (before.cells >> COLUMN_BITS).max(initial=0))) + 1
        fewer = np.bincount(rows, counts, size) < np.bincount(before.cells >> COLUMN_BITS, before.counts, size)
        return np.where(np.isin(rows, fell), np.where(fewer[rows], counts, 0), finished)

    def _slide(self, node: _Node, now: Seconds) -> None:
        """Begin a slot if one is due; drop slots that are older than the window."""
        if now - node.slots[-1].start >= SLOT_S:
            node.slots[-1].close()
            node.slots.append(_Slot(now))
        while now - node.slots[0].start > WINDOW_S:
            self._subtract(node.slots.popleft())

    def _take(self, slot: _Slot, cells: Ints, counts: Ints) -> None:
        slot.cells.append(cells.astype(np.int32))
        slot.counts.append(counts)
        np.add.at(self._total.reshape(-1), cells, counts)
        self._dirty[cells >> COLUMN_BITS] = True
        columns = cells & (COLUMNS - 1)
        columns = columns[columns > 0]
        self._first = min(self._first, int(columns.min(initial=COLUMNS)))
        self._last = max(self._last, int(columns.max(initial=0)))

    def _subtract(self, slot: _Slot) -> None:
        for cells, counts in zip(slot.cells, slot.counts, strict=True):
            np.subtract.at(self._total.reshape(-1), cells, counts)
            self._dirty[cells >> COLUMN_BITS] = True
