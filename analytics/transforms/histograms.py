"""Histograms as Spark columns: structs ``(zero bigint, offset int, counts array<bigint>)``, dense from ``offset`` on.

They are differenced, merged and read as whole arrays. Exploding them to a row per bucket costs a shuffle of every
bucket: a hundred times the rows for the same answer.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column
from pyspark.sql import functions as F

from nsqwire.histogram import BUCKETS_PER_OCTAVE, ZERO_THRESHOLD_NS

HISTOGRAM = "struct<zero: bigint, offset: int, counts: array<bigint>>"
ZERO_BUCKET = -1
"""Stands for ``zero`` among bucket indexes; real ones begin at 318."""


def difference(reading: str, base: str) -> Column:
    """``reading`` less ``base``, an earlier one or null; all of ``reading`` if any bucket fell."""

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
    """The sum of an array of them, in whatever order; null of none."""
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
    """How many values it holds; 0 for null."""
    held = F.aggregate(f"{histogram}.counts", F.lit(0).cast("bigint"), lambda total, n: total + n)
    return F.coalesce(F.col(f"{histogram}.zero") + held, F.lit(0).cast("bigint"))


def indexes_at(histogram: str, total: str, permilles: Iterable[int]) -> Column:
    """A struct of buckets: ``i0``, ``i1``, … of the value of rank ``ceil(q · total)`` for each permille, ZERO_BUCKET
    for the zeros, and ``highest``; null where ``total`` is 0. One walk over the counts.

    Ranks are whole numbers: in floating point, 0.07 · 100 is more than 7 and would ask for the eighth value.
    """
    wanted = list(permilles)
    ranks = [F.expr(f"({total} * {permille} + 999) div 1000") for permille in wanted]
    zero = F.col(f"{histogram}.zero")
    walk = F.aggregate(
        F.col(f"{histogram}.counts"),
        F.struct(
            zero.alias("reached"),
            F.col(f"{histogram}.offset").alias("next"),
            *(F.when(zero >= rank, F.lit(ZERO_BUCKET)).alias(f"i{n}") for n, rank in enumerate(ranks)),
            F.when(zero > 0, F.lit(ZERO_BUCKET)).alias("highest"),
        ),
        lambda walked, n: F.struct(
            (walked["reached"] + n).alias("reached"),
            (walked["next"] + 1).alias("next"),
            *(
                F.coalesce(walked[f"i{k}"], F.when(walked["reached"] + n >= rank, walked["next"])).alias(f"i{k}")
                for k, rank in enumerate(ranks)
            ),
            F.when(n > 0, walked["next"]).otherwise(walked["highest"]).alias("highest"),
        ),
    )
    return F.when(F.col(total) > 0, walk)


def middle_ms(index: Column) -> Column:
    """The value that stands for a bucket: within 1.09 % of every value in it."""
    low, high = _bound_ns(index), _bound_ns(index + 1)
    return F.when(index == ZERO_BUCKET, 0.0).otherwise(2 * low * high / (low + high) / 1e6)


def upper_bound_ms(index: Column) -> Column:
    zero = F.lit(ZERO_THRESHOLD_NS / 1e6)
    return F.when(index == ZERO_BUCKET, zero).otherwise(_bound_ns(index + 1) / 1e6)


def _bound_ns(index: Column) -> Column:
    return F.pow(F.lit(2.0), index / BUCKETS_PER_OCTAVE)
