"""System checks: problems of the settings, with hints for their correction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core import checks

from nsqtasks import options
from nsqtasks.framework import FRAMEWORK_APP, task_backends
from nsqtasks.options import Problem
from nsqtasks.topics import topics_of
from nsqwire.names import is_valid_name

BACKEND = "nsqtasks.backend.NSQBackend"


def check_installation(app_configs: Any = None, **kwargs: Any) -> list[checks.CheckMessage]:
    """Check that Django Tasks runs its checks, and that a backend is configured."""
    found: list[checks.CheckMessage] = []
    if FRAMEWORK_APP is not None and not apps.is_installed(FRAMEWORK_APP):
        hint = f'Add "{FRAMEWORK_APP}" to INSTALLED_APPS: it runs the checks of TASKS.'
        found.append(checks.Error(f'"{FRAMEWORK_APP}" is not installed.', hint=hint, id="nsqtasks.E001"))
    configured = getattr(settings, "TASKS", {})
    if not any(isinstance(each, dict) and "nsqtasks" in str(each.get("BACKEND")) for each in configured.values()):
        hint = f'Set "BACKEND": "{BACKEND}" for an entry of TASKS, or remove "nsqtasks" from INSTALLED_APPS.'
        found.append(checks.Warning("No entry of TASKS uses nsqtasks.", hint=hint, id="nsqtasks.W001"))
    return found


def check_backend(alias: str, queues: set[str], given: Any) -> Iterator[checks.CheckMessage]:
    """Check one backend: its application, its OPTIONS and its QUEUES."""
    for problem in _problems(queues, given):
        text = f'TASKS["{alias}"]: {problem.text}'
        yield checks.Error(text, hint=problem.hint, id=f"nsqtasks.E{problem.number:03d}")


def _problems(queues: set[str], given: Any) -> Iterator[Problem]:
    if not apps.is_installed("nsqtasks"):
        hint = 'Add "nsqtasks" to INSTALLED_APPS and run manage.py migrate.'
        yield Problem(1, 'The application "nsqtasks", which stores the tasks, is not installed.', hint)
    if not isinstance(given, dict):
        yield Problem(4, "OPTIONS is not a dictionary.", 'Set it to {"nsqd_tcp_addresses": ["127.0.0.1:4150"]}.')
        return
    yield from options.problems(given)
    database = given.get("database", "default")
    if database not in settings.DATABASES:
        hint = f"Set it to one of {', '.join(settings.DATABASES)}."
        yield Problem(6, f"The option 'database' is {database!r}, and DATABASES has no such entry.", hint)
    prefix = given.get("topic_prefix", "tasks")
    owners: dict[str, str] = {}
    for queue in sorted(queues):
        for topic in topics_of(prefix, queue):
            if not is_valid_name(topic):
                hint = "Change the queue or the prefix: the topic may have 1 to 64 of the characters a-z A-Z 0-9 . _ -"
                yield Problem(5, f"The queue {queue!r} would have the topic {topic!r}, which NSQ refuses.", hint)
                break
            if topic in owners:
                hint = "Rename one of them: the topics of a queue end in its name, .high and .low."
                yield Problem(5, f"The queues {owners[topic]!r} and {queue!r} would share the topic {topic!r}.", hint)
            owners[topic] = queue


def backends_of_nsq() -> list[str]:
    """Return the aliases of the entries of TASKS that use nsqtasks."""
    from nsqtasks.backend import NSQBackend

    return [alias for alias in task_backends if isinstance(task_backends[alias], NSQBackend)]
