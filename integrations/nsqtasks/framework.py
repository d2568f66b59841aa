"""Django Tasks: ``django.tasks`` of Django 6, the package django-tasks before it. Only their names differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

import django

# Types are those of django-tasks, with which the tests run.
if TYPE_CHECKING or django.VERSION < (6,):
    from django_tasks import task_backends as task_backends
    from django_tasks.backends.base import BaseTaskBackend as BaseTaskBackend
    from django_tasks.base import Task as Task
    from django_tasks.base import TaskContext as TaskContext
    from django_tasks.base import TaskError as TaskError
    from django_tasks.base import TaskResult as TaskResult
    from django_tasks.base import TaskResultStatus as TaskResultStatus
    from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.exceptions import TaskResultDoesNotExist as TaskResultDoesNotExist
    from django_tasks.signals import task_enqueued as task_enqueued
    from django_tasks.signals import task_finished as task_finished
    from django_tasks.signals import task_started as task_started
    from django_tasks.utils import normalize_json as normalize_json

    FRAMEWORK_APP: str | None = "django_tasks"
else:
    from django.tasks import task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
    from django.utils.json import normalize_json

    FRAMEWORK_APP = None

__all__ = [
    "FRAMEWORK_APP",
    "BaseTaskBackend",
    "InvalidTask",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "normalize_json",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]
