"""The reports with a row for the whole period, or each day of it: objectives, dead messages and compare."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from nsqanalytics import tables
from nsqanalytics.hours_of_week import as_text, common_hours
from nsqanalytics.job_parameters import CompareParameters, DeadParameters, ObjectivesParameters
from nsqanalytics.locations import ArchiveMissing, Locations
from nsqanalytics.progress import Progress
from nsqanalytics.reports.comparison import comparable, compared
from nsqanalytics.reports.reading import activity_of, listed
from nsqanalytics.reports.writing import write_report
from nsqanalytics.span import HOUR, Span

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def run_objectives(
    spark: SparkSession, place: Locations, args: ObjectivesParameters, now: datetime, progress: Progress
) -> int:
    """Write how often each channel met its objectives. Returns the number of rows."""
    from nsqanalytics.transforms.objectives import objectives, objectives_by_message

    rollups, span = listed(place, args.span(now), progress, args.step)
    activity = activity_of(spark, place, args, rollups, span, args.step, progress)
    if args.counting == "messages":
        rows = objectives_by_message(
            activity, span, latency_ms=args.latency_ms, objective_percent=args.objective_percent
        )
    else:
        rows = objectives(
            activity,
            span,
            percentile={"p99.9": "p999_ms"}.get(args.percentile, f"{args.percentile}_ms"),
            latency_ms=args.latency_ms,
            backlog=args.backlog,
            objective_percent=args.objective_percent,
        )
    order = ["-span", "-missed_count", "span_start", "topic", "channel", "objective"]
    return write_report(spark, place, rows, tables.OBJECTIVES, order, span, progress)


def run_dead(spark: SparkSession, place: Locations, args: DeadParameters, now: datetime, progress: Progress) -> int:
    """Write how many messages of each channel died or were dropped. Returns the number of rows."""
    from pyspark.sql import functions as F

    from nsqanalytics.transforms.activity import as_one_window
    from nsqanalytics.transforms.dead import dead
    from nsqanalytics.transforms.windows import covered

    rollups, span = listed(place, args.span(now), progress)

    def rows_of(of: Span) -> DataFrame:
        hours = activity_of(spark, place, args, rollups, of, HOUR, progress, histograms=False)
        return dead(as_one_window(hours, of.since)).withColumn("window_start", F.lit(of.since))

    rows, before = compared(rows_of, rollups, args, span, HOUR, tables.DEAD_EARLIER, whole=True)
    order = ["-died_count", "-dropped_count", "topic", "channel"]
    return write_report(spark, place, covered(rows, span), tables.DEAD, order, span, progress, before)


def run_compare(
    spark: SparkSession, place: Locations, args: CompareParameters, now: datetime, progress: Progress
) -> int:
    """Compare the period with another one of its length. The two do not overlap."""
    from pyspark.sql import functions as F

    from nsqanalytics.transforms.activity import as_one_window
    from nsqanalytics.transforms.compare import compare
    from nsqanalytics.transforms.windows import covered

    # The part of one period that can no longer be counted is left out of the other too.
    shift = args.span(now).since - args.other(now).since
    rollups, earlier = listed(place, args.other(now), progress)
    span, earlier = comparable(rollups, earlier, shift)
    if span.since >= span.until:
        raise ArchiveMissing(
            "nothing of the two periods can be compared: samples of them were removed, and whole hours are left; "
            "choose periods that begin and end at whole UTC hours"
        )
    hours: tuple[list[datetime], list[datetime]] | None = None
    if args.hours == "week":
        hours = common_hours(span, earlier)
        if not hours[0]:
            raise ArchiveMissing("what can be counted of the two periods has no whole hour of the week in common")

    def period(of: Span, only: list[datetime] | None) -> DataFrame:
        found = activity_of(spark, place, args, rollups, of, HOUR, progress)
        return as_one_window(found if only is None else found.where(F.col("window_start").isin(only)), of.since)

    now_only, before_only = hours or (None, None)
    rows = covered(compare(period(span, now_only), period(earlier, before_only), args.minimum_count), span)
    rows = rows.withColumns({"before_since": F.lit(earlier.since), "before_until": F.lit(earlier.until)})
    order = ["-score", "topic", "channel", "figure"]
    compared = "" if hours is None else as_text(hours[0])
    return write_report(spark, place, rows, tables.COMPARE, order, span, progress, earlier, compared)
