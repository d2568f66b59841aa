"""A task and its result, as a row."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from nsqtasks.framework import TaskResultStatus


class TaskRecord(models.Model):
    """One enqueued task, with its state and its result.

    The row, not the message, decides who runs the task: a worker runs it only after it has claimed the row, and renews
    ``lease_until`` while it does (``nsqtasks.records``). A message contains the row's id only.
    """

    id = models.CharField(primary_key=True, max_length=32, editable=False)
    backend = models.CharField(max_length=64)
    queue_name = models.CharField("queue", max_length=64)
    priority = models.SmallIntegerField(default=0)
    task_path = models.CharField("task", max_length=255)
    """Where the task is imported from, such as ``shop.tasks.send_receipt``."""
    args = models.JSONField(default=list)
    kwargs = models.JSONField(default=dict)
    run_after = models.DateTimeField(null=True)
    status = models.CharField(max_length=10, choices=TaskResultStatus.choices, default=TaskResultStatus.READY)
    enqueued_at = models.DateTimeField()
    published_at = models.DateTimeField(null=True)
    """Last time at which nsqd accepted a message for this row; None before that."""
    started_at = models.DateTimeField(null=True)
    last_attempted_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    attempts = models.PositiveIntegerField(default=0)
    """Number of claims so far. A worker whose claim is not the last one changes nothing more."""
    lease_until = models.DateTimeField(null=True)
    """Until then, no other worker may claim a running task."""
    worker_ids = models.JSONField(default=list)
    return_value = models.JSONField(null=True)
    errors = models.JSONField(default=list)
    """Objects with ``exception_class_path`` and ``traceback``."""

    objects: ClassVar[models.Manager[TaskRecord]] = models.Manager()

    class Meta:
        """The sweep and the admin read by these columns."""

        verbose_name = "task"
        ordering = ["-enqueued_at"]
        indexes = [
            models.Index(fields=["status", "published_at"], name="nsqtasks_published"),
            models.Index(fields=["enqueued_at"], name="nsqtasks_enqueued"),
            models.Index(fields=["finished_at"], name="nsqtasks_finished"),
        ]

    def __str__(self) -> str:
        return f"{self.task_path} {self.id}"
