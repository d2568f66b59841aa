"""Adds a report's main figure of the same window in an earlier period."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from nsqanalytics.tables import Earlier


def with_earlier(rows: DataFrame, earlier: DataFrame | None, columns: Earlier, shift: timedelta) -> DataFrame:
    """Rows -> the same with ``columns.before`` and ``columns.change_percent``.

    ``earlier`` are rows of the same report, ``shift`` earlier: a row is compared with the row of its topic and channel
    whose window began ``shift`` before its own. Both columns are null without such a row, and for ``earlier`` None; the
    change is also null if the earlier figure is 0.
    """
    if earlier is None:
        nothing = F.lit(None).cast("double")
        return rows.withColumns({columns.before: nothing, columns.change_percent: nothing})
    start = F.col("window_start") + F.make_dt_interval(secs=F.lit(shift.total_seconds()))
    there = earlier.select(
        start.alias("e_start"),
        F.col("topic").alias("e_topic"),
        F.coalesce("channel", F.lit("")).alias("e_channel"),
        F.col(columns.figure).cast("double").alias(columns.before),
    )
    is_same = (
        (F.col("window_start") == F.col("e_start"))
        & (F.col("topic") == F.col("e_topic"))
        & (F.coalesce("channel", F.lit("")) == F.col("e_channel"))
    )
    change = 100 * (F.col(columns.figure) - F.col(columns.before)) / F.nullif(columns.before, F.lit(0.0))
    joined = rows.join(there, is_same, "left").drop("e_start", "e_topic", "e_channel")
    return joined.withColumn(columns.change_percent, change)
