"""The jobs. Each reads the archive, applies transforms, checks the columns and replaces its result."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from nsqanalytics import compaction, damage, tables
from nsqanalytics.archive import samples_path
from nsqanalytics.files import Folder
from nsqanalytics.hours_of_week import as_text, common_hours
from nsqanalytics.iceberg.catalog import CATALOG_VARIABLE
from nsqanalytics.job_parameters import (
    WINDOWS,
    AnomaliesParameters,
    CapacityParameters,
    CompactParameters,
    ComparedScope,
    CompareParameters,
    DeadParameters,
    ForecastParameters,
    LatencyParameters,
    LivesParameters,
    ObjectivesParameters,
    RetainParameters,
    RollupParameters,
    Scope,
    Span,
    ThroughputParameters,
)
from nsqanalytics.life_events import EVENT_SCHEMA, files_between, lives_path
from nsqanalytics.locations import ArchiveMissing, Locations, spark_uri
from nsqanalytics.parameters import BadParameter, FormField, Given, described, parse, refuse_future, spelt_out
from nsqanalytics.progress import Progress
from nsqanalytics.results import conforming, replace_result, replace_table
from nsqanalytics.rollups import DAY, HOURS_BEFORE, Rollups, stale_days, stale_hours
from nsqanalytics.tables import Earlier, Figure, spark_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class Job:
    """``run(spark, place, parameters, now, progress)`` returns the number of rows it wrote.

    ``figures`` are the columns of its result. A job with ``needs_spark`` false gets None for ``spark``. If
    ``without_spark(place, parameters, now, progress)`` is given, it is called first: it does the job and returns the
    number of rows, or returns None if the job needs Spark; ``run`` is then called. ``worst`` is the column of the
    result in which the largest figure is the worst; empty if there is none.
    """

    name: str
    title: str
    description: str
    kind: Literal["report", "maintenance"]
    parameters: type
    figures: Sequence[Figure]
    run: Callable[[Any, Locations, Any, datetime, Progress], int]
    needs_spark: bool = True
    without_spark: Callable[[Locations, Any, datetime, Progress], int | None] | None = None
    worst: str = ""

    def checked(self, given: Given, now: datetime | None = None) -> Any:
        """Return the parameters as an instance of ``parameters``. Raises BadParameter.

        ``now`` is the current time by default. No period may end after it.
        """
        now = now or datetime.now(UTC)
        parameters: Any = parse(self.parameters, given)
        refuse_future(parameters, now)
        if isinstance(parameters, CompareParameters):
            parameters.other(now)
        return parameters

    def form(self) -> dict[str, FormField]:
        """Return a description of the parameters as JSON, for a form."""
        return described(self.parameters)


def run_latency(
    spark: SparkSession, place: Locations, args: LatencyParameters, now: datetime, progress: Progress
) -> int:
    """Write the percentiles of each window of the period."""
    from nsqanalytics.transforms.latency import latency
    from nsqanalytics.transforms.windows import covered

    rollups, span = _listed(place, args.span(now), progress)
    window = WINDOWS[args.window]

    def rows_of(of: Span) -> DataFrame:
        return latency(activity_of(spark, place, args, rollups, of, window, progress), args.minimum_count)

    rows, before = _compared(rows_of, rollups, args, span, window, tables.LATENCY_EARLIER)
    rows = covered(rows, span, length=window)
    return _written(spark, place, rows, tables.LATENCY, ["window_start", "topic", "channel"], span, progress, before)


def run_throughput(
    spark: SparkSession, place: Locations, args: ThroughputParameters, now: datetime, progress: Progress
) -> int:
    """Write rates and depths by window. Returns the number of rows."""
    from nsqanalytics.transforms.throughput import throughput
    from nsqanalytics.transforms.windows import covered

    rollups, span = _listed(place, args.span(now), progress)
    window = WINDOWS[args.window]

    def rows_of(of: Span) -> DataFrame:
        return throughput(activity_of(spark, place, args, rollups, of, window, progress), window)

    rows, before = _compared(rows_of, rollups, args, span, window, tables.THROUGHPUT_EARLIER)
    rows = covered(rows, span, length=window)
    return _written(spark, place, rows, tables.THROUGHPUT, ["window_start", "topic", "channel"], span, progress, before)


def run_objectives(
    spark: SparkSession, place: Locations, args: ObjectivesParameters, now: datetime, progress: Progress
) -> int:
    """Write how often each channel met its objectives. Returns the number of rows."""
    from nsqanalytics.transforms.objectives import objectives, objectives_by_message

    rollups, span = _listed(place, args.span(now), progress)
    activity = activity_of(spark, place, args, rollups, span, WINDOWS[args.window], progress)
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
    return _written(spark, place, rows, tables.OBJECTIVES, order, span, progress)


def run_capacity(
    spark: SparkSession, place: Locations, args: CapacityParameters, now: datetime, progress: Progress
) -> int:
    """Write the growth, the busiest hour, the needed consumers and the outlook of each channel. Returns the number of
    rows."""
    from pyspark.sql import functions as F

    from nsqanalytics.cache import persisted
    from nsqanalytics.transforms.capacity import capacity
    from nsqanalytics.transforms.histograms import HISTOGRAM
    from nsqanalytics.transforms.windows import covered

    rollups, span = _listed(place, args.span(now), progress)
    hours = activity_of(spark, place, args, rollups, span, HOUR, progress)
    free_bytes = None if args.free_gb is None else 1e9 * args.free_gb
    found = capacity(
        persisted(hours.withColumn("histogram", F.lit(None).cast(HISTOGRAM))),
        span,
        horizon=args.horizon,
        utilisation_percent=args.utilisation_percent,
        free_bytes=free_bytes,
    )
    rows = covered(found, span)
    return _written(spark, place, rows, tables.CAPACITY, ["-busiest_in_rate", "topic", "channel"], span, progress)


def run_forecast(
    spark: SparkSession, place: Locations, args: ForecastParameters, now: datetime, progress: Progress
) -> int:
    """Write the last week and the next one of each topic's and channel's figures. Returns the number of rows."""
    from nsqanalytics.transforms.hours import forecasts, hourly
    from nsqanalytics.transforms.windows import covered

    rollups, span = _listed(place, args.span(now), progress)
    rows = activity_of(spark, place, args, rollups, span, HOUR, progress)
    rows = covered(forecasts(hourly(rows, span), args.span(now).until, FORECAST_AHEAD), span)
    order = ["topic", "channel", "figure", "window_start"]
    return _written(spark, place, rows, tables.FORECAST, order, span, progress, stage="forecasting")


def run_anomalies(
    spark: SparkSession, place: Locations, args: AnomaliesParameters, now: datetime, progress: Progress
) -> int:
    """Write how unlike the same hour of past weeks each hour of the period is. Returns the number of rows."""
    from nsqanalytics.transforms.hours import anomalies, hourly
    from nsqanalytics.transforms.windows import covered

    rollups, read = _listed(place, args.read(now), progress)
    span = rollups.countable(args.span(now))
    hours = hourly(activity_of(spark, place, args, rollups, read, HOUR, progress), read)
    rows = covered(anomalies(hours, span, weeks=args.weeks, threshold=args.threshold), span)
    order = ["-score", "topic", "channel", "figure", "window_start"]
    return _written(spark, place, rows, tables.ANOMALIES, order, span, progress, stage="comparing weeks")


FORECAST_AHEAD = timedelta(weeks=1)
"""How far ahead a forecast looks."""


def run_dead(spark: SparkSession, place: Locations, args: DeadParameters, now: datetime, progress: Progress) -> int:
    """Write how many messages of each channel died or were dropped. Returns the number of rows."""
    from pyspark.sql import functions as F

    from nsqanalytics.transforms.activity import as_one_window
    from nsqanalytics.transforms.dead import dead
    from nsqanalytics.transforms.windows import covered

    rollups, span = _listed(place, args.span(now), progress)

    def rows_of(of: Span) -> DataFrame:
        hours = activity_of(spark, place, args, rollups, of, HOUR, progress)
        return dead(as_one_window(hours, of.since)).withColumn("window_start", F.lit(of.since))

    rows, before = _compared(rows_of, rollups, args, span, HOUR, tables.DEAD_EARLIER, whole=True)
    order = ["-died_count", "-dropped_count", "topic", "channel"]
    return _written(spark, place, covered(rows, span), tables.DEAD, order, span, progress, before)


def run_lives(spark: SparkSession, place: Locations, args: LivesParameters, now: datetime, progress: Progress) -> int:
    """Write what happened to the sampled messages of each channel. Returns the number of rows."""
    from pyspark.sql import functions as F

    from nsqanalytics.schema import spark_fields
    from nsqanalytics.transforms.lives import lives
    from nsqanalytics.transforms.names import is_one_of
    from nsqanalytics.transforms.windows import covered

    span = args.span(now)
    progress.at(0.15, "listing the archive")
    files = files_between(Folder(lives_path(place.archive)), span.since, span.until)
    uris = [spark_uri(place.archive, file.path) for file in files]
    events = spark.read.schema(spark_fields(EVENT_SCHEMA)).parquet(*uris)
    events = events.where((F.col("at") >= F.lit(span.since)) & (F.col("at") < F.lit(span.until)))
    if args.topic:
        events = events.where(is_one_of("topic", args.topic))
    if args.channel:
        events = events.where(F.col("channel").isNull() | (F.col("channel") == args.channel))
    if args.node:
        events = events.where(F.col("node") == args.node)
    order = ["topic", "channel", "client_id"]
    return _written(spark, place, covered(lives(events), span), tables.LIVES, order, span, progress, stage="counting")


def no_lives(place: Locations, args: LivesParameters, now: datetime, progress: Progress) -> int | None:
    """Write an empty result and return 0 if the period has no events; otherwise return None."""
    span = args.span(now)
    if files_between(Folder(lives_path(place.archive)), span.since, span.until):
        return None
    covered = {"covered_since": span.since, "covered_until": span.until}
    return replace_table([], tables.LIVES, place.output, covered)


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
    rollups, earlier = _listed(place, args.other(now), progress)
    span = rollups.countable(earlier.earlier(-shift))
    earlier = span.earlier(shift)
    hours: tuple[list[datetime], list[datetime]] | None = None
    if args.hours == "week":
        hours = common_hours(span, earlier)
        if not hours[0]:
            raise BadParameter("the two periods have no whole hour of the week in common", "hours")

    def period(of: Span, only: list[datetime] | None) -> DataFrame:
        found = activity_of(spark, place, args, rollups, of, HOUR, progress)
        return as_one_window(found if only is None else found.where(F.col("window_start").isin(only)), of.since)

    now_only, before_only = hours or (None, None)
    rows = covered(compare(period(span, now_only), period(earlier, before_only), args.minimum_count), span)
    rows = rows.withColumns({"before_since": F.lit(earlier.since), "before_until": F.lit(earlier.until)})
    order = ["-score", "topic", "channel", "figure"]
    compared = "" if hours is None else as_text(hours[0])
    return _written(spark, place, rows, tables.COMPARE, order, span, progress, earlier, compared)


def run_rollup(spark: SparkSession, place: Locations, args: RollupParameters, now: datetime, progress: Progress) -> int:
    """Roll up the hours that have ended and have no valid rollup, then the days whose hours are all rolled up.

    The next run reads the files that arrive during this one.
    """
    since, until = _rolled_up_period(args, now)
    done: list[compaction.Done] = []
    damaged: list[damage.Damaged] = []

    def roll_up_hours() -> None:
        progress.at(0.1, "listing the archive")
        rollups = Rollups(place.archive)
        hours = stale_hours(rollups, since, until)
        if unreadable := damage.set_aside(rollups.folder, rollups.files_of(hours), thorough=False):
            damaged.extend(unreadable)
            rollups = Rollups(place.archive)
            hours = stale_hours(rollups, since, until)
        for at in range(0, len(hours), ROLLED_AT_ONCE):
            some = hours[at : at + ROLLED_AT_ONCE]
            start, end = (0.15 + 0.65 * share / len(hours) for share in (at, at + len(some)))
            with progress.following(
                spark, f"rolling up {_counted(len(some), 'hour')}", expected_stages=12, start=start, end=end
            ):
                rollups.make_hours(spark, some)
            done.extend((hour.start, "rolled up", len(rollups.samples[hour.start]), 1, 0, 0) for hour in some)
            spark.catalog.clearCache()

    def add_up_days() -> None:
        rollups = Rollups(place.archive)
        if days := stale_days(rollups, since, until):
            with progress.following(
                spark, f"adding up {_counted(len(days), 'day')}", expected_stages=4, start=0.8, end=0.95
            ):
                rollups.make_days(spark, days)
            done.extend((day, "day added up", len(rollups.between(day, day + DAY)), 1, 0, 0) for day in days)

    damage.without_damaged_files(roll_up_hours, place.archive, damaged)
    Rollups(place.archive).sweep_unfinished(now)
    damage.without_damaged_files(add_up_days, place.archive, damaged)
    registered = _registered(place, until, progress)
    return replace_table(
        [*map(compaction.set_aside_row, damaged), *done, *registered], tables.MAINTENANCE, place.output
    )


def roll_up_nothing(place: Locations, args: RollupParameters, now: datetime, progress: Progress) -> int | None:
    """If no hour or day needs a rollup, register the archive's files and return the number of rows; otherwise return
    None."""
    since, until = _rolled_up_period(args, now)
    progress.at(0.1, "listing the archive")
    rollups = Rollups(place.archive)
    if stale_hours(rollups, since, until) or stale_days(rollups, since, until):
        return None
    return replace_table([*_registered(place, until, progress)], tables.MAINTENANCE, place.output)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _rolled_up_period(args: RollupParameters, now: datetime) -> tuple[datetime, datetime]:
    """Return the start, which is that of a UTC day, and the end: ``until``, by default LATE before now."""
    until = args.until or now - LATE
    return (until - args.period).astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0), until


LATE = timedelta(minutes=1)
"""How long after the end of an hour a rollup waits for its last files."""
ROLLED_AT_ONCE = 48
"""Number of hours in one Spark job. It bounds the memory and disk space for sorting."""


def run_compact(_: None, place: Locations, args: CompactParameters, now: datetime, progress: Progress) -> int:
    """Merge the files of each hour, without Spark. Returns the number of rows."""
    until = args.until or now
    done = compaction.compact(place.archive, args.older_than, until)
    return _maintained(itertools.chain(done, _registered(place, until, progress)), place, progress)


def run_retain(_: None, place: Locations, args: RetainParameters, now: datetime, progress: Progress) -> int:
    """Remove samples, events and rollups beyond their retention, without Spark. Returns the number of rows."""
    until = args.until or now
    leaving = (
        file.path
        for each in compaction.expired(place.archive, args.samples, args.rollups, until)
        for file in each.files
    )
    # The tables lose the files first: a query then plans none that is about to be removed.
    registered = _registered(place, until, progress, leaving)
    done = compaction.retain(place.archive, args.samples, args.rollups, until)
    return _maintained(itertools.chain(registered, done), place, progress)


def _registered(
    place: Locations, now: datetime, progress: Progress, leaving: Iterable[str] = ()
) -> Iterator[compaction.Done]:
    """Register the archive's files in the Iceberg catalog, if one is given, and yield what was done.

    Files that are not registered, and a catalog that cannot be used, are also lines of the log. They do not fail the
    run.
    """
    if not (catalog := os.environ.get(CATALOG_VARIABLE)):
        return
    from nsqanalytics.iceberg.registration import NOT_REGISTERED, register

    progress.at(0.9, "registering files in the Iceberg catalog")
    for row in register(place.archive, catalog, place.namespace, now, frozenset(leaving)):
        if row[1].startswith(NOT_REGISTERED):
            print(f"analytics: {row[1]}", file=sys.stderr)
        yield row


def _maintained(done: Iterable[compaction.Done], place: Locations, progress: Progress) -> int:
    rows = []
    for row in done:
        rows.append(row)
        progress.at(0.5, f"{row[1]} {row[0]:%Y-%m-%d %H:00}")
    return replace_table(rows, tables.MAINTENANCE, place.output)


def _listed(place: Locations, span: Span, progress: Progress) -> tuple[Rollups, Span]:
    """Return a listing of the archive, and the part of the span that can be counted. Raises ArchiveMissing."""
    progress.at(0.15, "listing the archive")
    rollups = Rollups(place.archive)
    if not rollups.hours:
        raise ArchiveMissing(f"there is no archive at {samples_path(place.archive)}: has the collector run?")
    return rollups, rollups.countable(span)


def _compared(
    rows_of: Callable[[Span], DataFrame],
    rollups: Rollups,
    args: ComparedScope,
    span: Span,
    window: timedelta,
    columns: Earlier,
    *,
    whole: bool = False,
) -> tuple[DataFrame, Span | None]:
    """Return the rows of the span with ``columns``, and the period that they are compared with.

    The latter is None if there is no comparison, or if the archive has nothing of that period, or with ``whole`` not
    all of it.
    """
    from nsqanalytics.transforms.earlier import with_earlier

    shift = args.shift(window)
    earlier = None if shift is None else _archived(rollups, span.earlier(shift), whole=whole)
    if shift is None or earlier is None:
        return with_earlier(rows_of(span), None, columns, timedelta(0)), None
    return with_earlier(rows_of(span), rows_of(earlier), columns, shift), earlier


def _archived(rollups: Rollups, span: Span, *, whole: bool) -> Span | None:
    """Return the part of the span that can be counted; None if there is none, or with ``whole`` if it is not all.

    The archive has all of a span if it has hours at or before its start: later hours without readings are idle ones.
    """
    counted = rollups.countable(span)
    first = counted.since.replace(minute=0, second=0, microsecond=0)
    if counted.since >= counted.until or not rollups.between(first, counted.until):
        return None
    return None if whole and (counted != span or first < next(iter(rollups.hours))) else counted


def activity_of(
    spark: SparkSession,
    place: Locations,
    scope: Scope,
    rollups: Rollups,
    span: Span,
    window: timedelta,
    progress: Progress,
) -> DataFrame:
    """Return ACTIVITY of the span, of the scope's node, topics and channel: from valid rollups if windows are whole
    hours, otherwise from samples.

    ``window_start`` is the start of the whole window. Of the first and the last window, only the part in the span is
    counted.
    """
    from pyspark.sql import functions as F

    from nsqanalytics.computation import activity
    from nsqanalytics.transforms.activity import rolled_up
    from nsqanalytics.transforms.names import is_one_of
    from nsqanalytics.transforms.windows import cuts, window_start

    divided = cuts(span, window)
    with progress.following(
        spark, f"reading {spelt_out(span.until - span.since)}", expected_stages=6, start=0.2, end=0.5
    ):
        if window < HOUR:
            seen_since = _seen_since(rollups, span)
            samples = _taken_within(rollups.read_samples(spark, seen_since, span.until), None, span.until)
            rows = activity(
                samples,
                window,
                topic=scope.topic,
                channel=scope.channel,
                cuts=divided,
                are_few=rollups.has_few_samples(seen_since, span.until),
            )
            rows = rows.where((F.col("window_start") >= F.lit(span.since)) & F.col("window_start").isNotNull())
            if scope.node:
                rows = rows.where(F.col("node") == scope.node)
            return rows.withColumn("window_start", window_start("window_start", window)) if divided else rows
        rows = rollups.read(spark, span, daily=window == DAY)
    if scope.topic:
        rows = rows.where(is_one_of("topic", scope.topic))
    if scope.channel:
        rows = rows.where(F.col("channel") == scope.channel)
    if scope.node:
        rows = rows.where(F.col("node") == scope.node)
    if window > HOUR:
        return rolled_up(rows, window, span.since)
    return rows.withColumn("window_start", window_start("window_start", window)) if divided else rows


def bytes_read(place: Locations, args: Any, now: datetime) -> int:
    """Return the approximate number of bytes of the archive that a job with these parameters reads."""
    if isinstance(args, LivesParameters):
        span = args.span(now)
        return sum(file.size for file in files_between(Folder(lives_path(place.archive)), span.since, span.until))
    rollups = Rollups(place.archive)
    if isinstance(args, RollupParameters):
        return rollups.size_of(stale_hours(rollups, *_rolled_up_period(args, now)))
    span = args.span(now)
    window = WINDOWS.get(getattr(args, "window", ""), HOUR)
    spans = [args.read(now) if isinstance(args, AnomaliesParameters) else span]
    if isinstance(args, CompareParameters):
        spans.append(args.other(now))
    elif isinstance(args, ComparedScope) and (shift := args.shift(window)) is not None:
        spans.append(span.earlier(shift))
    if window < HOUR:
        return sum(rollups.size_of(rollups.between(each.since - HOUR, each.until)) for each in spans)
    return sum(rollups.size_between(each.since, each.until) for each in spans)


def _seen_since(rollups: Rollups, span: Span) -> datetime:
    """Return the start of the first hour to read: as for a rollup, the second last sampled hour before the span."""
    from nsqanalytics.transforms.windows import floor_to_window

    first = floor_to_window(span.since, HOUR)
    return min([first, *[start for start in rollups.samples if start < first][-HOURS_BEFORE:]])


def _written(
    spark: SparkSession,
    place: Locations,
    rows: DataFrame,
    figures: Sequence[Figure],
    order: list[str],
    span: Span,
    progress: Progress,
    before: Span | None = None,
    hours: str = "",
    stage: str = "merging histograms",
) -> int:
    """Write the result.

    Its metadata contain ``span``, and ``before`` if given, as the periods that it covers, and ``hours``, the hours of
    the week that are compared; empty for all hours of both periods.
    """
    covered = {"covered_since": span.since, "covered_until": span.until}
    if before is not None:
        covered |= {"before_since": before.since, "before_until": before.until}
    rows = conforming(rows, spark_table(figures, covered, hours))
    with progress.following(spark, stage, expected_stages=9, start=0.5, end=0.95):
        return replace_result(rows, place.output, order)


def read_samples(spark: SparkSession, archive: str, since: datetime, until: datetime) -> DataFrame:
    """Return the SAMPLE rows taken in [since, until). Raises ArchiveMissing."""
    rollups = Rollups(archive)
    if not rollups.hours:
        raise ArchiveMissing(f"there is no archive at {samples_path(archive)}: has the collector run?")
    return _taken_within(rollups.read_samples(spark, since, until), since, until)


def _taken_within(samples: DataFrame, since: datetime | None, until: datetime) -> DataFrame:
    """Return the rows taken in [since, until), and those without a time or in another hour's folder, which are
    invalid (nsqanalytics/transforms/validation.py)."""
    from pyspark.sql import functions as F

    from nsqanalytics.transforms.validation import IS_IN_OWN_HOUR

    is_within = F.col("taken_at") < F.lit(until)
    if since is not None:
        is_within &= F.col("taken_at") >= F.lit(since)
    return samples.where(is_within | ~F.expr(IS_IN_OWN_HOUR))


JOBS: dict[str, Job] = {
    job.name: job
    for job in (
        Job(
            "latency",
            "End-to-end latency",
            "Percentiles of the time from publish to finish, by topic, channel and window, merged across nodes.",
            "report",
            LatencyParameters,
            tables.LATENCY,
            run_latency,
            worst="p99_ms",
        ),
        Job(
            "throughput",
            "Throughput and backlog",
            "Rates in and out, depth, time to drain, requeues and timeouts, by topic, channel and window.",
            "report",
            ThroughputParameters,
            tables.THROUGHPUT,
            run_throughput,
            worst="depth_max",
        ),
        Job(
            "objectives",
            "Objectives",
            "Share of messages that met a latency, backlog or success target, error budget used, and worst windows.",
            "report",
            ObjectivesParameters,
            tables.OBJECTIVES,
            run_objectives,
            worst="budget_burnt_percent",
        ),
        Job(
            "capacity",
            "Capacity",
            "Growth, the busiest hour, the consumers that it needs, and when a backlog is gone or fills the disk.",
            "report",
            CapacityParameters,
            tables.CAPACITY,
            run_capacity,
            worst="consumers_needed",
        ),
        Job(
            "forecast",
            "Forecast",
            "Depth, rates, bytes behind and consumers' capacity a week ahead, with bands and the error of a back-test.",
            "report",
            ForecastParameters,
            tables.FORECAST,
            run_forecast,
            worst="above_peak_percent",
        ),
        Job(
            "anomalies",
            "Anomalies",
            "Hours whose figures are unlike the same hour of past weeks, the most unusual first.",
            "report",
            AnomaliesParameters,
            tables.ANOMALIES,
            run_anomalies,
            worst="score",
        ),
        Job(
            "dead",
            "Dead messages",
            "Where messages die or are dropped, their share, and how many are dead at the end.",
            "report",
            DeadParameters,
            tables.DEAD,
            run_dead,
            worst="died_count",
        ),
        Job(
            "lives",
            "Lives of sampled messages",
            "How long sampled messages take to be delivered and finished, and their attempts, by channel and client.",
            "report",
            LivesParameters,
            tables.LIVES,
            run_lives,
            without_spark=no_lives,
            worst="finished_max_ms",
        ),
        Job(
            "compare",
            "Compare",
            "A period compared with an earlier one; changes that concern most messages first.",
            "report",
            CompareParameters,
            tables.COMPARE,
            run_compare,
            worst="score",
        ),
        Job(
            "rollup",
            "Roll up",
            "Store the totals of each hour and day, which makes long reports fast.",
            "maintenance",
            RollupParameters,
            tables.MAINTENANCE,
            run_rollup,
            without_spark=roll_up_nothing,
        ),
        Job(
            "compact",
            "Compact",
            "Merge the files of each past hour into one.",
            "maintenance",
            CompactParameters,
            tables.MAINTENANCE,
            run_compact,
            needs_spark=False,
        ),
        Job(
            "retain",
            "Retain",
            "Remove samples, events of sampled messages, and rollups at the end of their retention.",
            "maintenance",
            RetainParameters,
            tables.MAINTENANCE,
            run_retain,
            needs_spark=False,
        ),
    )
}


def find_job(name: str) -> Job:
    """Return the job. Raises BadParameter, whose text names all jobs."""
    try:
        return JOBS[name]
    except KeyError:
        raise BadParameter(f"there is no job {name!r}; there are {', '.join(JOBS)}") from None
