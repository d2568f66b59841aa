"""Estimates the remaining time of a run from an earlier run of the same job and parameters, or from its progress."""

from __future__ import annotations

from datetime import datetime

from nsqplatform.reports.models import ReportRun

SURE_FROM = 0.2
"""The estimate uses the progress from this value on. Before it, most of the elapsed time was spent starting Java."""


def earlier_run(run: ReportRun) -> ReportRun | None:
    """The last successful run of the same job and parameters."""
    return ReportRun.objects.filter(
        job=run.job, parameters=run.parameters, state=ReportRun.State.SUCCEEDED, pk__lt=run.pk
    ).first()


def seconds_left(run: ReportRun, earlier: ReportRun | None, *, at: datetime) -> int | None:
    """The estimated remaining seconds; None if unknown. An estimate from an earlier run never exceeds the time that
    this run took from the start of the same stage."""
    if run.started_at is None:
        return None
    if earlier is not None and (left := _by_stages(run, earlier, at)) is not None:
        return max(0, round(left))
    if run.progress < SURE_FROM:
        return None
    # A clock that is set back makes the elapsed time negative, which the database does not accept.
    return max(0, round((at - run.started_at).total_seconds() * (1 - run.progress) / run.progress))


def _by_stages(run: ReportRun, earlier: ReportRun, at: datetime) -> float | None:
    """The time, in seconds, that the earlier run took from the start of the present stage, minus the time that this run
    has spent in it. At least the time that the earlier run took after the stage. None if it did not have the stage."""
    if not run.stages or not earlier.stages or earlier.finished_at is None:
        return None
    current, end_ms = run.stages[-1], earlier.finished_at.timestamp() * 1000
    starts = [(stage["name"], stage["started_at"]) for stage in earlier.stages]
    for (name, started_at), (_, next_at) in zip(starts, [*starts[1:], ("", end_ms)], strict=True):
        if name == current["name"]:
            spent_ms = at.timestamp() * 1000 - current["started_at"]
            return max(end_ms - next_at, end_ms - started_at - spent_ms) / 1000
    return None
