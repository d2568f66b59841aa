"""The jobs there are: each reads the archive, runs a transform, checks its columns and replaces its result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from analytics import compaction, tables
from analytics.archive import samples_path
from analytics.parameters import BadParameter, Given, described, parse
from analytics.places import ArchiveMissing, Place
from analytics.progress import Progress
from analytics.requests import (
    WINDOWS,
    CapacityParameters,
    CompactParameters,
    CompareParameters,
    LatencyParameters,
    ObjectivesParameters,
    RetainParameters,
    RollupParameters,
    Scope,
    ThroughputParameters,
)
from analytics.results import conforming, replace_result, replace_table
from analytics.rollups import DAY, Rollups, stale_days, stale_hours
from analytics.schema import spark_schema
from analytics.tables import Figure, spark_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class Job:
    """``run(spark, place, parameters, now, progress)`` returns the number of rows it wrote.

    ``figures`` are its result's columns. A job that does not need Spark is given None for it.
    """

    name: str
    title: str
    description: str
    kind: Literal["report", "maintenance"]
    parameters: type
    figures: Sequence[Figure]
    run: Callable[[Any, Place, Any, datetime, Progress], int]
    needs_spark: bool = True

    def checked(self, given: Given) -> Any:
        """The parameters as this job takes them. Raises BadParameter."""
        return parse(self.parameters, given)

    def form(self) -> dict[str, dict[str, Any]]:
        """Its parameters as JSON, for a form."""
        return described(self.parameters)


def run_latency(spark: SparkSession, place: Place, args: LatencyParameters, now: datetime, progress: Progress) -> int:
    """Percentiles per window of the period; the last window is as far as the archive goes."""
    from analytics.transforms.latency import latency

    rows = latency(activity_of(spark, place, args, WINDOWS[args.window], now, progress), args.minimum_count)
    return _written(spark, place, rows, tables.LATENCY, ["window_start", "topic", "channel"], progress)


def run_throughput(
    spark: SparkSession, place: Place, args: ThroughputParameters, now: datetime, progress: Progress
) -> int:
    from analytics.transforms.throughput import throughput

    window = WINDOWS[args.window]
    rows = throughput(activity_of(spark, place, args, window, now, progress), window)
    return _written(spark, place, rows, tables.THROUGHPUT, ["window_start", "topic", "channel"], progress)


def run_objectives(
    spark: SparkSession, place: Place, args: ObjectivesParameters, now: datetime, progress: Progress
) -> int:
    from analytics.transforms.objectives import objectives

    rows = objectives(
        activity_of(spark, place, args, WINDOWS[args.window], now, progress),
        percentile={"p99.9": "p999_ms"}.get(args.percentile, f"{args.percentile}_ms"),
        latency_ms=args.latency_ms,
        backlog=args.backlog,
        objective_percent=args.objective_percent,
    )
    order = ["-span", "-missed_count", "span_start", "topic", "channel", "objective"]
    return _written(spark, place, rows, tables.OBJECTIVES, order, progress)


def run_capacity(spark: SparkSession, place: Place, args: CapacityParameters, now: datetime, progress: Progress) -> int:
    from analytics.transforms.capacity import capacity

    hours = activity_of(spark, place, args, HOUR, now, progress)
    rows = capacity(hours, horizon=args.horizon, utilisation_percent=args.utilisation_percent)
    return _written(spark, place, rows, tables.CAPACITY, ["-busiest_in_rate", "topic", "channel"], progress)


def run_compare(spark: SparkSession, place: Place, args: CompareParameters, now: datetime, progress: Progress) -> int:
    """The period, and the one as long that ended ``before`` earlier."""
    from analytics.transforms.activity import as_one_window
    from analytics.transforms.compare import compare

    until = args.until or now

    def period(end: datetime) -> DataFrame:
        hours = activity_of(spark, place, args, HOUR, end, progress, until=end)
        return as_one_window(hours, end - args.period)

    rows = compare(period(until), period(until - args.before), args.minimum_count)
    return _written(spark, place, rows, tables.COMPARE, ["-score", "topic", "channel", "figure"], progress)


def run_rollup(spark: SparkSession, place: Place, args: RollupParameters, now: datetime, progress: Progress) -> int:
    """Roll up what is over and has no valid rollup yet: hours first, then the days whose hours are all there."""
    until = args.until or now
    since = (until - args.period).astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    done: list[compaction.Done] = []
    progress.at(0.1, "list the archive")
    while hours := stale_hours(rollups := Rollups(place.archive), since, until)[:ROLLED_AT_ONCE]:
        with progress.following(spark, f"roll up {len(hours)} hours", expected_stages=12, start=0.15, end=0.8):
            rollups.make_hours(spark, hours)
        done += [(hour.start, "rolled up", len(rollups.samples[hour.start]), 1, 0, 0) for hour in hours]
        spark.catalog.clearCache()
        made = Rollups(place.archive).hours
        if any(made[hour.start].mark == hour.mark and made[hour.start].rollup is None for hour in hours):
            break  # an hour of no rows: it would be made again for ever
    rollups = Rollups(place.archive)
    if days := stale_days(rollups, since, until):
        with progress.following(spark, f"add up {len(days)} days", expected_stages=4, start=0.8, end=0.95):
            rollups.make_days(spark, days)
        done += [(day, "day added up", len(rollups.between(day, day + DAY)), 1, 0, 0) for day in days]
    return replace_table(done, tables.MAINTENANCE, place.output)


ROLLED_AT_ONCE = 48
"""Hours in one Spark job: what is sorted at once stays within the memory and the disk of a laptop."""


def run_compact(_: None, place: Place, args: CompactParameters, now: datetime, progress: Progress) -> int:
    return _maintained(compaction.compact(place.archive, args.older_than, args.until or now), place, progress)


def run_retain(_: None, place: Place, args: RetainParameters, now: datetime, progress: Progress) -> int:
    done = compaction.retain(place.archive, args.samples, args.rollups, args.until or now)
    return _maintained(done, place, progress)


def _maintained(done: Iterable[compaction.Done], place: Place, progress: Progress) -> int:
    rows = []
    for row in done:
        rows.append(row)
        progress.at(0.5, f"{row[1]} {row[0]:%Y-%m-%d %H:00}")
    return replace_table(rows, tables.MAINTENANCE, place.output)


def activity_of(
    spark: SparkSession,
    place: Place,
    args: Scope,
    window: timedelta,
    now: datetime,
    progress: Progress,
    until: datetime | None = None,
) -> DataFrame:
    """ACTIVITY of the period: from rollups where there are valid ones and windows are whole hours, else from samples.

    Windows are whole: the first is the one that the period begins in. Raises ArchiveMissing.
    """
    from pyspark.sql import functions as F

    from analytics.transforms.activity import activity, rolled_up
    from analytics.transforms.windows import floor_to_window

    until = until or args.until or now
    since = floor_to_window(until - args.period, window)
    progress.at(0.15, "list the archive")
    rollups = Rollups(place.archive)
    if not rollups.hours:
        raise ArchiveMissing(f"there is no archive at {samples_path(place.archive)}: has the collector run?")
    with progress.following(spark, "order readings", expected_stages=6, start=0.2, end=0.5):
        if window < HOUR:
            # The first window counts from the last reading before it: in its own hour, or in the last that has any.
            before = [start for start in rollups.hours if start < floor_to_window(since, HOUR)]
            samples = read_samples(spark, place.archive, before[-1] if before else since - HOUR, until)
            rows = activity(samples, window, topic=args.topic, channel=args.channel)
            return rows.where((F.col("window_start") >= F.lit(since)) & F.col("window_start").isNotNull())
        rows = rollups.read(spark, since, until, daily=window == DAY)
    for column in ("topic", "channel"):
        if wanted := getattr(args, column):
            rows = rows.where(F.col(column) == wanted)
    return rows if window == HOUR else rolled_up(rows, window)


def _written(
    spark: SparkSession, place: Place, rows: DataFrame, figures: Sequence[Figure], order: list[str], progress: Progress
) -> int:
    rows = conforming(rows, spark_table(figures))
    with progress.following(spark, "merge histograms", expected_stages=9, start=0.5, end=0.95):
        return replace_result(rows, place.output, order)


def read_samples(spark: SparkSession, archive: str, since: datetime, until: datetime) -> DataFrame:
    """SAMPLE rows taken in [since, until). Raises ArchiveMissing."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    path = samples_path(archive)
    try:
        samples = spark.read.schema(spark_schema()).parquet(path)
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            raise ArchiveMissing(f"there is no archive at {path}: has the collector run?") from None
        raise
    # The dates say which folders to open, the times which rows to keep.
    in_folders = F.col("date").between(F.lit(since.astimezone(UTC).date()), F.lit(until.astimezone(UTC).date()))
    return samples.where(in_folders & (F.col("taken_at") >= F.lit(since)) & (F.col("taken_at") < F.lit(until)))


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
        ),
        Job(
            "throughput",
            "Throughput and backlog",
            "Rates in and out, depth, time to drain, requeues and timeouts, by topic, channel and window.",
            "report",
            ThroughputParameters,
            tables.THROUGHPUT,
            run_throughput,
        ),
        Job(
            "objectives",
            "Objectives",
            "How often a latency and a backlog target held, the error budget burnt, the worst windows.",
            "report",
            ObjectivesParameters,
            tables.OBJECTIVES,
            run_objectives,
        ),
        Job(
            "capacity",
            "Capacity",
            "Growth, busiest hour, and the consumers that it needs at the rate they were seen to work.",
            "report",
            CapacityParameters,
            tables.CAPACITY,
            run_capacity,
        ),
        Job(
            "compare",
            "Compare",
            "This period against an earlier one: what changed, most first.",
            "report",
            CompareParameters,
            tables.COMPARE,
            run_compare,
        ),
        Job(
            "rollup",
            "Roll up",
            "Keep hours and days of the archive added up, so that long reports are quick.",
            "maintenance",
            RollupParameters,
            tables.MAINTENANCE,
            run_rollup,
        ),
        Job(
            "compact",
            "Compact",
            "Make one file of each past hour's many.",
            "maintenance",
            CompactParameters,
            tables.MAINTENANCE,
            run_compact,
            needs_spark=False,
        ),
        Job(
            "retain",
            "Retain",
            "Remove samples and rollups that are older than they are kept.",
            "maintenance",
            RetainParameters,
            tables.MAINTENANCE,
            run_retain,
            needs_spark=False,
        ),
    )
}


def find_job(name: str) -> Job:
    """Raises BadParameter naming the jobs there are."""
    try:
        return JOBS[name]
    except KeyError:
        raise BadParameter(f"there is no job {name!r}; there are {', '.join(JOBS)}") from None
