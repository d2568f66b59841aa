"""A latency result as a heat map: the number of messages by time and by latency, from the rows' histograms.

The counts are exact, and so are their sums over windows. A band of latencies is a whole number of the histograms'
buckets, so that no bucket is divided.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from nsqanalytics.parameters import BadParameter
from nsqanalytics.results import Result, Selection
from nsqanalytics.series import in_points
from nsqwire.histogram import BUCKETS_PER_OCTAVE

BANDS_PER_OCTAVE = 2
MAX_COLUMNS = 500
_BUCKETS_PER_BAND = BUCKETS_PER_OCTAVE // BANDS_PER_OCTAVE


@dataclass(frozen=True, order=True)
class Cell:
    """The number of messages of a column, which begins ``at``, and of a band of latencies."""

    at: int
    band: int
    count: int


@dataclass(frozen=True)
class Heat:
    """``cells`` are ordered by time and latency; a band without messages has no cell.

    Times are in Unix milliseconds. A column begins at its time and is ``step_ms`` long, 0 with a single one; ``times``
    are those of all windows, also of idle ones. Band ``n`` has the latencies above ``bounds_ms[n]``, up to
    ``bounds_ms[n + 1]``. If messages took at most 1 µs, the lowest band begins at 0 and has only these.
    """

    step_ms: int
    bounds_ms: list[float]
    times: list[int]
    cells: list[Cell]


def heat(result: Result, selection: Selection, most: int = 120) -> Heat:
    """Return the selected rows as at most ``most`` columns of time.

    Raises BadParameter for ``most`` out of range, and for a result without histograms.
    """
    if not 1 <= most <= MAX_COLUMNS:
        raise BadParameter(f"{most} is not between 1 and {MAX_COLUMNS}", "points")
    if result.time is None or "histogram" not in result.dataset.schema.names:
        raise BadParameter("the rows of this result have no histograms")
    table = result.dataset.to_table(columns=[result.time, "histogram"], filter=result.matching(selection))
    step_s, points = in_points(table[result.time], most)
    histograms = table["histogram"].combine_chunks()
    summed = _summed(points.combine_chunks(), histograms)
    lowest, highest = min((band for _, band, _ in summed), default=0), max((band for _, band, _ in summed), default=-1)
    cells = [Cell(time, band - lowest, messages) for time, band, messages in summed]
    bounds = [2.0 ** (band / BANDS_PER_OCTAVE) / 1e6 for band in range(lowest, highest + 2)] if summed else []
    if zeros := _zeros(points, histograms):
        raised = [replace(cell, band=cell.band + 1) for cell in cells]
        cells = sorted([Cell(time, 0, messages) for time, messages in zeros] + raised)
        bounds = [0.0, *(bounds or [0.001])]
    return Heat(step_s * 1000, bounds, sorted(pc.unique(points).to_pylist()), cells)


def _summed(times: pa.Array, histograms: pa.StructArray) -> list[tuple[int, int, int]]:
    """Return the messages of each time and band: time, band, number; only numbers above 0."""
    counts, offsets = pc.struct_field(histograms, "counts"), pc.struct_field(histograms, "offset")
    rows = pc.list_parent_indices(counts)
    starts = pc.subtract(counts.offsets.slice(0, len(counts)), counts.offsets[0])
    numbers = pa.array(range(len(rows)), pa.int64())
    buckets = pc.add(pc.subtract(numbers, starts.take(rows).cast(pa.int64())), offsets.take(rows))
    table = pa.table(
        {"time": times.take(rows), "band": pc.divide(buckets, _BUCKETS_PER_BAND), "count": pc.list_flatten(counts)}
    )
    summed = table.filter(pc.greater(table["count"], 0)).group_by(["time", "band"]).aggregate([("count", "sum")])
    summed = summed.sort_by([("time", "ascending"), ("band", "ascending")])
    return list(zip(*(summed[name].to_pylist() for name in ("time", "band", "count_sum")), strict=True))


def _zeros(times: pa.ChunkedArray, histograms: pa.StructArray) -> list[tuple[int, int]]:
    """Return the messages of at most 1 µs by time, oldest first; only numbers above 0."""
    summed = (
        pa.table({"time": times, "zero": pc.struct_field(histograms, "zero")})
        .group_by("time")
        .aggregate([("zero", "sum")])
    )
    found = zip(summed["time"].to_pylist(), summed["zero_sum"].to_pylist(), strict=True)
    return sorted((time, zero) for time, zero in found if zero)
