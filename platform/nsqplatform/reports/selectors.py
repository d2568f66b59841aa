"""Reading reports, runs and results."""

from __future__ import annotations

from pathlib import Path

from django.db.models import QuerySet
from django.http import Http404

from nsqanalytics.results import Result
from nsqplatform.reports.job_process import result_folder
from nsqplatform.reports.models import Report, ReportRun
from nsqplatform.worker_task import state_in_words
from nsqwire.counted import counted


class NoResult(Exception):
    """The run has no result, or it was removed; the message has the reason."""


def schedules() -> QuerySet[Report]:
    return Report.objects.select_related("periodic_task")


def schedule(report_id: int) -> Report:
    """The schedule. Raises Http404."""
    report = schedules().filter(pk=report_id).first()
    if report is None:
        raise Http404(f"there is no schedule {report_id}")
    return report


def parquet(run_id: int) -> Path:
    """The file with the whole result. Raises Http404 or NoResult."""
    result(run_id)
    [file] = Path(result_folder(run_id)).glob("*.parquet")  # nsqanalytics.results writes one
    return file


def runs(
    *, limit: int, before: int | None, job: str | None, state: str | None = None, schedule_id: int | None = None
) -> QuerySet[ReportRun]:
    """The runs that match all given values, newest first. ``before`` is the id of the last run already seen."""
    found = ReportRun.objects.all()
    if before is not None:
        found = found.filter(pk__lt=before)
    if job is not None:
        found = found.filter(job=job)
    if state is not None:
        found = found.filter(state=state)
    if schedule_id is not None:
        found = found.filter(report=schedule_id)
    return found[:limit]


def run(run_id: int) -> ReportRun:
    """The run. Raises Http404."""
    found = ReportRun.objects.filter(pk=run_id).first()
    if found is None:
        raise Http404(f"there is no run {run_id}")
    return found


def result(run_id: int) -> Result:
    """The result of a run. Raises Http404 or NoResult."""
    found = run(run_id)
    if found.state != ReportRun.State.SUCCEEDED:
        raise NoResult(f"run {run_id} has no result: it {state_in_words(found.state)}")
    if found.result_dropped_at is not None:
        kept = counted(found.keep_days, "day")
        raise NoResult(f"the result of run {run_id} was removed: its results are kept for {kept}")
    try:
        return Result(Path(result_folder(run_id)))
    except (OSError, ValueError):
        raise NoResult(f"the result of run {run_id} no longer exists") from None
