"""The list of all jobs, by name."""

from __future__ import annotations

from nsqanalytics import tables
from nsqanalytics.job import AnyJob, Job
from nsqanalytics.job_parameters import (
    AnomaliesParameters,
    CapacityParameters,
    CompactParameters,
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
from nsqanalytics.maintenance import bytes_to_roll_up, roll_up_nothing, run_compact, run_retain, run_rollup
from nsqanalytics.parameters import BadParameter
from nsqanalytics.reports.hours import run_anomalies, run_capacity, run_forecast
from nsqanalytics.reports.lives import bytes_of_events, no_lives, run_lives
from nsqanalytics.reports.reading import bytes_read
from nsqanalytics.reports.totals import run_compare, run_dead, run_objectives
from nsqanalytics.reports.windows import run_latency, run_throughput

JOBS: dict[str, AnyJob] = {
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
            bytes_read=bytes_read,
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
            bytes_read=bytes_read,
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
            bytes_read=bytes_read,
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
            bytes_read=bytes_read,
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
            bytes_read=bytes_read,
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
            bytes_read=bytes_read,
            worst="score",
        ),
        Job(
            "dead",
            "Dead messages",
            "Channels whose messages die or are dropped, their share, and how many are dead at the end.",
            "report",
            DeadParameters,
            tables.DEAD,
            run_dead,
            bytes_read=bytes_read,
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
            bytes_read=bytes_of_events,
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
            bytes_read=bytes_read,
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
            bytes_read=bytes_to_roll_up,
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


def find_job(name: str) -> AnyJob:
    """Return the job. Raises BadParameter, whose text names all jobs."""
    try:
        return JOBS[name]
    except KeyError:
        raise BadParameter(f"there is no job {name!r}; there are {', '.join(JOBS)}") from None
