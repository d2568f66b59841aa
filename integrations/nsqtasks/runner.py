"""Running one task: the claim, the function, the result."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from traceback import format_exception
from typing import TYPE_CHECKING, Any

from django.db import InterfaceError, OperationalError, close_old_connections, connections

from nsqtasks.backend import NSQBackend, result_of, task_of
from nsqtasks.errors import TaskNotFound
from nsqtasks.framework import TaskContext, task_finished, task_started
from nsqtasks.records import Claimed, Gone, storable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nsqtasks.models import TaskRecord

log = logging.getLogger("nsqtasks")

RETRY_S = 1.0
"""Pause between attempts to store a result while the database is unreachable."""


class Runner:
    """Runs tasks of one backend, each in the calling thread."""

    def __init__(self, backend: NSQBackend, worker_id: str) -> None:
        self._backend = backend
        self._worker_id = worker_id
        self._running: dict[str, TaskRecord] = {}
        self._lock = threading.Lock()

    def run(self, task_id: str) -> timedelta | None:
        """Run a task to its end, and store its result.

        Returns None if the message can be finished, otherwise the delay until the next attempt. Raises the
        database's errors if the task could not be claimed.
        """
        with _fresh_connections():
            claim = self._backend.records.claim(task_id, self._worker_id)
            if isinstance(claim, Claimed):
                self._run(claim.record)
                return None
        if not isinstance(claim, Gone):
            return claim.delay
        log.info("task %s is not run: %s", task_id, claim.reason)
        if claim.failed is not None:
            self._announce_failure(claim.failed)
        return None

    def renew(self) -> None:
        """Extend the leases of the tasks that run. The worker calls this three times per lease."""
        with self._lock:
            running = dict(self._running)
        if running:
            with _fresh_connections():
                lost = self._backend.records.renew(running.values())
            for task_id in lost:
                log.warning("task %s was taken over by another worker: its lease was not renewed in time", task_id)

    @property
    def running(self) -> set[str]:
        """The ids of the tasks that run."""
        with self._lock:
            return set(self._running)

    def _run(self, record: TaskRecord) -> None:
        with self._lock:
            self._running[record.pk] = record
        try:
            self._call(record)
        finally:
            with self._lock:
                self._running.pop(record.pk, None)

    def _call(self, record: TaskRecord) -> None:
        records = self._backend.records
        try:
            task = task_of(record)
            result = result_of(record, task)
            task_started.send(type(self._backend), task_result=result)
            context = [TaskContext(task_result=result)] if task.takes_context else []
            value = storable(task.call(*context, *record.args, **record.kwargs))
        except BaseException as error:  # SystemExit too ends the task and not the worker
            path = f"{type(error).__module__}.{type(error).__qualname__}"
            trace = "".join(format_exception(error))
            is_stored = _until_stored(partial(records.fail, record, path, trace))
            if isinstance(error, TaskNotFound):
                log.error("task %s has failed: %s", record.pk, error)
            elif is_stored:
                self._announce(record, task)
        else:
            if _until_stored(partial(records.succeed, record, value)):
                self._announce(record, task)

    def _announce_failure(self, record: TaskRecord) -> None:
        try:
            task = task_of(record)
        except TaskNotFound:
            return
        self._announce(record, task)

    def _announce(self, record: TaskRecord, task: Any) -> None:
        """Send the signal of a finished task. A receiver that fails does not change the result."""
        finished = self._backend.records.all().get(pk=record.pk)
        for _, answer in task_finished.send_robust(type(self._backend), task_result=result_of(finished, task)):
            if isinstance(answer, Exception):
                log.error("a receiver of task_finished failed for task %s", record.pk, exc_info=answer)


def _until_stored(store: Callable[[], bool]) -> bool:
    """Call ``store`` until the database answers, so that the task does not run again because its result is lost."""
    while True:
        try:
            is_stored = store()
        except (OperationalError, InterfaceError) as error:
            log.warning("a result cannot be stored yet: %s", error)
            close_old_connections()
            time.sleep(RETRY_S)
        else:
            if not is_stored:
                log.warning("a result is dropped: another worker took the task over")
            return is_stored


@contextmanager
def _fresh_connections() -> Iterator[None]:
    """Replace database connections that were lost or are too old, as Django does around a request.

    Within a transaction, such as a test's, connections are not replaced.
    """
    if not any(each.in_atomic_block for each in connections.all(initialized_only=True)):
        close_old_connections()
    yield
