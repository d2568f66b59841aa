"""Checks schedules of reports, and writes them to Celery beat's tables."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.core.exceptions import ValidationError
from django.core.validators import URLValidator, validate_email
from django.utils import timezone
from django_celery_beat.models import CrontabSchedule, IntervalSchedule, PeriodicTask

from nsqplatform.reports.cron import BadCron, Cron
from nsqplatform.reports.models import Report, ReportRun

TASK = "reports.run_scheduled"
MAINTENANCE = {
    "compact": ("Compact the archive", "5 * * * *"),
    "rollup": ("Roll up the archive", "20 * * * *"),
    "retain": ("Remove expired data", "40 2 * * *"),
}


def check(*, cron: str | None, every_seconds: int | None, time_zone: str) -> None:
    """Check a schedule's times. Raises ValidationError naming the field."""
    if (cron is None) == (every_seconds is None):
        raise ValidationError("a schedule has either cron or every_seconds")
    try:
        ZoneInfo(time_zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValidationError({"time_zone": f"{time_zone!r} is not a time zone such as UTC or Europe/Vienna"}) from None
    if cron is not None:
        try:
            Cron.parse(cron).next_after(timezone.now(), ZoneInfo(time_zone))
        except BadCron as error:
            raise ValidationError({"cron": f"{cron!r}: {error}"}) from None


def check_notification(*, on: str, webhook: str, email: str) -> None:
    """Check a schedule's notification settings. Raises ValidationError naming the field."""
    if webhook:
        try:
            URLValidator(schemes=["http", "https"])(webhook)
        except ValidationError:
            raise ValidationError({"notify_webhook": "an http or https address is needed"}) from None
    for address in recipients(email):
        try:
            validate_email(address)
        except ValidationError:
            raise ValidationError({"notify_email": f"{address!r} is not an e-mail address"}) from None
    if on != "never" and not webhook and not recipients(email):
        raise ValidationError({"notify_on": "a webhook or an e-mail address is needed to notify anybody"})


def recipients(email: str) -> list[str]:
    return [address.strip() for address in email.split(",") if address.strip()]


def next_runs(report: Report, *, count: int) -> list[datetime]:
    """The next due times in order, even if the schedule is disabled."""
    moment = timezone.now()
    if report.every_seconds is not None:
        step = timedelta(seconds=report.every_seconds)
        last = report.last_run_at
        first = moment + step if last is None else max(last + step, moment)
        return [first + n * step for n in range(count)]
    assert report.cron is not None
    zone, cron = ZoneInfo(report.time_zone), Cron.parse(report.cron)
    found: list[datetime] = []
    for _ in range(count):
        found.append(cron.next_after(found[-1] if found else moment, zone))
    return found


def apply(report: Report) -> None:
    """Update beat's entry of the report; the caller saves the report. Beat reads it within seconds.

    A changed or enabled schedule applies from now on: due times in the past create no run.
    """
    task = report.periodic_task or PeriodicTask(task=TASK)
    before = (task.crontab_id, task.interval_id, task.enabled)
    # The id makes the name unique, because beat's table ignores some differences.
    task.name = f"report {report.pk}: {report.name}"
    task.kwargs = json.dumps({"report_id": report.pk})
    task.enabled = report.enabled
    task.crontab = task.interval = None
    if report.cron is not None:
        task.crontab = _row(CrontabSchedule, **Cron.parse(report.cron).fields(), timezone=ZoneInfo(report.time_zone))
    else:
        task.interval = _row(IntervalSchedule, every=report.every_seconds, period=IntervalSchedule.SECONDS)
    if before != (task.crontab_id, task.interval_id, task.enabled):
        task.last_run_at = timezone.now()
    task.save()
    report.periodic_task = task


def schedule_maintenance() -> None:
    """Schedule the maintenance of the current cluster's archive, unless the cluster has a schedule or a run. The
    migrations do this for the default cluster."""
    if Report.objects.exists() or ReportRun.objects.exists():
        return
    for job, (name, cron) in MAINTENANCE.items():
        report = Report.objects.create(name=name, job=job, cron=cron, keep_days=7, created_by="nsq")
        apply(report)
        report.save()


def _row(table: Any, **values: Any) -> Any:
    """The row with these values, which is created if it does not exist. Schedules share rows, and the table may contain
    duplicates."""
    return table.objects.filter(**values).first() or table.objects.create(**values)
