"""The hourly figures of each topic and channel, and functions of them that run in Python processes of Spark's."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from nsqanalytics import channel_hours, tables
from nsqanalytics.channel_hours import HOUR_S
from nsqanalytics.span import HOUR, Span
from nsqanalytics.tables import Figure, spark_table
from nsqanalytics.transforms.activity import over_nodes
from nsqanalytics.transforms.throughput import with_rates


def hourly(rows: DataFrame, span: Span) -> DataFrame:
    """Hourly ACTIVITY -> one row per topic, channel and whole hour in the span, as ``channel_hours.hours_of`` reads it.

    ``message_bytes`` is the mean size of the messages that the topic received in all of ``rows``.
    """
    sizes = (
        rows.where("channel = ''")
        .groupBy("topic")
        .agg((F.sum("in_bytes") / F.nullif(F.sum("in_count"), F.lit(0))).alias("message_bytes"))
    )
    is_whole = (F.col("window_start") >= F.lit(span.since)) & (F.col("window_start") <= F.lit(span.until - HOUR))
    figures = {
        "depth": F.col("depth_mean"),
        "requeue_rate": F.col("requeue_count") / F.col("divisor_s"),
        "timeout_rate": F.col("timeout_count") / F.col("divisor_s"),
        "consumers": consumers(),
        "served": served(),
    }
    return (
        with_rates(over_nodes(rows.where(is_whole)))
        .join(F.broadcast(sizes), "topic", "left")
        .select(
            "topic",
            "channel",
            F.floor(F.unix_seconds("window_start") / HOUR_S).alias("hour"),
            F.col("message_bytes"),
            *(figures.get(name, F.col(name)).cast("double").alias(name) for name in channel_hours.COLUMNS),
        )
    )


def consumers() -> Column:
    """Return the mean number of consumers, of rows ``with_rates``."""
    return F.col("client_area") / F.col("divisor_s")


def served() -> Column:
    """Return the messages that one consumer finished per second, null without consumers."""
    return F.col("out_count") / F.nullif("client_area", F.lit(0.0))


def forecasts(hours: DataFrame, until: datetime, ahead: timedelta) -> DataFrame:
    """``hourly`` rows -> FORECAST rows. Forecasts begin with the first whole hour from ``until`` on."""
    start, count = first_hour_from(until), ahead // HOUR
    return _by_channel(hours, partial(channel_hours.forecasts, start=start, ahead=count), tables.FORECAST)


def anomalies(hours: DataFrame, span: Span, *, weeks: int, threshold: float) -> DataFrame:
    """``hourly`` rows, which begin before the span, -> ANOMALIES rows of the whole hours in the span."""
    since, until = first_hour_from(span.since), first_hour_from(span.until)
    judged = partial(channel_hours.anomalies, since=since, until=until, weeks=weeks, threshold=threshold)
    return _by_channel(hours, judged, tables.ANOMALIES)


def outlooks(hours: DataFrame, until: datetime, ahead: timedelta, free_bytes: float | None) -> DataFrame:
    """``hourly`` rows -> one CAPACITY_OUTLOOK row per channel."""
    start, count = first_hour_from(until), max(1, ahead // HOUR)
    found = partial(channel_hours.outlook, start=start, ahead=count, free_bytes=free_bytes)
    return _by_channel(hours.where("channel <> ''"), found, tables.CAPACITY_OUTLOOK)


def first_hour_from(moment: datetime) -> int:
    """Return the first whole hour that begins at the moment or after it, in hours since the epoch."""
    return -int(-moment.timestamp() // HOUR_S)


def _by_channel(hours: DataFrame, of: Callable[[pa.Table], pa.Table], figures: list[Figure]) -> DataFrame:
    # Arrow in place of pandas, which takes longer to start. Topics with many channels are spread over all tasks.
    # Spark needs the types, which a partial function does not have.
    def found(group: pa.Table) -> pa.Table:
        return of(group)

    schema = spark_table([figure for figure in figures if figure not in tables.COVERED])
    groups = hours.repartition("topic", "channel").groupBy("topic", "channel")
    return groups.applyInArrow(found, schema)
