"""The list of all jobs, by name."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from nsqanalytics import tables
from nsqanalytics.files import Folder
from nsqanalytics.job import Job
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
    ThroughputParameters,
)
from nsqanalytics.life_events import files_between, lives_path
from nsqanalytics.locations import Locations
from nsqanalytics.maintenance import roll_up_nothing, rolled_up_period, run_compact, run_retain, run_rollup
from nsqanalytics.parameters import BadParameter
from nsqanalytics.reports.hours import run_anomalies, run_capacity, run_forecast
from nsqanalytics.reports.lives import no_lives, run_lives
from nsqanalytics.reports.reading import HOUR
from nsqanalytics.reports.totals import run_compare, run_dead, run_objectives
from nsqanalytics.reports.windows import run_latency, run_throughput
from nsqanalytics.rollups import Rollups, stale_hours

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


def bytes_read(place: Locations, args: Any, now: datetime) -> int:
    """Return the approximate number of bytes of the archive that a job with these parameters reads."""
    if isinstance(args, LivesParameters):
        span = args.span(now)
        return sum(file.size for file in files_between(Folder(lives_path(place.archive)), span.since, span.until))
    rollups = Rollups(place.archive)
    if isinstance(args, RollupParameters):
        return rollups.size_of(stale_hours(rollups, *rolled_up_period(args, now)))
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
