"""How often a target held: share of windows, error budget burnt, and the worst window, by day and over the period."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, GroupedData
from pyspark.sql import functions as F

from analytics import tables
from analytics.transforms.activity import over_nodes
from analytics.transforms.latency import with_percentiles


def objectives(
    rows: DataFrame, *, percentile: str, latency_ms: float | None, backlog: float | None, objective_percent: float
) -> DataFrame:
    """ACTIVITY -> OBJECTIVES rows: per UTC day and for the period, topic, channel and target that was given.

    ``percentile`` is a name of tables.PERMILLES. A window in which nothing was finished has no latency and counts in
    neither direction. The budget is the share of windows that may miss; burnt is what did miss of it, beyond 100 % too.
    """
    measured = with_percentiles(over_nodes(rows.where("channel <> ''")), minimum_count=1)
    targets = []
    if latency_ms is not None:
        targets.append(_target("latency", latency_ms, F.col(percentile), "ms"))
    if backlog is not None:
        targets.append(_target("backlog", backlog, F.col("depth_max").cast("double"), "messages"))
    windows = (
        measured.select("window_start", "topic", "channel", F.explode(F.array(*targets)).alias("of"))
        .select("window_start", "topic", "channel", "of.*")
        .where("value is not null")
        .withColumn("day", F.date_trunc("day", "window_start"))
    )
    key = ("topic", "channel", "objective", "target", "unit")
    of_day = _held(
        windows.groupBy(F.lit("day").alias("span"), F.col("day").alias("span_start"), *key), objective_percent
    )
    of_all = _held(windows.groupBy(F.lit("period").alias("span"), *key), objective_percent, F.min("day"))
    return of_day.unionByName(of_all)


def _target(name: str, target: float, value: Column, unit: str) -> Column:
    return F.struct(
        F.lit(name).alias("objective"),
        F.lit(float(target)).alias("target"),
        value.alias("value"),
        F.lit(unit).alias("unit"),
    )


def _held(windows: GroupedData, objective_percent: float, span_start: Column | None = None) -> DataFrame:
    budget = (100 - objective_percent) / 100
    counted = windows.agg(
        *([span_start.alias("span_start")] if span_start is not None else []),
        F.count("*").alias("window_count"),
        F.count_if(F.col("value") <= F.col("target")).alias("held_count"),
        F.max(F.struct("value", "window_start")).alias("worst"),
    ).withColumn("missed_count", F.col("window_count") - F.col("held_count"))
    allowed = F.nullif(F.col("window_count") * budget, F.lit(0.0))
    return counted.withColumns(
        {
            "held_percent": 100 * F.col("held_count") / F.col("window_count"),
            "budget_burnt_percent": F.when(F.col("missed_count") == 0, 0.0).otherwise(
                100 * F.col("missed_count") / allowed
            ),
            "worst_window_start": F.col("worst.window_start"),
            "worst_value": F.col("worst.value"),
        }
    ).select([figure.name for figure in tables.OBJECTIVES])
