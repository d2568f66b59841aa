"""Reports: what is to be run and when, and every run there was."""

from __future__ import annotations

import os
import socket
from datetime import datetime, timedelta
from typing import ClassVar

from django.db import models
from django.utils import timezone
from django_celery_beat.models import PeriodicTask

LOG_TAIL_CHARACTERS = 16_384
ABANDONED_AFTER = timedelta(seconds=45)
"""A worker says every few seconds that it is still at a run; after so long a silence it has died."""


TIME_LIMIT = timedelta(hours=2)
"""A run that takes longer is stopped, unless it was given another limit."""
KEEP_DAYS = 90
"""How long a result is kept, unless told otherwise; what is known of its run stays."""


class WrongState(Exception):
    """The run is not in a state where this can be done to it; the message says in which it is."""


class Report(models.Model):
    """A job with its parameters, run when its schedule says so: by ``cron`` or every ``every_seconds``."""

    class Overlap(models.TextChoices):
        """What becomes of a run that is due while the one before it is not over."""

        SKIP = "skip"
        QUEUE = "queue"
        CANCEL = "cancel"

    class NotifyOn(models.TextChoices):
        NEVER = "never"
        FAILURE = "failure"
        COMPLETION = "completion"

    name = models.CharField(max_length=100, unique=True)
    job = models.CharField(max_length=64)
    parameters = models.JSONField(default=dict)
    cron = models.CharField(max_length=200, null=True)
    every_seconds = models.PositiveIntegerField(null=True)
    time_zone = models.CharField(max_length=64, default="UTC")
    enabled = models.BooleanField(default=True)
    overlap = models.CharField(max_length=8, choices=Overlap.choices, default=Overlap.SKIP)
    retries = models.PositiveSmallIntegerField(default=0)
    retry_after_s = models.PositiveIntegerField(default=60)
    """The wait before the first retry; each next one is twice as long."""
    time_limit_s = models.PositiveIntegerField(default=int(TIME_LIMIT.total_seconds()))
    keep_days = models.PositiveSmallIntegerField(default=KEEP_DAYS)
    notify_on = models.CharField(max_length=12, choices=NotifyOn.choices, default=NotifyOn.NEVER)
    notify_webhook = models.CharField(max_length=500, blank=True, default="")
    notify_email = models.CharField(max_length=500, blank=True, default="")
    """Addresses, with commas between."""
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField(auto_now_add=True)
    last_run_at = models.DateTimeField(null=True)
    """When it last made a run because it was due."""
    skipped_count = models.PositiveIntegerField(default=0)
    """How often it was due and made no run."""
    last_skipped_at = models.DateTimeField(null=True)
    last_skip_reason = models.CharField(max_length=200, blank=True, default="")
    # What Celery beat reads; written from the fields above, by reports.services alone.
    periodic_task = models.OneToOneField(PeriodicTask, on_delete=models.SET_NULL, null=True, related_name="report")

    class Meta:
        ordering: ClassVar[list[str]] = ["name"]
        constraints: ClassVar = [
            models.CheckConstraint(
                name="cron_or_interval", condition=models.Q(cron__isnull=True) ^ models.Q(every_seconds__isnull=True)
            )
        ]

    def skip(self, *, reason: str, at: datetime) -> None:
        """It was due at about ``at`` and makes no run. The caller holds its row locked and saves it."""
        self.skipped_count += 1
        self.last_skipped_at, self.last_skip_reason = at, reason


class ReportRun(models.Model):
    """One run of a job. Its methods hold the rules of its state; callers hold its row locked and save it."""

    class State(models.TextChoices):
        QUEUED = "queued"
        RUNNING = "running"
        SUCCEEDED = "succeeded"
        FAILED = "failed"
        CANCELLED = "cancelled"

    UNFINISHED: ClassVar = (State.QUEUED, State.RUNNING)

    report = models.ForeignKey(Report, on_delete=models.SET_NULL, null=True, related_name="runs")
    job = models.CharField(max_length=64)
    parameters = models.JSONField(default=dict)
    state = models.CharField(max_length=16, choices=State.choices, default=State.QUEUED)
    progress = models.FloatField(default=0.0)
    stage = models.CharField(max_length=200, default="")
    stages = models.JSONField(default=list)
    """What it has been at, in order: ``{"name", "started_at" (unix ms), "fraction" (of the run, 0 to 1)}``."""
    left_s = models.PositiveIntegerField(null=True)
    """About how many seconds it will still take; null while that is not known, and once it is over."""
    requested_by = models.CharField(max_length=150)
    attempt = models.PositiveSmallIntegerField(default=1)
    not_before = models.DateTimeField(null=True)
    """A retry waits until then."""
    time_limit_s = models.PositiveIntegerField(default=int(TIME_LIMIT.total_seconds()))
    keep_days = models.PositiveSmallIntegerField(default=KEEP_DAYS)
    result_dropped_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    rows = models.PositiveBigIntegerField(null=True)
    error = models.TextField(null=True)
    log_tail = models.TextField(default="")
    cancel_requested = models.BooleanField(default=False)
    # host:pid of the worker at it, and when it last said so.
    worker = models.CharField(max_length=300, default="")
    worker_seen_at = models.DateTimeField(null=True)

    class Meta:
        ordering: ClassVar[list[str]] = ["-id"]
        indexes: ClassVar = [models.Index(fields=["state"])]

    @property
    def is_unfinished(self) -> bool:
        return self.state in self.UNFINISHED

    @property
    def result_kept_until(self) -> datetime | None:
        """When its result goes; None while there is none."""
        if self.state != self.State.SUCCEEDED or self.finished_at is None:
            return None
        return self.finished_at + timedelta(days=self.keep_days)

    def must_wait(self, *, at: datetime) -> bool:
        """Tell whether it may not start yet: a retry before its time, or behind an older run of the same schedule."""
        if self.not_before is not None and at < self.not_before:
            return True
        if self.report_id is None:
            return False
        older = ReportRun.objects.filter(report=self.report_id, state__in=self.UNFINISHED, pk__lt=self.pk)
        return older.exists()

    def start(self, *, at: datetime) -> None:
        """This process begins to work on it. Raises WrongState unless it is queued."""
        self._be(self.State.QUEUED, to="start")
        self.state, self.started_at = self.State.RUNNING, at
        self.worker, self.worker_seen_at = this_worker(), at

    def advance(self, *, progress: float, stage: str, log_tail: str, at: datetime) -> None:
        """Take what the job says of itself. Raises WrongState unless it is running."""
        self._be(self.State.RUNNING, to="advance")
        self.progress, self.stage, self.worker_seen_at = progress, stage[:200], at
        name = stage.partition(" (")[0][:200]  # without the counts of tasks behind it
        if name and (not self.stages or self.stages[-1]["name"] != name):
            self.stages = [*self.stages, {"name": name, "started_at": int(at.timestamp() * 1000), "fraction": progress}]
        self.log_tail = log_tail[-LOG_TAIL_CHARACTERS:]

    def succeed(self, *, rows: int, at: datetime) -> None:
        self._be(self.State.RUNNING, to="succeed")
        self._finish(self.State.SUCCEEDED, at)
        self.rows, self.progress, self.stage = rows, 1.0, ""

    def fail(self, *, error: str, at: datetime) -> None:
        """Raises WrongState if it is over."""
        self._be(*self.UNFINISHED, to="fail")
        self._finish(self.State.FAILED, at)
        self.error = error

    def request_cancel(self, *, at: datetime) -> None:
        """A queued run is cancelled at once, a running one when its worker has stopped it. Raises WrongState."""
        self._be(*self.UNFINISHED, to="be cancelled")
        self.cancel_requested = True
        if self.state == self.State.QUEUED:
            self._finish(self.State.CANCELLED, at)
        else:
            self.stage = "cancelling"

    def cancelled(self, *, at: datetime) -> None:
        """Its worker has stopped it."""
        self._be(self.State.RUNNING, to="be cancelled")
        self._finish(self.State.CANCELLED, at)

    def is_abandoned(self, *, at: datetime) -> bool:
        """Tell whether its worker has died: a process of this machine that is gone, or a long silence."""
        if self.state != self.State.RUNNING:
            return False
        host, _, pid = self.worker.rpartition(":")
        if host == socket.gethostname() and not _is_alive(int(pid)):
            return True
        return self.worker_seen_at is None or at - self.worker_seen_at > ABANDONED_AFTER

    def _be(self, *states: str, to: str) -> None:
        if self.state not in states:
            raise WrongState(f"run {self.pk} is {self.state} and cannot {to}")

    def _finish(self, state: str, at: datetime) -> None:
        self.state, self.finished_at, self.left_s = state, at, None


def this_worker() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def now() -> datetime:
    return timezone.now()
