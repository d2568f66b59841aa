"""What people may have done with reports: asked for, cancelled, scheduled. Each is permitted and checked here."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from django.db import IntegrityError, transaction
from kombu.exceptions import OperationalError as QueueUnreachable

from accounts.models import User
from accounts.roles import Permission
from accounts.services import require
from analytics.jobs import find_job
from reports import schedule, selectors, tasks
from reports.live import announce
from reports.models import Report, ReportRun, now
from reports.runner import changing
from reports.schedule import BadSchedule
from reports.schemas import Parameters

logger = logging.getLogger(__name__)


def request_run(*, job: str, parameters: Parameters, by: User) -> ReportRun:
    """Queue a run. Raises PermissionDenied or BadParameter, having changed nothing."""
    require(by, Permission.REPORT)
    run = ReportRun(job=job, parameters=_checked(job, parameters), requested_by=by.username)
    with transaction.atomic():
        run.save()
        transaction.on_commit(partial(_enqueue, run.pk))
    run.refresh_from_db()
    return run


def _enqueue(run_id: int) -> None:
    """The id is sent, not the run: the worker reads what is then true."""
    try:
        tasks.run_report.delay(run_id)
    except (QueueUnreachable, OSError) as error:
        with changing(run_id) as run:
            run.fail(error=f"the queue of reports does not answer: {error}", at=now())
        return
    announce(selectors.run(run_id))


def cancel_run(*, run_id: int, by: User) -> ReportRun:
    """Raises PermissionDenied, Http404, or WrongState if the run is over."""
    require(by, Permission.REPORT)
    selectors.run(run_id)
    with changing(run_id) as run:
        run.request_cancel(at=now())
    logger.info("run cancelled", extra={"run": run_id, "user": by.username})
    return run


def create_schedule(*, values: dict[str, Any], by: User) -> Report:
    """Schedule a report. Raises PermissionDenied, BadParameter or BadSchedule, having changed nothing."""
    require(by, Permission.REPORT)
    return _saved(Report(created_by=by.username), values)


def change_schedule(*, report_id: int, values: dict[str, Any], by: User) -> Report:
    """Change what ``values`` names. Raises PermissionDenied, Http404, BadParameter or BadSchedule."""
    require(by, Permission.REPORT)
    report = selectors.schedule(report_id)
    for given, other in (("cron", "every_seconds"), ("every_seconds", "cron")):
        if values.get(given) is not None and values.get(other) is None:
            values = values | {other: None}
    return _saved(report, values)


def delete_schedule(*, report_id: int, by: User) -> None:
    """Its runs and their results stay. Raises PermissionDenied or Http404."""
    require(by, Permission.REPORT)
    report = selectors.schedule(report_id)
    with transaction.atomic():
        if report.periodic_task is not None:
            report.periodic_task.delete()
        report.delete()


def _saved(report: Report, values: dict[str, Any]) -> Report:
    for name, value in values.items():
        setattr(report, name, value)
    report.name = report.name.strip()
    if not report.name:
        raise BadSchedule("name: a schedule needs one")
    report.parameters = _checked(report.job, report.parameters)
    schedule.check(cron=report.cron, every_seconds=report.every_seconds, time_zone=report.time_zone)
    try:
        with transaction.atomic():
            report.save()
            schedule.apply(report)
            report.save()
    except IntegrityError:
        raise BadSchedule(f"name: there is a schedule {report.name!r} already") from None
    return report


def _checked(job: str, parameters: Parameters) -> Parameters:
    """Those that say something; raises BadParameter."""
    find_job(job).checked(parameters)
    return {name: value for name, value in parameters.items() if value not in (None, "")}
