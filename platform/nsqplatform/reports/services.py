"""The actions of people on reports: running, cancelling, scheduling. Each checks permissions and values."""

from __future__ import annotations

from functools import partial

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils import timezone
from kombu.exceptions import OperationalError as QueueUnreachable

from nsqanalytics.job import AnyJob
from nsqanalytics.job_list import find_job
from nsqanalytics.parameters import BadParameter
from nsqplatform.accounts.audit import record
from nsqplatform.accounts.models import User
from nsqplatform.accounts.rights import require
from nsqplatform.accounts.roles import Permission
from nsqplatform.reports import preparation, schedule, selectors, tasks
from nsqplatform.reports.live import broadcast_run
from nsqplatform.reports.models import Report, ReportRun
from nsqplatform.reports.runner import changing
from nsqplatform.reports.schemas import Parameters, ScheduleChange, ScheduleIn


def request_run(
    *,
    job: str,
    parameters: Parameters,
    by: User,
    remote_address: str = "",
    time_limit_s: int = 7200,
    keep_days: int = 90,
) -> ReportRun:
    """Queue a run. Raises PermissionDenied or ValidationError, and then changes nothing."""
    _may_run(job, by)
    run = ReportRun(
        job=job,
        parameters=_checked(job, parameters),
        requested_by=by.username,
        time_limit_s=time_limit_s,
        keep_days=keep_days,
    )
    return _queued(run, by, remote_address)


def run_schedule(*, report_id: int, by: User, remote_address: str = "") -> ReportRun:
    """Queue a run of a schedule now, as if it were due. Raises PermissionDenied, Http404 or ValidationError."""
    report = selectors.schedule(report_id)
    _may_run(report.job, by)
    return _queued(tasks.run_of(report, requested_by=by.username), by, remote_address)


def prepare_session(*, by: User) -> None:
    """Ask the workers to have a Spark session ready for a report. Raises PermissionDenied."""
    require(by, Permission.REPORT)
    preparation.request_session()


def _may_run(job: str, by: User) -> None:
    """Check that ``by`` may run the job; a maintenance job requires a permission of its own. Raises PermissionDenied,
    or ValidationError for an unknown job."""
    require(by, Permission.REPORT)
    if _job(job).kind == "maintenance":
        require(by, Permission.MAINTAIN)


def _queued(run: ReportRun, by: User, remote_address: str) -> ReportRun:
    with transaction.atomic():
        run.save()
        record(user=by, action="run report", subject=f"{run.job}, run {run.pk}", remote_address=remote_address)
        transaction.on_commit(partial(_enqueue, run.pk))
    run.refresh_from_db()
    return run


def _enqueue(run_id: int) -> None:
    """Send the run's id to the queue. The worker reads the run's current state."""
    try:
        tasks.run_report.delay(run_id)
    except (QueueUnreachable, OSError) as error:
        with changing(run_id) as run:
            run.fail(error=f"cannot queue the run: {error}", at=timezone.now())
        return
    broadcast_run(selectors.run(run_id))


def cancel_run(*, run_id: int, by: User, remote_address: str = "") -> ReportRun:
    """Cancel a run. Raises PermissionDenied, Http404, or WrongState if the run has ended."""
    require(by, Permission.REPORT)
    selectors.run(run_id)
    with changing(run_id) as run:
        run.request_cancel(at=timezone.now())
        record(user=by, action="cancel report", subject=f"{run.job}, run {run_id}", remote_address=remote_address)
    if run.report_id is not None and not run.is_unfinished:
        tasks.queue_next_run(run.report_id)
    return run


def create_schedule(*, values: ScheduleIn, by: User, remote_address: str = "") -> Report:
    """Schedule a report. Raises PermissionDenied or ValidationError, and then changes nothing."""
    require(by, Permission.SCHEDULE)
    report = save_schedule(Report(created_by=by.username, **values.dict()))
    record(user=by, action="create schedule", subject=report.name, remote_address=remote_address)
    return report


def change_schedule(*, report_id: int, values: ScheduleChange, by: User, remote_address: str = "") -> Report:
    """Change what is set in ``values``. Setting one of ``cron`` and ``every_seconds`` clears the other.

    Raises PermissionDenied, Http404 or ValidationError."""
    require(by, Permission.SCHEDULE)
    report = selectors.schedule(report_id)
    changed = values.dict(exclude_unset=True)
    if values.cron is not None and values.every_seconds is None:
        changed["every_seconds"] = None
    elif values.every_seconds is not None and values.cron is None:
        changed["cron"] = None
    for name, value in changed.items():
        setattr(report, name, value)
    report = save_schedule(report)
    detail = ", ".join(sorted(changed))
    record(user=by, action="change schedule", subject=report.name, detail=detail, remote_address=remote_address)
    return report


def delete_schedule(*, report_id: int, by: User, remote_address: str = "") -> None:
    """Delete a schedule. Its runs and their results stay. Raises PermissionDenied or Http404."""
    require(by, Permission.SCHEDULE)
    report = selectors.schedule(report_id)
    with transaction.atomic():
        remove_schedule(report)
        record(user=by, action="delete schedule", subject=report.name, remote_address=remote_address)


def remove_schedule(report: Report) -> None:
    """Delete the schedule and Celery beat's entry, without an audit entry."""
    if report.periodic_task is not None:
        report.periodic_task.delete()
    report.delete()


def checked_schedule(report: Report) -> Report:
    """Return the schedule without empty parameters. Raises ValidationError naming the field."""
    report.name = report.name.strip()
    if not report.name:
        raise ValidationError({"name": "a schedule needs a name"})
    report.parameters = _checked(report.job, report.parameters)
    schedule.check(cron=report.cron, every_seconds=report.every_seconds, time_zone=report.time_zone)
    schedule.check_notification(on=report.notify_on, webhook=report.notify_webhook, email=report.notify_email)
    return report


def save_schedule(report: Report) -> Report:
    """Check and save the schedule with Celery beat's entry. Raises ValidationError naming the field."""
    checked_schedule(report)
    try:
        with transaction.atomic():
            report.save()
            schedule.apply(report)
            report.save()
    except IntegrityError:
        raise ValidationError({"name": f"there is a schedule {report.name!r} already"}) from None
    return report


def _checked(job: str, parameters: Parameters) -> Parameters:
    """The checked parameters without empty ones. Raises ValidationError."""
    try:
        _job(job).checked(parameters)
    except BadParameter as error:
        field = f"parameters.{error.parameter}" if error.parameter else "parameters"
        raise ValidationError({field: error.reason}) from None
    return {name: value for name, value in parameters.items() if value not in (None, "")}


def _job(name: str) -> AnyJob:
    """The job of this name. Raises ValidationError."""
    try:
        return find_job(name)
    except BadParameter as error:
        raise ValidationError({"job": error.reason}) from None
