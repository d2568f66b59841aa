"""Changes of a task's record: a worker claims it, renews its lease, and stores the result."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import Q, QuerySet
from django.utils import timezone

from nsqtasks.errors import UnusableValue, WorkerLost
from nsqtasks.framework import TaskResultStatus, normalize_json
from nsqtasks.models import TaskRecord
from nsqtasks.options import Options

READY, RUNNING = TaskResultStatus.READY, TaskResultStatus.RUNNING
FINISHED = (TaskResultStatus.SUCCESSFUL, TaskResultStatus.FAILED)


class Claimed(NamedTuple):
    """This worker may run the task. No other worker may until ``record.lease_until``."""

    record: TaskRecord


class Later(NamedTuple):
    """The task cannot be claimed for ``delay``: it is deferred, or another worker runs it."""

    delay: timedelta


class Gone(NamedTuple):
    """The task cannot be run: it has finished, the claim made it fail, or it has no record."""

    reason: str
    failed: TaskRecord | None = None
    """The record, if the claim made the task fail."""


class Records:
    """The records of one backend's database."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def all(self) -> QuerySet[TaskRecord]:
        """Return all records."""
        return TaskRecord.objects.using(self._options.database)

    def claim(self, task_id: str, worker_id: str) -> Claimed | Later | Gone:
        """Claim a task for this worker, if it is due and no other worker runs it.

        The claim makes a task fail that ``max_attempts`` workers have claimed and not finished.
        """
        record = self.all().filter(pk=task_id).first()
        return Gone("it has no record") if record is None else self.take(record, worker_id)

    def take(self, record: TaskRecord, worker_id: str) -> Claimed | Later | Gone:
        """Claim a task whose row was just read.

        If two workers have read the same row, only one of them succeeds: the row is changed only if it has not been
        changed since it was read.
        """
        now = timezone.now()
        if record.status in FINISHED:
            return Gone(f"it is {record.status}")
        if record.run_after is not None and record.run_after > now:
            return Later(record.run_after - now)
        if record.status == RUNNING and record.lease_until is not None and record.lease_until > now:
            return Later(record.lease_until - now)
        if record.attempts >= self._options.max_attempts:
            return self._give_up(record)
        changed = self._of_claim(record).update(
            status=RUNNING,
            attempts=record.attempts + 1,
            worker_ids=[*record.worker_ids, worker_id],
            lease_until=now + self._options.lease,
            started_at=record.started_at or now,
            last_attempted_at=now,
        )
        if not changed:
            return Later(timedelta(seconds=1))
        return Claimed(self.all().get(pk=record.pk))

    def renew(self, running: Iterable[TaskRecord]) -> set[str]:
        """Extend the leases of tasks that this worker runs. Return the ids of tasks that another worker has
        claimed."""
        until = timezone.now() + self._options.lease
        not_running = [each for each in running if not self._of_claim(each).update(lease_until=until)]
        # A task that has finished by now has not been lost.
        return {each.pk for each in not_running if self.all().filter(pk=each.pk).exclude(attempts=each.attempts)}

    def succeed(self, record: TaskRecord, value: Any) -> bool:
        """Store a result of :func:`storable`. Returns False if another worker has claimed the task."""
        return self._finish(record, TaskResultStatus.SUCCESSFUL, return_value=value)

    def fail(self, record: TaskRecord, exception_class_path: str, traceback: str) -> bool:
        """Store an error. Returns False if another worker has claimed the task."""
        error = {"exception_class_path": exception_class_path, "traceback": storable_text(traceback)}
        return self._finish(record, TaskResultStatus.FAILED, errors=[*record.errors, error])

    def unpublished(self, now: datetime) -> QuerySet[TaskRecord]:
        """Return the tasks to publish: tasks that were never published although their publish must have ended by now,
        and tasks that were published ``republish_after`` ago and that no worker runs."""
        options = self._options
        never = Q(status=READY, published_at=None, enqueued_at__lt=now - options.publish_timeout)
        long_ago = now - options.republish_after
        due_long_ago = Q(run_after=None) | Q(run_after__lt=long_ago)
        idle = Q(status=READY) | Q(status=RUNNING, lease_until__lt=now)
        return self.all().filter(never | (idle & due_long_ago & Q(published_at__lt=long_ago))).order_by("enqueued_at")

    def delete_old(self, now: datetime, keep: timedelta) -> int:
        """Delete the tasks that finished longer ago than ``keep``. Return their number."""
        deleted, _ = self.all().filter(status__in=FINISHED, finished_at__lt=now - keep).delete()
        return deleted

    def _of_claim(self, record: TaskRecord) -> QuerySet[TaskRecord]:
        """The row, unless a worker has claimed or finished it since ``record`` was read."""
        return self.all().filter(pk=record.pk, attempts=record.attempts, status=record.status)

    def _finish(self, record: TaskRecord, status: TaskResultStatus, **values: Any) -> bool:
        changed = self._of_claim(record).update(status=status, finished_at=timezone.now(), lease_until=None, **values)
        return bool(changed)

    def _give_up(self, record: TaskRecord) -> Gone | Later:
        text = f"WorkerLost: the task's workers ended while they ran it: {', '.join(record.worker_ids)}"
        if not self.fail(record, f"{WorkerLost.__module__}.{WorkerLost.__qualname__}", text):
            return Later(timedelta(seconds=1))
        return Gone(text, self.all().get(pk=record.pk))


def storable(value: Any) -> Any:
    """Return ``value`` as JSON values that every database can store.

    Raises TypeError if a part of it has no JSON form, and UnusableValue for NaN, infinities, NUL and lone surrogates,
    which PostgreSQL refuses.
    """
    normal = normalize_json(value)
    try:
        text = json.dumps(normal, allow_nan=False, ensure_ascii=False)
        text.encode()
    except ValueError as error:
        raise UnusableValue(f"cannot be stored as JSON: {error}") from None
    if "\\u0000" in text and any("\0" in each for each in _texts(normal)):
        raise UnusableValue("cannot be stored as JSON: a text contains NUL")
    return normal


def storable_text(text: str) -> str:
    """Return a text in which NUL and lone surrogates, which PostgreSQL refuses, are escaped."""
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, part in value.items():
            yield from _texts(name)
            yield from _texts(part)
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part)
