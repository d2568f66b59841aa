"""Celery beat's scheduler for reports. It reads cron lines as :mod:`reports.cron` does, and adds the time of sending to
each request of a run."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from celery.beat import BeatLazyFunc
from celery.schedules import BaseSchedule, schedstate
from django.db.models import Q
from django_celery_beat.models import PeriodicTask
from django_celery_beat.schedulers import DatabaseScheduler, ModelEntry

from nsqplatform.reports.cron import Cron
from nsqplatform.reports.schedule import TASK


class CronSchedule(BaseSchedule):
    """A cron line in a time zone, with the interface of beat's schedules."""

    def __init__(self, line: str, zone: ZoneInfo, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.line, self.zone = line, zone
        self._cron = Cron.parse(line)

    def remaining_estimate(self, last_run_at: datetime) -> timedelta:
        return self._cron.next_after(last_run_at, self.zone) - self.now().astimezone(UTC)

    def is_due(self, last_run_at: datetime) -> tuple[bool, float]:
        """Whether it was due at least once since ``last_run_at``, and the seconds until it is due again."""
        remaining = self.remaining_estimate(last_run_at)
        if remaining > timedelta(0):
            return schedstate(False, remaining.total_seconds())
        return schedstate(True, max(0.0, self.remaining_estimate(self.now()).total_seconds()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CronSchedule) and (self.line, self.zone) == (other.line, other.zone)

    def __hash__(self) -> int:
        return hash((self.line, self.zone))

    def __repr__(self) -> str:
        return f"<cron: {self.line} {self.zone}>"


class Entry(ModelEntry):
    """A row of beat's table. The task of a report is sent with the time of the request, so that late requests can be
    recognised."""

    def __init__(self, model: PeriodicTask, app: Any = None) -> None:
        super().__init__(model, app=app)
        if model.task == TASK:
            self.kwargs: dict[str, object] = {**self.kwargs, "asked_at": BeatLazyFunc(time.time)}
            if model.crontab is not None and (report := getattr(model, "report", None)) is not None and report.cron:
                self.schedule = CronSchedule(report.cron, ZoneInfo(report.time_zone), app=self.app)


class Scheduler(DatabaseScheduler):
    """django-celery-beat's scheduler, with the entries of this module."""

    Entry = Entry

    def _get_crontab_exclude_query(self) -> Q:
        """Exclude no entries. By default, beat reads an entry only around its hour. A report that was due while beat
        was down would then be requested almost a day late, two hours before it is due again."""
        return Q(pk__in=())
