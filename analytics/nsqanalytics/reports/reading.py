"""Reads the part of the archive that a report is about."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from nsqanalytics.job_parameters import Scope
from nsqanalytics.locations import ArchiveMissing, Locations
from nsqanalytics.parameters import spelt_out, written
from nsqanalytics.progress import Progress
from nsqanalytics.rollups import HOURS_BEFORE, Rollups, existing_rollups
from nsqanalytics.session import is_on_this_machine
from nsqanalytics.span import DAY, HOUR, Span

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def listed(place: Locations, span: Span, progress: Progress, window: timedelta = HOUR) -> tuple[Rollups, Span]:
    """Return a listing of the archive, and the part of the span that can be counted in windows of this length.

    Raises ArchiveMissing if there is no archive, or if the samples that shorter windows than an hour need were removed.
    """
    progress.at(0.15, "listing the archive")
    rollups = existing_rollups(place.archive)
    if window < HOUR and rollups.has_lost_samples(span):
        raise ArchiveMissing(
            f"the samples of this period were removed, and windows of {written(window)} are computed from samples: "
            "choose windows of 1h or 1d, which are read from rollups"
        )
    return rollups, rollups.countable(span, window)


def activity_of(
    spark: SparkSession,
    place: Locations,
    scope: Scope,
    rollups: Rollups,
    span: Span,
    window: timedelta,
    progress: Progress,
    *,
    histograms: bool = True,
) -> DataFrame:
    """Return ACTIVITY of the span, of the scope's node, topics and channel: from valid rollups if windows are whole
    hours, otherwise from samples. Without ``histograms``, those of rollups are not read.

    ``window_start`` is the start of the whole window. Of the first and the last window, only the part in the span is
    counted.
    """
    from pyspark.sql import functions as F

    from nsqanalytics.counting.ends import Rules
    from nsqanalytics.counting.names import Names
    from nsqanalytics.counting.of_files import Wanted
    from nsqanalytics.transforms.activity import rolled_up, without_histograms
    from nsqanalytics.transforms.names import is_one_of
    from nsqanalytics.transforms.windows import cuts, window_start

    divided = cuts(span, window)
    stages = 2 if is_on_this_machine(spark) else 6

    def stage(done: float) -> str:
        return f"reading {spelt_out(span.until - span.since, done)}"

    with progress.following(spark, stage, expected_stages=stages, start=0.2, end=0.5):
        if window < HOUR:
            seen_since = _seen_since(rollups, span)
            wanted = Wanted(Names(scope.topic), scope.channel, span.until)
            rows = rollups.activity(spark, Span(seen_since, span.until), Rules(window, divided), wanted)
            rows = rows.where(F.col("window_start") >= F.lit(span.since))
            if scope.node:
                rows = rows.where(F.col("node") == scope.node)
            return rows.withColumn("window_start", window_start("window_start", window)) if divided else rows
        rows = rollups.read(spark, span, daily=window == DAY)
    if not histograms:
        rows = without_histograms(rows)
    if scope.topic:
        rows = rows.where(is_one_of("topic", scope.topic))
    if scope.channel:
        rows = rows.where(F.col("channel") == scope.channel)
    if scope.node:
        rows = rows.where(F.col("node") == scope.node)
    if window > HOUR:
        return rolled_up(rows, window, span.since)
    return rows.withColumn("window_start", window_start("window_start", window)) if divided else rows


def _seen_since(rollups: Rollups, span: Span) -> datetime:
    """Return the start of the first hour to read: as for a rollup, the second last sampled hour before the span."""
    from nsqanalytics.transforms.windows import floor_to_window

    first = floor_to_window(span.since, HOUR)
    return min([first, *[start for start in rollups.samples if start < first][-HOURS_BEFORE:]])


def bytes_read(place: Locations, scope: Scope, now: datetime) -> int:
    """Return the approximate number of bytes of the archive that a report on this scope reads."""
    rollups = Rollups(place.archive)
    if scope.step < HOUR:
        return sum(rollups.size_of_samples(_seen_since(rollups, each), each.until) for each in scope.read(now))
    return sum(rollups.size_between(each.since, each.until) for each in scope.read(now))
