"""The jobs there are: each reads the archive, runs a transform, checks its columns and replaces its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from analytics.archive import samples_path
from analytics.parameters import BadParameter, Given, Parameter, described, parse
from analytics.progress import Progress
from analytics.results import conforming, replace_result
from analytics.schema import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WINDOWS = {"5m": timedelta(minutes=5), "1h": timedelta(hours=1), "1d": timedelta(days=1)}


class ArchiveMissing(Exception):
    """There is nothing to report on; the message says where we looked."""


@dataclass(frozen=True, kw_only=True)
class LatencyParameters:
    window: Annotated[
        str,
        Parameter(
            kind="choice", title="Window", default="1h", choices=tuple(WINDOWS), description="Length of a window, UTC."
        ),
    ]
    period: Annotated[
        timedelta,
        Parameter(
            kind="duration", title="Period", default="24h", description="How far back to report, for example 6h or 7d."
        ),
    ]
    until: Annotated[
        datetime | None,
        Parameter(
            kind="time", title="Until", description="End of the period, for example 2026-03-14T15:00Z; now if empty."
        ),
    ]
    topic: Annotated[str, Parameter(kind="text", title="Topic", description="Only this topic; all if empty.")]
    channel: Annotated[str, Parameter(kind="text", title="Channel", description="Only this channel; all if empty.")]
    minimum_count: Annotated[
        int,
        Parameter(
            kind="integer",
            title="Minimum for p99.9",
            default=1000,
            minimum=1,
            description="A window with fewer messages has no p99.9.",
        ),
    ]


@dataclass(frozen=True)
class Place:
    """Where a run reads and writes: paths or URIs that Spark knows."""

    archive: str
    output: str


@dataclass(frozen=True)
class Job:
    """``run(spark, place, parameters, now, progress)`` returns the number of rows it wrote."""

    name: str
    title: str
    description: str
    parameters: type
    run: Callable[[SparkSession, Place, Any, datetime, Progress], int]

    def checked(self, given: Given) -> Any:
        """The parameters as this job takes them. Raises BadParameter."""
        return parse(self.parameters, given)

    def form(self) -> dict[str, dict[str, Any]]:
        """Its parameters as JSON, for a form."""
        return described(self.parameters)


def run_latency(spark: SparkSession, place: Place, args: LatencyParameters, now: datetime, progress: Progress) -> int:
    """Percentiles per window of the period; the last window is as far as the archive goes."""
    from analytics.transforms.latency import LATENCY, latency
    from analytics.transforms.windows import floor_to_window

    window = WINDOWS[args.window]
    until = args.until or now
    since = floor_to_window(until - args.period, window)
    # The counts of the first window start from the last reading before it, which may be a collector's outage away.
    lookback = max(window, timedelta(hours=1))
    progress.at(0.15, "list the archive")
    samples = read_samples(spark, place.archive, since - lookback, until)
    rows = latency(samples, window, args.minimum_count)
    rows = rows.where(rows["window_start"] >= since)
    # Asked of the rows, not of the samples: whether a node was watched before is seen from all its samples. Spark
    # itself moves the question to the scan where it changes nothing.
    for column in ("topic", "channel"):
        if wanted := getattr(args, column):
            rows = rows.where(rows[column] == wanted)
    rows = conforming(rows, LATENCY)
    with progress.following(spark, "merge histograms", expected_stages=9, start=0.25, end=0.95):
        return replace_result(rows, place.output, ["window_start", "topic", "channel"])


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
            LatencyParameters,
            run_latency,
        ),
    )
}


def find_job(name: str) -> Job:
    """Raises BadParameter naming the jobs there are."""
    try:
        return JOBS[name]
    except KeyError:
        raise BadParameter(f"there is no job {name!r}; there are {', '.join(JOBS)}") from None


def is_local(path: str) -> bool:
    """Whether a path is on this machine's file system, and not a URI for Spark alone."""
    return "://" not in path or path.startswith("file://")


def local_path(path: str) -> Path:
    return Path(path.removeprefix("file://"))
