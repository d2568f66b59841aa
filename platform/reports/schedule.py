"""From a report's schedule to what Celery beat reads."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from celery.schedules import ParseException, crontab
from django.core.exceptions import ValidationError
from django.core.validators import URLValidator, validate_email
from django.utils import timezone
from django_celery_beat.models import CrontabSchedule, IntervalSchedule, PeriodicTask

from reports.models import Report

TASK = "reports.run_scheduled"
_FIELDS = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")


class BadSchedule(Exception):
    """A schedule that cannot be kept; the message names what is wrong with it."""


def check(*, cron: str | None, every_seconds: int | None, time_zone: str) -> None:
    """Raises BadSchedule."""
    if (cron is None) == (every_seconds is None):
        raise BadSchedule("a schedule has either cron or every_seconds")
    try:
        ZoneInfo(time_zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise BadSchedule(f"time_zone: {time_zone!r} is not a time zone such as UTC or Europe/Vienna") from None
    if cron is not None:
        try:
            crontab(**_cron_fields(cron))
        except (ParseException, ValueError) as error:
            raise BadSchedule(f"cron: {cron!r}: {error}") from None


def check_notification(*, on: str, webhook: str, email: str) -> None:
    """Raises BadSchedule."""
    if webhook:
        try:
            URLValidator(schemes=["http", "https"])(webhook)
        except ValidationError:
            raise BadSchedule("notify_webhook: an http or https address is needed") from None
    for address in recipients(email):
        try:
            validate_email(address)
        except ValidationError:
            raise BadSchedule(f"notify_email: {address!r} is not an e-mail address") from None
    if on != "never" and not webhook and not recipients(email):
        raise BadSchedule("notify_on: a webhook or an e-mail address is needed to notify anybody")


def recipients(email: str) -> list[str]:
    return [address.strip() for address in email.split(",") if address.strip()]


def next_runs(report: Report, *, count: int) -> list[datetime]:
    """When it is due next, the soonest first, whether or not it is enabled."""
    moment = timezone.now()
    if report.every_seconds is not None:
        step = timedelta(seconds=report.every_seconds)
        last = report.periodic_task.last_run_at if report.periodic_task else None
        first = moment + step if last is None else max(last + step, moment)
        return [first + n * step for n in range(count)]
    assert report.cron is not None
    zone, entry = ZoneInfo(report.time_zone), crontab(**_cron_fields(report.cron))
    found: list[datetime] = []
    for _ in range(count):
        # Celery's own arithmetic, on the wall clock of the schedule's zone: what beat will do.
        start, forward, _now = entry.remaining_delta(found[-1] if found else moment, tz=zone)
        found.append((start + forward).astimezone(UTC))
    return found


def apply(report: Report) -> None:
    """Make beat's entry for the report agree with it; the caller saves the report. Beat notices within seconds."""
    task = report.periodic_task or PeriodicTask(task=TASK)
    # The id keeps names apart that differ only where beat's table does not look.
    task.name = f"report {report.pk}: {report.name}"
    task.kwargs = json.dumps({"report_id": report.pk})
    task.enabled = report.enabled
    task.crontab = task.interval = None
    if report.cron is not None:
        task.crontab, _ = CrontabSchedule.objects.get_or_create(
            **_cron_fields(report.cron), timezone=ZoneInfo(report.time_zone)
        )
    else:
        task.interval, _ = IntervalSchedule.objects.get_or_create(
            every=report.every_seconds, period=IntervalSchedule.SECONDS
        )
    task.save()
    report.periodic_task = task


def _cron_fields(cron: str) -> dict[str, str]:
    parts = cron.split()
    if len(parts) != len(_FIELDS):
        raise ValueError(f"five fields are needed ({' '.join(_FIELDS)}), there are {len(parts)}")
    return dict(zip(_FIELDS, parts, strict=True))
