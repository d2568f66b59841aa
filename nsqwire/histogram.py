"""Latency histograms that can be merged across nodes and subtracted across time, exactly.

OpenTelemetry's exponential histogram over integer nanoseconds. All nodes use the same scale, so their buckets are the
same: bucket ``i`` counts values in ``(2^(i/32), 2^((i+1)/32)]``. A quantile is reported as its bucket's harmonic
midpoint, which is within ``(2^(1/32) - 1) / (2^(1/32) + 1)`` = 1.09 % of the exact value.
Source: OpenTelemetry metrics data model, "ExponentialHistogram", scale 5.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypedDict

SCALE = 5
BUCKETS_PER_OCTAVE = 1 << SCALE
ZERO_THRESHOLD_NS = 1_000
"""Values up to this are counted as zero: the clocks of two machines differ by more."""
MAX_BUCKETS = 63 * BUCKETS_PER_OCTAVE
RELATIVE_ERROR = (2 ** (1 / BUCKETS_PER_OCTAVE) - 1) / (2 ** (1 / BUCKETS_PER_OCTAVE) + 1)


def _upper_bounds() -> Iterator[int]:
    """Yield the largest integer in each bucket but the last: floor(2^((index+1)/32)), exactly."""
    roots = []
    for step in range(BUCKETS_PER_OCTAVE):
        root = 1 << (64 * BUCKETS_PER_OCTAVE + step)
        for _ in range(SCALE):  # five square roots, each rounded down, give the 32nd root rounded down
            root = math.isqrt(root)
        roots.append(root)  # floor(2^(64 + step/32)); a right shift gives the bound in each octave
    for index in range(MAX_BUCKETS - 1):
        octave, step = divmod(index + 1, BUCKETS_PER_OCTAVE)
        yield roots[step] >> (64 - octave)


UPPER_BOUNDS: tuple[int, ...] = (*_upper_bounds(), (1 << 63) - 1)
"""Largest value of each bucket in ns, inclusive; index 0 is bucket 0."""
FIRST_BUCKET = bisect_left(UPPER_BOUNDS, ZERO_THRESHOLD_NS + 1)
"""The lowest bucket ever used: lower ones are counted as zero."""


def bucket_of(value_ns: int) -> int:
    """Return the bucket index of a value above ZERO_THRESHOLD_NS, at most 2^63 - 1."""
    return bisect_left(UPPER_BOUNDS, value_ns)


def bound_of(value_ns: int) -> int:
    """The upper bound in ns of the bucket that contains a value: the smallest limit, not below the value, up to which
    the values of a histogram can be counted exactly. It is less than 2.2 % above a value above 1 µs."""
    if value_ns <= ZERO_THRESHOLD_NS:
        return ZERO_THRESHOLD_NS
    return UPPER_BOUNDS[bucket_of(min(value_ns, UPPER_BOUNDS[-1]))]


def midpoint(index: int) -> float:
    """The value in ns that is reported for bucket ``index``: ``2·lo·hi / (lo + hi)``."""
    low = 2 ** (index / BUCKETS_PER_OCTAVE)
    high = 2 ** ((index + 1) / BUCKETS_PER_OCTAVE)
    return 2 * low * high / (low + high)


class HistogramJSON(TypedDict):
    """The form in ``/stats`` and in the archive: ``counts[k]`` belongs to bucket ``offset + k``."""

    scale: int
    zero_count: int
    offset: int
    counts: list[int]


class Histogram:
    """Counts per bucket; ``counts`` is sparse, bucket index to count."""

    __slots__ = ("counts", "zero_count")

    def __init__(self, zero_count: int = 0, counts: Mapping[int, int] | None = None) -> None:
        self.zero_count = zero_count
        self.counts: dict[int, int] = dict(counts or {})

    def record(self, value_ns: int, times: int = 1) -> None:
        """Count a value. A negative value, which a clock set back can cause, counts as zero."""
        if value_ns <= ZERO_THRESHOLD_NS:
            self.zero_count += times
        else:
            index = bucket_of(value_ns)
            self.counts[index] = self.counts.get(index, 0) + times

    @property
    def count(self) -> int:
        """Number of recorded values."""
        return self.zero_count + sum(self.counts.values())

    def merge(self, other: Histogram) -> None:
        """Add another node's or another window's counts."""
        self.zero_count += other.zero_count
        for index, count in other.counts.items():
            self.counts[index] = self.counts.get(index, 0) + count

    def difference(self, earlier: Histogram) -> Histogram:
        """The values recorded since ``earlier``, an older reading of the same cumulative histogram.

        Raises ValueError if a count has decreased, which means that the counters restarted in between.
        """
        counts = {index: count - earlier.counts.get(index, 0) for index, count in self.counts.items()}
        lost = any(index not in self.counts for index, count in earlier.counts.items() if count)
        zero_count = self.zero_count - earlier.zero_count
        if lost or zero_count < 0 or any(count < 0 for count in counts.values()):
            raise ValueError("a count is lower than in the earlier histogram: the counters restarted in between")
        return Histogram(zero_count, {index: count for index, count in counts.items() if count})

    def quantiles(self, qs: Sequence[float]) -> list[float | None]:
        """The value in ns at each quantile of ``qs`` (0..1), or None for all if nothing was recorded.

        The value at q is that of rank ``ceil(q · count)``, at least 1; values counted as zero are reported as 0.
        """
        total = self.count
        if not total:
            return [None] * len(qs)
        result: list[float | None] = [None] * len(qs)
        order = sorted(range(len(qs)), key=lambda position: qs[position])
        buckets = iter(sorted(self.counts.items()))
        seen, value = self.zero_count, 0.0
        for position in order:
            rank = max(1, math.ceil(qs[position] * total))
            while seen < rank:
                index, count = next(buckets)
                seen += count
                value = midpoint(index)
            result[position] = value
        return result

    def quantile(self, q: float) -> float | None:
        """The value in ns at quantile ``q``; None if nothing was recorded."""
        return self.quantiles([q])[0]

    def to_json(self) -> HistogramJSON:
        """The dense form, from the lowest occupied bucket to the highest."""
        occupied = [index for index, count in self.counts.items() if count]
        if not occupied:
            return {"scale": SCALE, "zero_count": self.zero_count, "offset": 0, "counts": []}
        first, last = min(occupied), max(occupied)
        dense = [self.counts.get(index, 0) for index in range(first, last + 1)]
        return {"scale": SCALE, "zero_count": self.zero_count, "offset": first, "counts": dense}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Histogram:
        """Read the dense form. Raises ValueError with the reason, also if the scale is not SCALE."""
        try:
            scale, zero_count, offset, counts = data["scale"], data["zero_count"], data["offset"], data["counts"]
        except (KeyError, TypeError) as error:
            raise ValueError(f"histogram without {error}") from None
        if scale != SCALE:
            raise ValueError(f"histogram of scale {scale}, expected {SCALE}")
        return cls.from_dense(zero_count, offset, counts)

    @classmethod
    def from_dense(cls, zero_count: int, offset: int, counts: Iterable[int]) -> Histogram:
        """Build from ``counts`` that start at bucket ``offset``."""
        return cls(zero_count, {index: count for index, count in enumerate(counts, offset) if count})
