"""Growth, the busiest hour, and the consumers that it needs at the rate at which they were seen to work."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from analytics import tables
from analytics.transforms.activity import over_nodes
from analytics.transforms.throughput import with_rates


def capacity(rows: DataFrame, *, horizon: timedelta, utilisation_percent: float) -> DataFrame:
    """Hourly ACTIVITY -> one CAPACITY row per topic and channel.

    Growth is the slope of the least-squares line through the hours' rates, as a share of their mean: null with less
    than two days' hours, where it would be the time of day. The service rate is what one consumer finished a second in
    the hour it finished most: a lower bound where consumers were never kept busy.
    """
    hours = with_rates(over_nodes(rows.where("channel <> ''"))).withColumns(
        {
            "consumers": F.col("client_area") / F.col("looked_s"),
            "served": F.col("out_count") / F.nullif("client_area", F.lit(0.0)),
            "days": F.unix_seconds("window_start") / 86_400,
        }
    )
    spans_days = F.max("days") - F.min("days") >= 2
    found = hours.groupBy("topic", "channel").agg(
        F.count("*").alias("hour_count"),
        F.sum("in_count").alias("in_count"),
        (F.sum("in_count") / F.nullif(F.sum("observed_s"), F.lit(0.0))).alias("in_rate"),
        F.max("in_rate").alias("busiest_in_rate"),
        F.max_by("window_start", "in_rate").alias("busiest_hour"),
        F.when(spans_days, F.regr_slope("in_rate", "days")).alias("slope"),
        F.max("served").alias("service_rate"),
        F.avg("consumers").alias("consumers_mean"),
    )
    days = horizon / timedelta(days=1)
    growth = F.col("slope") / F.nullif("in_rate", F.lit(0.0))
    factor = F.when(growth.isNotNull(), F.greatest(1 + growth * days, F.lit(0.0)))
    return found.withColumns(
        {
            "growth_percent_per_day": 100 * growth,
            "in_rate_at_horizon": F.col("in_rate") * factor,
            "consumers_needed": _needed(F.col("busiest_in_rate"), utilisation_percent),
            "consumers_needed_at_horizon": _needed(F.col("busiest_in_rate") * factor, utilisation_percent),
        }
    ).select([figure.name for figure in tables.CAPACITY])


def _needed(rate: Column, utilisation_percent: float) -> Column:
    return F.ceil(rate / (F.nullif("service_rate", F.lit(0.0)) * utilisation_percent / 100))
