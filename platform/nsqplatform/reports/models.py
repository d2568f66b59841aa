"""Scheduled reports and runs."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import ClassVar

from django.db import models
from django_celery_beat.models import PeriodicTask

from nsqanalytics.job_list import JOBS
from nsqplatform.clusters.rows import ClusterRow
from nsqplatform.unix_time import unix_ms
from nsqplatform.worker_task import WorkerTask

LOG_TAIL_CHARACTERS = 16_384
TIME_LIMIT = timedelta(hours=2)
"""Default time limit of a run; a run that takes longer is stopped."""
KEEP_DAYS = 90
"""Default time for which a result is kept; the run itself is kept longer."""


class Report(ClusterRow):
    """A scheduled report: a job with parameters, and ``cron`` or ``every_seconds``."""

    class Overlap(models.TextChoices):
        """What happens if a run is due while the previous one has not finished."""

        SKIP = "skip"
        QUEUE = "queue"
        CANCEL = "cancel"

    class NotifyOn(models.TextChoices):
        NEVER = "never"
        FAILURE = "failure"
        COMPLETION = "completion"

    name = models.CharField(max_length=100)
    job = models.CharField(max_length=64)
    parameters = models.JSONField(default=dict)
    cron = models.CharField(max_length=200, null=True)
    every_seconds = models.PositiveIntegerField(null=True)
    time_zone = models.CharField(max_length=64, default="UTC")
    enabled = models.BooleanField(default=True)
    overlap = models.CharField(max_length=8, choices=Overlap.choices, default=Overlap.SKIP)
    retries = models.PositiveSmallIntegerField(default=0)
    retry_after_s = models.PositiveIntegerField(default=60)
    """Delay before the first retry; it doubles with each further retry."""
    time_limit_s = models.PositiveIntegerField(default=int(TIME_LIMIT.total_seconds()))
    keep_days = models.PositiveSmallIntegerField(default=KEEP_DAYS)
    notify_on = models.CharField(max_length=12, choices=NotifyOn.choices, default=NotifyOn.NEVER)
    notify_webhook = models.CharField(max_length=500, blank=True, default="")
    notify_email = models.CharField(max_length=500, blank=True, default="")
    """Addresses, separated by commas."""
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField(auto_now_add=True)
    last_run_at = models.DateTimeField(null=True)
    """When the schedule last created a run."""
    skipped_count = models.PositiveIntegerField(default=0)
    """Number of times that it was due and created no run."""
    last_skipped_at = models.DateTimeField(null=True)
    last_skip_reason = models.CharField(max_length=200, blank=True, default="")
    # Celery beat's entry, which reports.services derives from the fields above.
    periodic_task = models.OneToOneField(PeriodicTask, on_delete=models.SET_NULL, null=True, related_name="report")

    class Meta:
        ordering: ClassVar[list[str]] = ["name"]
        constraints: ClassVar = [
            models.UniqueConstraint(name="one_schedule_of_a_name", fields=["cluster", "name"]),
            models.CheckConstraint(
                name="cron_or_interval", condition=models.Q(cron__isnull=True) ^ models.Q(every_seconds__isnull=True)
            ),
        ]

    def skip(self, *, reason: str, at: datetime) -> None:
        """Record that no run is created for the due time ``at``. The caller locks and saves the row."""
        self.skipped_count += 1
        self.last_skipped_at, self.last_skip_reason = at, reason


class ReportRun(ClusterRow, WorkerTask):
    """One run of a job. The methods change its state; callers lock and save the row."""

    NAME: ClassVar = "run"

    class State(models.TextChoices):
        QUEUED = "queued"
        RUNNING = "running"
        SUCCEEDED = "succeeded"
        FAILED = "failed"
        CANCELLED = "cancelled"

    report = models.ForeignKey(Report, on_delete=models.SET_NULL, null=True, related_name="runs")
    job = models.CharField(max_length=64)
    parameters = models.JSONField(default=dict)
    state = models.CharField(max_length=16, choices=State.choices, default=State.QUEUED)
    progress = models.FloatField(default=0.0)
    stage = models.CharField(max_length=200, default="")
    stages = models.JSONField(default=list)
    """The stages so far: ``{"name", "started_at" (Unix milliseconds), "fraction" (of the run, 0 to 1)}``."""
    left_s = models.PositiveIntegerField(null=True)
    """Estimated seconds until the run ends; null if unknown, and after the end."""
    requested_by = models.CharField(max_length=150)
    attempt = models.PositiveSmallIntegerField(default=1)
    not_before = models.DateTimeField(null=True)
    """The earliest start of a retry."""
    time_limit_s = models.PositiveIntegerField(default=int(TIME_LIMIT.total_seconds()))
    keep_days = models.PositiveSmallIntegerField(default=KEEP_DAYS)
    result_dropped_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, db_index=True)
    finished_at = models.DateTimeField(null=True)
    rows = models.PositiveBigIntegerField(null=True)
    error = models.TextField(null=True)
    log_tail = models.TextField(default="")

    class Meta:
        ordering: ClassVar[list[str]] = ["-id"]
        indexes: ClassVar = [models.Index(fields=["state"])]

    @property
    def title(self) -> str:
        """The title of its job; its name if there is no such job any more."""
        job = JOBS.get(self.job)
        return job.title if job else self.job

    @property
    def worst(self) -> str:
        """The column of its result in which the largest figure is the worst; empty if there is none."""
        job = JOBS.get(self.job)
        return job.worst if job else ""

    @property
    def result_kept_until(self) -> datetime | None:
        """When its result will be removed; None without a result."""
        if self.state != self.State.SUCCEEDED or self.finished_at is None:
            return None
        return self.finished_at + timedelta(days=self.keep_days)

    def must_wait(self, *, at: datetime) -> bool:
        """Return whether it may not start yet: a retry before its time, or a run whose schedule has an older unfinished
        run."""
        if self.not_before is not None and at < self.not_before:
            return True
        if self.report_id is None:
            return False
        older = ReportRun.objects.filter(report=self.report_id, state__in=self.UNFINISHED, pk__lt=self.pk)
        return older.exists()

    def start(self, *, at: datetime) -> None:
        """Set the state to running in this process. Raises WrongState unless it is queued."""
        self.require(self.State.QUEUED, to="start")
        self.state, self.started_at = self.State.RUNNING, at
        self.assign(at=at)

    def advance(self, *, progress: float, stage: str, log_tail: str, at: datetime) -> None:
        """Store the job's progress. Raises WrongState unless it is running."""
        self.require(self.State.RUNNING, to="advance")
        self.progress, self.stage, self.worker_seen_at = progress, stage[:200], at
        name = re.sub(r"\b[\d,]+ of (?=\d)", "", stage.partition(" (")[0])[:200]  # without what is done of it
        if name and (not self.stages or self.stages[-1]["name"] != name):
            self.stages = [*self.stages, {"name": name, "started_at": unix_ms(at), "fraction": progress}]
        self.log_tail = log_tail[-LOG_TAIL_CHARACTERS:]

    def succeed(self, *, rows: int, at: datetime) -> None:
        self.require(self.State.RUNNING, to="succeed")
        self._finish(self.State.SUCCEEDED, at)
        self.rows, self.progress, self.stage = rows, 1.0, ""

    def fail(self, *, error: str, at: datetime) -> None:
        """Set the state to failed. Raises WrongState if the run has ended."""
        self.require(*self.UNFINISHED, to="fail")
        self._finish(self.State.FAILED, at)
        self.error = error

    def request_cancel(self, *, at: datetime) -> None:
        """Cancel a queued run; ask the worker to stop a running one. Raises WrongState."""
        self.require(*self.UNFINISHED, to="be cancelled")
        self.cancel_requested = True
        if self.state == self.State.QUEUED:
            self._finish(self.State.CANCELLED, at)
        else:
            self.stage = "cancelling"

    def cancelled(self, *, at: datetime) -> None:
        """Set the state to cancelled, after its worker has stopped it."""
        self.require(self.State.RUNNING, to="be cancelled")
        self._finish(self.State.CANCELLED, at)

    def _finish(self, state: str, at: datetime) -> None:
        self.state, self.finished_at, self.left_s = state, at, None
