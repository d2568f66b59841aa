"""Checks readings. An invalid reading fails the report, with the name of its file, instead of causing wrong figures.

The checks are part of a column that every figure needs, so they need no extra pass. Histograms are checked when they
are read.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from nsqanalytics.hourly_files import FILE
from nsqanalytics.transforms.readings import LATER_COUNTERS
from nsqwire.histogram import MAX_BUCKETS

HIGHEST_COUNT = 10**18
"""Largest valid count. Sums of four such counts fit into 64 bits."""
PREFIX = "a reading is invalid"
_COUNTERS = ("message_count", "message_bytes", "requeue_count", "timeout_count")
_NAMES = ("node", "boot_id", "topic", "taken_at")
_GAUGES = ("depth", "in_flight_count", "deferred_count", "client_count")


def checked(samples: DataFrame) -> DataFrame:
    """Return the same rows.

    For an invalid row, computing ``message_count`` raises an error with the name of its file.
    """
    problems = [
        *(F.when(F.col(name).isNull(), F.lit(f"{name} is missing")) for name in (*_NAMES, *_COUNTERS, *_GAUGES)),
        *(_unless_count(name) for name in (*_COUNTERS, *LATER_COUNTERS, "finish_count", "hist_zero_count")),
        *(
            F.when(
                F.col(name).isNull() & (F.col("finish_count").isNotNull() | F.col(other).isNotNull()),
                F.lit(f"{name} is missing"),
            )
            for name, other in (("hist_zero_count", "hist_offset"), ("hist_offset", "hist_zero_count"))
        ),
    ]
    if {"date", "hour"} <= set(samples.columns):
        problems.append(F.when(~is_in_own_hour(), F.lit("taken_at is not in the hour of its folder")))
    return samples.withColumn("message_count", _or_error(F.col("message_count"), problems, file_of(samples)))


def file_of(samples: DataFrame) -> Column:
    """Return the URI of the file of the archive that a row is from."""
    return F.col(FILE) if FILE in samples.columns else F.input_file_name()


def is_in_own_hour() -> Column:
    """Whether a reading's time lies in the hour of its file's folder."""
    is_own = (F.to_date("taken_at") == F.col("date")) & (F.hour("taken_at") == F.col("hour"))
    return F.coalesce(is_own, F.lit(False))


def checked_histogram(histogram: Column, file: Column) -> Column:
    """Return ``histogram``, a struct of ``finish_count``, ``zero``, ``offset`` and ``counts``, unchanged. Computing it
    raises an error with ``file`` if it is invalid."""
    counts, offset = histogram["counts"], histogram["offset"]
    counted = F.aggregate(counts, F.lit(0).cast("bigint"), lambda total, n: total + n)
    is_count = F.forall(counts, lambda n: F.coalesce(n.between(0, HIGHEST_COUNT), F.lit(False)))
    problems = [
        F.when(~is_count, F.lit(f"hist_counts has a count that is not between 0 and {HIGHEST_COUNT}")),
        F.when(
            ~F.coalesce((offset >= 0) & (offset + F.size(counts) <= MAX_BUCKETS), F.lit(False)),
            F.lit(f"hist_offset and hist_counts are not buckets of 0 to {MAX_BUCKETS}"),
        ),
        F.when(
            is_count & (histogram["zero"] + counted != histogram["finish_count"]),
            F.lit("finish_count is not the total of its histogram"),
        ),
    ]
    return _or_error(histogram, problems, file)


def _unless_count(name: str) -> Column:
    is_count = F.col(name).between(0, HIGHEST_COUNT)
    reason = F.concat(F.lit(f"{name} is "), F.col(name).cast("string"), F.lit(f", not between 0 and {HIGHEST_COUNT}"))
    return F.when(~is_count, reason)


def _or_error(value: Column, problems: list[Column], file: Column) -> Column:
    reason = F.coalesce(*problems)
    text = F.concat(F.lit(f"{PREFIX}: "), reason, F.lit(": "), file)
    return F.when(reason.isNull(), value).otherwise(F.raise_error(text))
