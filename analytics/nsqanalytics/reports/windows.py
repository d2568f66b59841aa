"""The reports with a row for each window: latency and throughput."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from nsqanalytics import tables
from nsqanalytics.job_parameters import LatencyParameters, ThroughputParameters
from nsqanalytics.locations import Locations
from nsqanalytics.progress import Progress
from nsqanalytics.reports.comparison import compared
from nsqanalytics.reports.reading import activity_of, listed
from nsqanalytics.reports.writing import write_report
from nsqanalytics.span import Span

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def run_latency(
    spark: SparkSession, place: Locations, args: LatencyParameters, now: datetime, progress: Progress
) -> int:
    """Write the percentiles of each window of the period."""
    from nsqanalytics.transforms.latency import latency
    from nsqanalytics.transforms.windows import covered

    window = args.step
    rollups, span = listed(place, args.span(now), progress, window)

    def rows_of(of: Span) -> DataFrame:
        return latency(activity_of(spark, place, args, rollups, of, window, progress), args.minimum_count)

    rows, before = compared(rows_of, rollups, args, span, window, tables.LATENCY_EARLIER)
    rows = covered(rows, span, length=window)
    return write_report(
        spark, place, rows, tables.LATENCY, ["window_start", "topic", "channel"], span, progress, before
    )


def run_throughput(
    spark: SparkSession, place: Locations, args: ThroughputParameters, now: datetime, progress: Progress
) -> int:
    """Write rates and depths by window. Returns the number of rows."""
    from nsqanalytics.transforms.throughput import throughput
    from nsqanalytics.transforms.windows import covered

    window = args.step
    rollups, span = listed(place, args.span(now), progress, window)

    def rows_of(of: Span) -> DataFrame:
        return throughput(activity_of(spark, place, args, rollups, of, window, progress, histograms=False), window)

    rows, before = compared(rows_of, rollups, args, span, window, tables.THROUGHPUT_EARLIER)
    rows = covered(rows, span, length=window)
    return write_report(
        spark, place, rows, tables.THROUGHPUT, ["window_start", "topic", "channel"], span, progress, before
    )
