"""Histograms as Spark columns: structs ``(zero bigint, offset int, counts array<bigint>)``, dense from ``offset`` on.

They are subtracted, merged and read as whole arrays. One row per bucket would shuffle a hundred times as many rows for
the same result.

The expressions are SQL, which Spark parses at once. Built from columns, each part would be a call from Python to Java,
and all of them a tenth of the time of a small report.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column
from pyspark.sql import functions as F

from nsqwire.histogram import BUCKETS_PER_OCTAVE, MAX_BUCKETS, ZERO_THRESHOLD_NS, bucket_of

HISTOGRAM = "struct<zero: bigint, offset: int, counts: array<bigint>>"
ZERO_BUCKET = -1
"""Index that stands for ``zero``. The indexes of buckets begin at 318."""
_STEP_BITS = MAX_BUCKETS.bit_length()
_STEPS = (1 << _STEP_BITS) - 1
"""At least the number of buckets of a histogram; in binary, all ones."""


_HIGHEST_RANK = 1 << (61 - _STEP_BITS)
"""From this rank on, a rank or a bucket's count may not fit into one number together with the steps. A bucket has at
most twice the rank, because no percentile below the median is requested."""


def difference(reading: str, base: str) -> Column:
    """Return ``reading`` minus the earlier ``base``; all of ``reading`` if ``base`` is null or any bucket fell. Null if
    ``reading`` is."""

    def at(histogram: str, index: str) -> str:
        return f"coalesce(get({histogram}.counts, {index} - {histogram}.offset), 0L)"

    def end(histogram: str) -> str:
        return f"({histogram}.offset + size({histogram}.counts))"

    indexes = (
        f"if(size({reading}.counts) > 0, sequence({reading}.offset, {end(reading)} - 1), cast(array() as array<int>))"
    )
    fell = f"""
        {reading}.zero < {base}.zero or (
            size({base}.counts) > 0 and (
                {base}.offset < {reading}.offset
                or {end(base)} > {end(reading)}
                or exists({indexes}, i -> {at(reading, "i")} < {at(base, "i")})
            )
        )"""
    less = f"""
        named_struct(
            'zero', {reading}.zero - {base}.zero,
            'offset', {reading}.offset,
            'counts', transform({indexes}, i -> {at(reading, "i")} - {at(base, "i")})
        )"""
    return F.expr(f"if({reading} is null or {base} is null or {fell}, {reading}, {less})")


def merged(histograms: str) -> Column:
    """Return the sum of an array of histograms; null for an empty array."""
    occupied = f"filter({histograms}, h -> size(h.counts) > 0)"
    offset = f"array_min(transform({occupied}, h -> h.offset))"
    end = f"array_max(transform({occupied}, h -> h.offset + size(h.counts)))"
    at = f"aggregate({occupied}, 0L, (total, h) -> total + coalesce(get(h.counts, i - h.offset), 0L))"
    summed = f"""
        named_struct(
            'zero', aggregate({histograms}, 0L, (total, h) -> total + h.zero),
            'offset', coalesce({offset}, 0),
            'counts', if(
                size({occupied}) > 0,
                transform(sequence({offset}, {end} - 1), i -> {at}),
                cast(array() as array<bigint>)
            )
        )"""
    return F.expr(f"""
        case size({histograms})
            when 0 then cast(null as {HISTOGRAM})
            when 1 then get({histograms}, 0)
            else {summed}
        end""")


def count(histogram: str) -> Column:
    """Return the number of values in a histogram; 0 for null."""
    held = f"aggregate({histogram}.counts, 0L, (total, n) -> total + n)"
    return F.expr(f"coalesce({histogram}.zero + {held}, 0L)")


def count_within(histogram: str, limit_ns: int) -> Column:
    """Return the number of values up to a limit, which is the upper bound of a bucket or ZERO_THRESHOLD_NS; 0 for
    null."""
    zero = F.coalesce(F.col(f"{histogram}.zero"), F.lit(0).cast("bigint"))
    if limit_ns <= ZERO_THRESHOLD_NS:
        return zero
    length = F.greatest(F.lit(bucket_of(limit_ns) + 1) - F.col(f"{histogram}.offset"), F.lit(0))
    some = F.slice(F.col(f"{histogram}.counts"), F.lit(1), length)
    return zero + F.coalesce(F.aggregate(some, F.lit(0).cast("bigint"), lambda total, n: total + n), F.lit(0))


def indexes_at(histogram: str, total: str, permilles: Iterable[int]) -> Column:
    """Return a struct of bucket indexes: ``i0``, ``i1``, … of the value of rank ``ceil(q · total)`` for each permille,
    and ``highest``. The index is ZERO_BUCKET for a value in ``zero``. The struct is null if ``total`` is 0.

    Ranks are computed in integers: in floating point, 0.07 · 100 is more than 7, which would select the eighth value.
    """
    # In two parts, because a thousand times a total may not fit into 64 bits.
    ranks = [f"{total} div 1000 * {permille} + ({total} % 1000 * {permille} + 999) div 1000" for permille in permilles]
    at = [f"'i{n}', {_index_of(histogram, f'({rank})')}" for n, rank in enumerate(ranks)]
    found = f"named_struct({', '.join(at)}, 'highest', {_index_of(histogram, total)})"
    return F.expr(f"if({total} > 0, {found}, null)")


def _index_of(histogram: str, rank: str) -> str:
    """Return SQL for the bucket index of the value with that rank.

    The state of the walk is one number. Its upper bits are the rest of the rank; its lower eleven are ``_STEPS`` minus
    the number of buckets passed. A struct would cost ten times as much, because Spark creates a new one
    with boxed fields for each bucket. One number holds ranks below 2^50; higher ranks use a struct.
    """
    rest = f"({rank} - {histogram}.zero)"
    # One subtraction lowers both parts. Shifts, unlike Spark's products, have no check for overflow.
    walked = f"""
        aggregate(
            {histogram}.counts,
            shiftleft({rest}, {_STEP_BITS}) | {_STEPS}L,
            (left, n) -> if(left > {_STEPS}L, left - (shiftleft(n, {_STEP_BITS}) | 1L), left)
        )"""
    quickly = f"{_STEPS} - cast({walked} & {_STEPS}L as int)"
    far = f"""
        aggregate(
            {histogram}.counts,
            named_struct('left', {rest}, 'passed', 0),
            (so_far, n) -> if(
                so_far.left > 0L, named_struct('left', so_far.left - n, 'passed', so_far.passed + 1), so_far
            )
        ).passed"""
    passed = f"if({rest} < {_HIGHEST_RANK}L, {quickly}, {far})"
    return f"if({histogram}.zero >= {rank}, {ZERO_BUCKET}, {histogram}.offset + {passed} - 1)"


def middle_ms(index: Column) -> Column:
    """Return the value that represents a bucket: within 1.09 % of every value in it."""
    low, high = _bound_ns(index), _bound_ns(index + 1)
    return F.when(index == ZERO_BUCKET, 0.0).otherwise(2 * low * high / (low + high) / 1e6)


def upper_bound_ms(index: Column) -> Column:
    """Return the upper bound of a bucket, in milliseconds. ``index`` is the bucket's number."""
    zero = F.lit(ZERO_THRESHOLD_NS / 1e6)
    return F.when(index == ZERO_BUCKET, zero).otherwise(_bound_ns(index + 1) / 1e6)


def _bound_ns(index: Column) -> Column:
    return F.pow(F.lit(2.0), index / BUCKETS_PER_OCTAVE)
