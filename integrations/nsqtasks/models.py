"""A task and its result, as a row."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from nsqtasks.framework import TaskResultStatus


class TaskRecord(models.Model):
    """One enqueued task, with its state and its result.

    A worker runs a task only after it has claimed the row, and renews ``lease_until`` while the task runs
    (``nsqtasks.records``). Receiving the message is not enough. A message contains only the row's id and priority.
    """

    id = models.CharField(primary_key=True, max_length=32, editable=False)
    backend = models.CharField(max_length=64)
    queue_name = models.CharField("queue", max_length=64)
    priority = models.SmallIntegerField(default=0)
    task_path = models.CharField("task", max_length=255)
    """Import path of the task, such as ``shop.tasks.send_receipt``."""
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
    """Number of claims so far. A worker whose claim is not the latest one cannot change the row."""
    lease_until = models.DateTimeField(null=True)
    """Time until which no other worker may claim a running task."""
    worker_ids = models.JSONField(default=list)
    return_value = models.JSONField(null=True)
    errors = models.JSONField(default=list)
    """Objects with ``exception_class_path`` and ``traceback``."""

    objects: ClassVar[models.Manager[TaskRecord]] = models.Manager()

    class Meta:
        """The indexes are for queries of the sweep and the admin."""

        verbose_name = "task"
        ordering = ["-enqueued_at"]
        indexes = [
            models.Index(fields=["status", "published_at"], name="nsqtasks_published"),
            models.Index(fields=["enqueued_at"], name="nsqtasks_enqueued"),
            models.Index(fields=["finished_at"], name="nsqtasks_finished"),
        ]

    def __str__(self) -> str:
        return f"{self.task_path} {self.id}"
