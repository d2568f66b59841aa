"""The reports on each channel's hours: capacity, forecast and anomalies."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from nsqanalytics import tables
from nsqanalytics.job_parameters import AnomaliesParameters, CapacityParameters, ForecastParameters
from nsqanalytics.locations import Locations
from nsqanalytics.progress import Progress
from nsqanalytics.reports.reading import activity_of, listed
from nsqanalytics.reports.writing import write_report
from nsqanalytics.span import HOUR, WEEK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


FORECAST_AHEAD = WEEK
"""How far ahead a forecast looks."""


def run_capacity(
    spark: SparkSession, place: Locations, args: CapacityParameters, now: datetime, progress: Progress
) -> int:
    """Write the growth, the busiest hour, the needed consumers and the outlook of each channel. Returns the number of
    rows."""
    from nsqanalytics.cache import persisted
    from nsqanalytics.transforms.capacity import capacity
    from nsqanalytics.transforms.windows import covered

    rollups, span = listed(place, args.span(now), progress)
    hours = activity_of(spark, place, args, rollups, span, HOUR, progress, histograms=False)
    free_bytes = None if args.free_gb is None else 1e9 * args.free_gb
    found = capacity(
        persisted(hours),
        span,
        horizon=args.horizon,
        utilisation_percent=args.utilisation_percent,
        free_bytes=free_bytes,
    )
    rows = covered(found, span)
    return write_report(spark, place, rows, tables.CAPACITY, ["-busiest_in_rate", "topic", "channel"], span, progress)


def run_forecast(
    spark: SparkSession, place: Locations, args: ForecastParameters, now: datetime, progress: Progress
) -> int:
    """Write the last week and the next one of each topic's and channel's figures. Returns the number of rows."""
    from nsqanalytics.transforms.hours import forecasts, hourly
    from nsqanalytics.transforms.windows import covered

    rollups, span = listed(place, args.span(now), progress)
    rows = activity_of(spark, place, args, rollups, span, HOUR, progress, histograms=False)
    rows = covered(forecasts(hourly(rows, span), args.span(now).until, FORECAST_AHEAD), span)
    order = ["topic", "channel", "figure", "window_start"]
    return write_report(spark, place, rows, tables.FORECAST, order, span, progress, stage="forecasting")


def run_anomalies(
    spark: SparkSession, place: Locations, args: AnomaliesParameters, now: datetime, progress: Progress
) -> int:
    """Write how unlike the same hour of past weeks each hour of the period is. Returns the number of rows."""
    from nsqanalytics.transforms.hours import anomalies, hourly
    from nsqanalytics.transforms.windows import covered

    rollups, read = listed(place, args.history(now), progress)
    span = rollups.countable(args.span(now))
    hours = hourly(activity_of(spark, place, args, rollups, read, HOUR, progress, histograms=False), read)
    rows = covered(anomalies(hours, span, weeks=args.weeks, threshold=args.threshold), span)
    order = ["-score", "topic", "channel", "figure", "window_start"]
    return write_report(spark, place, rows, tables.ANOMALIES, order, span, progress, stage="comparing weeks")
