"""Histograms as Spark columns: structs ``(zero bigint, offset int, counts array<bigint>)``, dense from ``offset`` on.

They are subtracted, merged and read as whole arrays. One row per bucket would shuffle a hundred times as many rows for
the same result.
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
    """Return ``reading`` minus the earlier ``base``; all of ``reading`` if ``base`` is null or any bucket fell."""

    def at(histogram: str, index: Column) -> Column:
        return F.coalesce(F.get(f"{histogram}.counts", (index - F.col(f"{histogram}.offset")).cast("int")), F.lit(0))

    def end(histogram: str) -> Column:
        return F.col(f"{histogram}.offset") + F.size(f"{histogram}.counts")

    indexes = F.when(F.size(f"{reading}.counts") > 0, F.sequence(f"{reading}.offset", end(reading) - 1)).otherwise(
        F.expr("cast(array() as array<int>)")
    )
    less = F.struct(
        (F.col(f"{reading}.zero") - F.col(f"{base}.zero")).alias("zero"),
        F.col(f"{reading}.offset").alias("offset"),
        F.transform(indexes, lambda index: at(reading, index) - at(base, index)).alias("counts"),
    )
    fell = (F.col(f"{reading}.zero") < F.col(f"{base}.zero")) | (
        (F.size(f"{base}.counts") > 0)
        & (
            (F.col(f"{base}.offset") < F.col(f"{reading}.offset"))
            | (end(base) > end(reading))
            | F.exists(indexes, lambda index: at(reading, index) < at(base, index))
        )
    )
    return F.when(F.col(base).isNull() | fell, F.col(reading)).otherwise(less)


def merged(histograms: Column) -> Column:
    """Return the sum of an array of histograms; null for an empty array."""
    occupied = F.filter(histograms, lambda h: F.size(h["counts"]) > 0)
    offset = F.array_min(F.transform(occupied, lambda h: h["offset"]))
    end = F.array_max(F.transform(occupied, lambda h: h["offset"] + F.size(h["counts"])))
    zero = F.aggregate(histograms, F.lit(0).cast("bigint"), lambda total, h: total + h["zero"])

    def at(index: Column) -> Column:
        return F.aggregate(
            occupied,
            F.lit(0).cast("bigint"),
            lambda total, h: total + F.coalesce(F.get(h["counts"], (index - h["offset"]).cast("int")), F.lit(0)),
        )

    summed = F.struct(
        zero.alias("zero"),
        F.coalesce(offset, F.lit(0)).alias("offset"),
        F.when(F.size(occupied) > 0, F.transform(F.sequence(offset, end - 1), at))
        .otherwise(F.expr("cast(array() as array<bigint>)"))
        .alias("counts"),
    )
    return (
        F.when(F.size(histograms) == 0, F.expr(f"cast(null as {HISTOGRAM})"))
        .when(F.size(histograms) == 1, F.get(histograms, F.lit(0)))
        .otherwise(summed)
    )


def count(histogram: str) -> Column:
    """Return the number of values in a histogram; 0 for null."""
    held = F.aggregate(f"{histogram}.counts", F.lit(0).cast("bigint"), lambda total, n: total + n)
    return F.coalesce(F.col(f"{histogram}.zero") + held, F.lit(0).cast("bigint"))


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
    rank = "{total} div 1000 * {permille} + ({total} % 1000 * {permille} + 999) div 1000"
    at = [_index_of(histogram, F.expr(rank.format(total=total, permille=permille))) for permille in permilles]
    found = F.struct(
        *(index.alias(f"i{n}") for n, index in enumerate(at)), _index_of(histogram, F.col(total)).alias("highest")
    )
    return F.when(F.col(total) > 0, found)


def _index_of(histogram: str, rank: Column) -> Column:
    """Return the bucket index of the value with that rank.

    The state of the walk is one number. Its upper bits are the rest of the rank; its lower eleven are ``_STEPS`` minus
    the number of buckets passed. A struct would cost ten times as much, because Spark creates a new one
    with boxed fields for each bucket. One number holds ranks below 2^50; higher ranks use a struct.
    """
    zero = F.col(f"{histogram}.zero")
    walked = F.aggregate(
        F.col(f"{histogram}.counts"),
        F.shiftleft(rank - zero, _STEP_BITS).bitwiseOR(F.lit(_STEPS)),
        # One subtraction lowers both parts. Shifts, unlike Spark's products, have no check for overflow.
        lambda left, n: F.when(left > _STEPS, left - F.shiftleft(n, _STEP_BITS).bitwiseOR(F.lit(1))).otherwise(left),
    )
    quickly = F.lit(_STEPS) - walked.bitwiseAND(F.lit(_STEPS)).cast("int")
    far = F.aggregate(
        F.col(f"{histogram}.counts"),
        F.struct((rank - zero).alias("left"), F.lit(0).alias("passed")),
        lambda so_far, n: F.when(
            so_far["left"] > 0, F.struct((so_far["left"] - n).alias("left"), (so_far["passed"] + 1).alias("passed"))
        ).otherwise(so_far),
    )["passed"]
    passed = F.when(rank - zero < _HIGHEST_RANK, quickly).otherwise(far)
    return F.when(zero >= rank, F.lit(ZERO_BUCKET)).otherwise(F.col(f"{histogram}.offset") + passed - 1)


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
