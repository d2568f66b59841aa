"""Rates, depths, ages, requeues, timeouts, deaths and drops: per window, topic and channel, and per topic."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from nsqanalytics import tables
from nsqanalytics.transforms.activity import over_nodes


def throughput(rows: DataFrame, window: timedelta) -> DataFrame:
    """ACTIVITY -> one THROUGHPUT row per window, topic and channel, and per topic (``channel`` null).

    Rates are over the observed time (``observed_s``), not over the window. Percentages are shares of all messages
    finished, requeued or timed out. A topic row has no ``out`` figures, and none of dead and dropped
    messages: only channels finish them or let them die.
    """
    seconds = int(window.total_seconds())
    return (
        with_rates(over_nodes(rows))
        .select(
            "window_start",
            "topic",
            F.nullif("channel", F.lit("")).alias("channel"),
            "in_count",
            "out_count",
            "in_rate",
            "out_rate",
            F.when(F.col("channel") == "", F.col("in_bytes") / F.col("divisor_s")).alias("byte_rate"),
            "depth_mean",
            "depth_max",
            "depth_last",
            "depth_area",
            _drain_s().alias("drain_s"),
            *("requeue_count", "timeout_count", "requeue_percent", "timeout_percent"),
            *("died_count", "dropped_count", "dead_last"),
            (F.col("oldest_max_ns") / 1e6).alias("oldest_max_ms"),
            F.least("observed_s", F.lit(float(seconds + 60))).alias("observed_s"),
            "node_count",
            "sample_count",
            "uncertain_count",
        )
        .select(tables.computed(tables.THROUGHPUT))
    )


def with_rates(rows: DataFrame) -> DataFrame:
    """ACTIVITY merged over nodes -> the same with ``divisor_s`` (``observed_s``, null for 0), and ``in_rate``,
    ``out_rate``, ``depth_mean``, ``requeue_percent`` and ``timeout_percent``, which are null if the divisor is 0."""
    ended = F.col("out_count") + F.col("requeue_count") + F.col("timeout_count")
    return rows.withColumn("divisor_s", F.nullif("observed_s", F.lit(0.0))).withColumns(
        {
            "in_rate": F.col("in_count") / F.col("divisor_s"),
            "out_rate": F.col("out_count") / F.col("divisor_s"),
            "depth_mean": F.col("depth_area") / F.col("divisor_s"),
            "requeue_percent": 100 * F.col("requeue_count") / F.nullif(ended, F.lit(0)),
            "timeout_percent": 100 * F.col("timeout_count") / F.nullif(ended, F.lit(0)),
        }
    )


def _drain_s() -> Column:
    """Return the seconds to drain the depth at the window's end, at the window's rates; null if it does not shrink."""
    shrinks = F.col("out_rate") > F.col("in_rate")
    return F.when(F.col("depth_last") == 0, 0.0).when(
        shrinks, F.col("depth_last") / (F.col("out_rate") - F.col("in_rate"))
    )
