"""Histograms as Spark columns: structs ``(zero bigint, offset int, counts array<bigint>)``."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from nsqwire.histogram import ZERO_THRESHOLD_NS, bucket_of

HISTOGRAM = "struct<zero: bigint, offset: int, counts: array<bigint>>"


def count_within(histogram: str, limit_ns: int) -> Column:
    """Return the number of values up to a limit, which is the upper bound of a bucket or ZERO_THRESHOLD_NS; 0 for
    null."""
    zero = F.coalesce(F.col(f"{histogram}.zero"), F.lit(0).cast("bigint"))
    if limit_ns <= ZERO_THRESHOLD_NS:
        return zero
    length = F.greatest(F.lit(bucket_of(limit_ns) + 1) - F.col(f"{histogram}.offset"), F.lit(0))
    some = F.slice(F.col(f"{histogram}.counts"), F.lit(1), length)
    return zero + F.coalesce(F.aggregate(some, F.lit(0).cast("bigint"), lambda total, n: total + n), F.lit(0))
