"""The share of messages that met a target, the used error budget, and the worst window, by day and for the period.

By windows, a window meets or misses a target as a whole, and its weight is its number of messages. Without weights, a
night hour with three messages would use as much of the budget as the busiest hour of the day. By messages, each message
meets or misses the target, as for the platform's objectives, which count the same messages.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from nsqanalytics import tables
from nsqanalytics.span import DAY, Span
from nsqanalytics.transforms.activity import over_nodes
from nsqanalytics.transforms.histograms import count_within
from nsqanalytics.transforms.windows import covered, window_start
from nsqwire.histogram import bound_of


def objectives(
    rows: DataFrame,
    span: Span,
    *,
    percentile: str,
    latency_ms: float,
    backlog: float,
    objective_percent: float,
) -> DataFrame:
    """ACTIVITY -> OBJECTIVES rows: one per topic, channel and target, for each UTC day and for the period.

    ``percentile`` is a name of tables.PERMILLES. For latency, a window's messages are those finished in it; a window
    without finished messages has no latency and is not counted. For the backlog, they are the larger of two numbers:
    messages received, and messages finished or still waiting at the end. A channel without consumers therefore weighs
    as many messages as wait in it. The budget is the share of messages whose windows may miss; the burnt budget is the
    messages that missed as a share of it, and may exceed 100 %.
    """
    measured = over_nodes(rows.where("channel <> ''"))
    there = F.coalesce("out_count", F.lit(0)) + F.coalesce("depth_last", F.lit(0))
    messages = F.greatest(there, F.coalesce("in_count", F.lit(0)))
    targets = (
        _target("latency", latency_ms, F.col(percentile), "ms", F.col("count")),
        _target("backlog", backlog, F.col("depth_max").cast("double"), "messages", messages),
    )
    windows = (
        measured.select("window_start", "topic", "channel", F.explode(F.array(*targets)).alias("of"))
        .select("window_start", "topic", "channel", "of.*")
        .where("value is not null")
        .withColumn("held", F.when(F.col("value") <= F.col("target"), F.col("messages")).otherwise(0))
    )
    return _by_day_and_period(windows, span, objective_percent)


def objectives_by_message(rows: DataFrame, span: Span, *, latency_ms: float, objective_percent: float) -> DataFrame:
    """ACTIVITY -> OBJECTIVES rows: one per topic, channel and objective, for each UTC day and for the period.

    ``latency``: of finished messages, held are those finished within ``latency_ms``, rounded up to the
    bound of a histogram's bucket. ``success``: of deliveries, held are those finished, missed those requeued or timed
    out. ``target`` and ``worst_value`` are shares of missed messages in percent. Nodes without histograms do not count
    what is finished, and are left out.
    """
    counted = over_nodes(rows.where("channel <> '' and histogram is not null"))
    allowed_percent = 100 - objective_percent
    within = count_within("histogram", bound_of(round(latency_ms * 1e6)))
    failed = F.coalesce("requeue_count", F.lit(0)) + F.coalesce("timeout_count", F.lit(0))
    kinds = (
        _shares("latency", allowed_percent, F.col("count"), within),
        _shares("success", allowed_percent, F.col("count") + failed, F.col("count")),
    )
    windows = (
        counted.select("window_start", "topic", "channel", F.explode(F.array(*kinds)).alias("of"))
        .select("window_start", "topic", "channel", "of.*")
        .where("messages > 0")
    )
    return _by_day_and_period(windows, span, objective_percent)


def _by_day_and_period(windows: DataFrame, span: Span, objective_percent: float) -> DataFrame:
    of_day = windows.withColumns({"span": F.lit("day"), "span_start": window_start("window_start", DAY)})
    of_all = windows.withColumns({"span": F.lit("period"), "span_start": F.lit(span.since)})
    return covered(_judged(of_day, objective_percent), span, "span_start", DAY).unionByName(
        covered(_judged(of_all, objective_percent), span)
    )


def _target(name: str, target: float, value: Column, unit: str, messages: Column) -> Column:
    return F.struct(
        F.lit(name).alias("objective"),
        F.lit(float(target)).alias("target"),
        value.alias("value"),
        F.lit(unit).alias("unit"),
        messages.cast("bigint").alias("messages"),
    )


def _shares(name: str, allowed_percent: float, messages: Column, held: Column) -> Column:
    return F.struct(
        F.lit(name).alias("objective"),
        F.lit(float(allowed_percent)).alias("target"),
        (100 * (messages - held) / F.nullif(messages, F.lit(0))).alias("value"),
        F.lit("%").alias("unit"),
        messages.cast("bigint").alias("messages"),
        held.cast("bigint").alias("held"),
    )


def _judged(windows: DataFrame, objective_percent: float) -> DataFrame:
    budget = (100 - objective_percent) / 100
    holds = F.col("value") <= F.col("target")
    key = ("span", "span_start", "topic", "channel", "objective", "target", "unit")
    counted = (
        windows.groupBy(*key)
        .agg(
            F.sum("messages").alias("message_count"),
            F.sum("held").alias("held_count"),
            F.count("*").alias("window_count"),
            F.count_if(holds).alias("windows_held_count"),
            F.max(F.struct("value", "window_start")).alias("worst"),
        )
        .withColumn("missed_count", F.col("message_count") - F.col("held_count"))
    )
    messages = F.nullif("message_count", F.lit(0))
    allowed = F.nullif(messages * budget, F.lit(0.0))
    return counted.withColumns(
        {
            "held_percent": 100 * F.col("held_count") / messages,
            "budget_burnt_percent": F.when(F.col("missed_count") == 0, 0.0).otherwise(
                100 * F.col("missed_count") / allowed
            ),
            "windows_held_percent": 100 * F.col("windows_held_count") / F.col("window_count"),
            "worst_window_start": F.col("worst.window_start"),
            "worst_value": F.col("worst.value"),
        }
    ).select([figure.name for figure in tables.OBJECTIVES if figure not in tables.COVERED])
