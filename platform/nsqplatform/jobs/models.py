"""Jobs: an action on many subjects, which the platform carries out in the background, and the outcome of each."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from django.db import models

from nsqplatform.clusters.rows import ClusterRow
from nsqplatform.worker_task import WorkerTask, WrongState

MESSAGE_CHARACTERS = 500


class Job(ClusterRow, WorkerTask):
    """One job. The methods change its state; callers lock and save the row."""

    NAME: ClassVar = "job"

    class State(models.TextChoices):
        QUEUED = "queued"
        RUNNING = "running"
        FINISHED = "finished"
        """Every subject has an outcome, some perhaps a failure."""
        CANCELLED = "cancelled"
        STOPPED = "stopped"
        """The platform ended it; ``message`` has the reason."""

    kind = models.CharField(max_length=32)
    noun = models.CharField(max_length=32)
    """What the subjects are: ``topic``, ``channel``."""
    parameters = models.JSONField(default=dict)
    state = models.CharField(max_length=16, choices=State.choices, default=State.QUEUED)
    total = models.PositiveIntegerField(default=0)
    """Number of subjects; the numbers of those with an outcome follow."""
    done_count = models.PositiveIntegerField(default=0)
    partial_count = models.PositiveIntegerField(default=0)
    failed_count = models.PositiveIntegerField(default=0)
    rate = models.FloatField(null=True)
    """Subjects per second over the last seconds; null if unknown, and after the end."""
    message = models.CharField(max_length=MESSAGE_CHARACTERS, blank=True, default="")
    """Why it did not run to its end."""
    requested_by = models.CharField(max_length=150)
    via = models.CharField(max_length=120, blank=True, default="")
    """How the user was signed in, which determines the role: see accounts.current_user."""
    remote_address = models.CharField(max_length=64, blank=True, default="")
    origin = models.JSONField(default=dict)
    """The request, for ``--notification-http-endpoint``: a cluster.actions.notification.Origin."""
    attempt = models.PositiveIntegerField(default=0)
    """How many workers have begun or resumed it. A worker that finds a higher number than its own has been replaced."""
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True, db_index=True)

    class Meta:
        ordering: ClassVar[list[str]] = ["-id"]
        indexes: ClassVar = [models.Index(fields=["state"])]

    @property
    def remaining_count(self) -> int:
        """Number of subjects without an outcome."""
        return self.total - self.done_count - self.partial_count - self.failed_count

    def start(self, *, at: datetime) -> None:
        """Set the state to running in this process. Raises WrongState unless it is queued."""
        self.require(self.State.QUEUED, to="start")
        self.state, self.attempt = self.State.RUNNING, self.attempt + 1
        self.started_at = self.started_at or at
        self.assign(at=at)

    def check_attempt(self, attempt: int) -> None:
        """Raise WrongState unless this attempt is running: another worker may have resumed the job."""
        self.require(self.State.RUNNING, to="continue")
        if self.attempt != attempt:
            raise WrongState(f"job {self.pk} was resumed by {self.worker}")

    def count(self, *, done: int, partial: int, failed: int) -> None:
        """Count subjects that have got an outcome."""
        self.done_count += done
        self.partial_count += partial
        self.failed_count += failed

    def requeue(self) -> None:
        """Set the state to queued, so that another worker acts on the rest. Raises WrongState unless it is running."""
        self.require(self.State.RUNNING, to="be queued again")
        self.state, self.rate, self.worker = self.State.QUEUED, None, ""

    def request_cancel(self, *, by: str, at: datetime) -> None:
        """Cancel a queued job; ask the worker to end a running one. Raises WrongState."""
        self.require(*self.UNFINISHED, to="be cancelled")
        self.cancel_requested, self.message = True, f"cancelled by {by}"[:MESSAGE_CHARACTERS]
        if self.state == self.State.QUEUED:
            self.end(self.State.CANCELLED, at=at)

    def end(self, state: Job.State, *, at: datetime, message: str = "") -> None:
        """Set the state of an ended job. Raises WrongState if it has ended."""
        self.require(*self.UNFINISHED, to="end")
        self.state, self.finished_at, self.rate = state, at, None
        self.message = (message or self.message)[:MESSAGE_CHARACTERS]


class JobSubject(models.Model):
    """One subject of a job, and its outcome."""

    class State(models.TextChoices):
        WAITING = "waiting"
        STARTED = "started"
        """A worker acts on it, or was killed while it did so."""
        DONE = "done"
        PARTIAL = "partial"
        """Done on some nodes only."""
        FAILED = "failed"

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="subjects")
    topic = models.CharField(max_length=200)
    channel = models.CharField(max_length=200, null=True)
    node = models.CharField(max_length=300, blank=True, default="")
    """The only node to act on; empty: every node of the topic."""
    messages = models.TextField(blank=True, default="")
    """The ids of the messages to act on, one a line; empty: the topic or channel as a whole."""
    state = models.CharField(max_length=16, choices=State.choices, default=State.WAITING)
    attempt = models.PositiveIntegerField(default=0)
    """The last attempt at the job that acted on it; 0 if none did."""
    message = models.CharField(max_length=MESSAGE_CHARACTERS, blank=True, default="")
    """Why it failed, or failed on some nodes; of dead messages, what was done."""

    class Meta:
        ordering: ClassVar[list[str]] = ["id"]
        indexes: ClassVar = [models.Index(fields=["job", "state", "id"])]
