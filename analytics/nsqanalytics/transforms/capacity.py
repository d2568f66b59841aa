"""Growth, the busiest hour, the consumers that it needs, and when a backlog is gone or has filled the disk."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from nsqanalytics import tables
from nsqanalytics.span import DAY, HOUR, Span
from nsqanalytics.transforms.activity import over_nodes
from nsqanalytics.transforms.hours import consumers, hourly, outlooks
from nsqanalytics.transforms.throughput import with_rates


def capacity(
    rows: DataFrame,
    span: Span,
    *,
    horizon: timedelta,
    utilisation_percent: float,
    free_bytes: float | None = None,
) -> DataFrame:
    """Hourly ACTIVITY of the span -> one CAPACITY row per topic and channel.

    Growth is the slope of the least-squares line through the hourly rates, divided by their mean. It is null for less
    than two days, because it would then depend on the time of day. The columns about the horizon are those of
    ``channel_hours.outlook``: by a forecast, or else by that line; ``method`` and ``reason`` say which, and why.

    Growth, the busiest hour and the service rate use the whole hours in the span, because a burst in one minute is not
    the rate of an hour. For a channel without a whole hour, growth and the busiest hour use the parts of hours that it
    has, and it has no service rate.
    """
    is_whole = (F.col("window_start") >= F.lit(span.since)) & (F.col("window_start") <= F.lit(span.until - HOUR))
    hours = with_rates(over_nodes(rows.where("channel <> ''"))).withColumns(
        {"is_whole": is_whole, "consumers": consumers(), "days": F.unix_seconds("window_start") / 86_400}
    )
    hours = hours.withColumn("is_judged", F.col("is_whole") | ~F.max("is_whole").over(_channel()))
    judged_rate = F.when(F.col("is_judged"), F.col("in_rate"))
    judged_days = F.when(F.col("is_judged"), F.col("days"))
    spans_days = F.max(judged_days) - F.min(judged_days) >= 2
    found = hours.groupBy("topic", "channel").agg(
        F.count("*").alias("hour_count"),
        F.sum("in_count").alias("in_count"),
        (F.sum("in_count") / F.nullif(F.sum("observed_s"), F.lit(0.0))).alias("in_rate"),
        F.max(judged_rate).alias("busiest_in_rate"),
        F.max_by("window_start", judged_rate).alias("busiest_hour"),
        F.when(spans_days, F.regr_slope(judged_rate, judged_days)).alias("slope"),
        F.avg("consumers").alias("consumers_mean"),
    )
    found = found.join(outlooks(hourly(rows, span), span.until, horizon, free_bytes), ["topic", "channel"], "left")
    days = horizon / DAY
    growth = F.col("slope") / F.nullif("in_rate", F.lit(0.0))
    factor = F.when(growth.isNotNull(), F.greatest(1 + growth * days, F.lit(0.0)))
    peak = F.coalesce("forecast_peak_rate", F.col("busiest_in_rate") * factor)
    return found.withColumns(
        {
            "growth_percent_per_day": 100 * growth,
            "in_rate_at_horizon": F.coalesce("forecast_in_rate", F.col("in_rate") * factor),
            "consumers_needed": _needed(F.col("busiest_in_rate"), utilisation_percent),
            "consumers_needed_at_horizon": _needed(peak, utilisation_percent),
            "method": F.coalesce("method", F.lit("straight line")),
            "reason": F.when(F.col("method").isNull(), "no whole hour of history").otherwise(F.col("reason")),
        }
    ).select([figure.name for figure in tables.CAPACITY if figure not in tables.COVERED])


def _channel() -> WindowSpec:
    return Window.partitionBy("topic", "channel")


def _needed(rate: Column, utilisation_percent: float) -> Column:
    return F.ceil(rate / (F.nullif("service_rate", F.lit(0.0)) * utilisation_percent / 100))
