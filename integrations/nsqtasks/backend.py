"""The backend of Django Tasks that publishes to NSQ."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from functools import cached_property, partial
from typing import Any, TypeVar

from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from django.utils import timezone
from django.utils.crypto import get_random_string
from django.utils.module_loading import import_string

from nsqtasks.checks import check_backend
from nsqtasks.errors import TaskNotFound
from nsqtasks.framework import (
    BaseTaskBackend,
    InvalidTask,
    Task,
    TaskError,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_enqueued,
)
from nsqtasks.options import InvalidOption, Options, read
from nsqtasks.topics import topic_of
from nsqwire.names import is_valid_name

T = TypeVar("T")
_publishers: dict[str, Any] = {}
_publishers_lock = threading.Lock()
TASK_PATH_LENGTH = 255


class NSQBackend(BaseTaskBackend):
    """Stores tasks and results in the database, and publishes the ids of tasks to NSQ.

    Django creates one object for each thread. All objects of a process share one connection to NSQ for each backend.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def check(self, **kwargs: Any) -> Iterable[checks.CheckMessage]:
        """Return the problems of the settings, for ``manage.py check``."""
        return list(check_backend(self.alias, self.queues, self.options))

    @cached_property
    def settings(self) -> Options:
        """The OPTIONS. Raises ImproperlyConfigured for problems that ``manage.py check`` reports."""
        try:
            return read(self.options)
        except InvalidOption as error:
            raise ImproperlyConfigured(f'TASKS["{self.alias}"]: {error}') from None

    @cached_property
    def records(self) -> Any:
        """The records in the backend's database, a ``nsqtasks.records.Records``."""
        from nsqtasks.records import Records

        return Records(self.settings)

    @property
    def publisher(self) -> Any:
        """The ``nsqtasks.publishing.Publisher`` of this process."""
        from nsqtasks.publishing import Publisher

        with _publishers_lock:
            if self.alias not in _publishers:
                _publishers[self.alias] = Publisher(self.settings)
            return _publishers[self.alias]

    def validate_task(self, task: Task[Any, Any]) -> None:
        """Raise InvalidTask for a task that cannot be enqueued."""
        super().validate_task(task)
        # Not self.settings: tasks are declared before manage.py check reports problems of the OPTIONS.
        prefix = self.options.get("topic_prefix", "tasks") if isinstance(self.options, dict) else "tasks"
        topic = topic_of(prefix, task.queue_name, task.priority)
        if not is_valid_name(topic):
            raise InvalidTask(f"Queue '{task.queue_name}' would have the topic '{topic}', which NSQ refuses.")
        if len(task.module_path) > TASK_PATH_LENGTH:
            raise InvalidTask(f"The path of the task is longer than {TASK_PATH_LENGTH} characters.")

    def enqueue(self, task: Task[Any, T], args: Any, kwargs: Any) -> TaskResult[T]:
        """Store the task now, and publish it when the transaction commits.

        Raises InvalidTask, and TypeError or ValueError for arguments that JSON or a database cannot represent. If nsqd
        cannot be reached, nothing is raised: a worker publishes the task later.
        """
        from nsqtasks.models import TaskRecord
        from nsqtasks.records import storable

        self.validate_task(task)
        record = TaskRecord(
            id=get_random_string(32),
            backend=self.alias,
            queue_name=task.queue_name,
            priority=task.priority,
            task_path=task.module_path,
            args=storable(args),
            kwargs=storable(kwargs),
            run_after=task.run_after,
            enqueued_at=timezone.now(),
        )
        database = self.settings.database
        record.save(using=database, force_insert=True)
        result: TaskResult[T] = result_of(record, task)
        transaction.on_commit(partial(self._committed, record, result), using=database, robust=True)
        return result

    def get_result(self, result_id: str) -> TaskResult[Any]:
        """Return a task's state and result. Raises TaskResultDoesNotExist."""
        record = self.records.all().filter(pk=result_id, backend=self.alias).first()
        if record is None:
            raise TaskResultDoesNotExist(result_id)
        return result_of(record, task_of(record))

    def _committed(self, record: Any, result: TaskResult[Any]) -> None:
        self.publisher.publish_soon(record)
        task_enqueued.send(type(self), task_result=result)


def task_of(record: Any) -> Task[Any, Any]:
    """Import the task of a record. Raises TaskNotFound."""
    try:
        found = import_string(record.task_path)
    except ImportError as error:
        raise TaskNotFound(f"{record.task_path} cannot be imported: {error}") from error
    if not isinstance(found, Task):
        raise TaskNotFound(f"{record.task_path} is not a task")
    return found.using(
        priority=record.priority, queue_name=record.queue_name, run_after=record.run_after, backend=record.backend
    )


def result_of(record: Any, task: Task[Any, T]) -> TaskResult[T]:
    """Return a record as Django Tasks' result."""
    result: TaskResult[T] = TaskResult(
        task=task,
        id=record.pk,
        status=TaskResultStatus(record.status),
        enqueued_at=record.enqueued_at,
        started_at=record.started_at,
        finished_at=record.finished_at,
        last_attempted_at=record.last_attempted_at,
        args=record.args,
        kwargs=record.kwargs,
        backend=record.backend,
        errors=[TaskError(**error) for error in record.errors],
        worker_ids=list(record.worker_ids),
    )
    object.__setattr__(result, "_return_value", record.return_value)  # as Django's own backends do: it is frozen
    return result
