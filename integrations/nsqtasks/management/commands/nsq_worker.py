"""``manage.py nsq_worker``: run tasks."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from datetime import timedelta
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import OperationalError, connections

from nsqtasks.backend import NSQBackend
from nsqtasks.checks import backends_of_nsq
from nsqtasks.framework import task_backends
from nsqtasks.models import TaskRecord
from nsqtasks.topics import topics_of
from nsqtasks.worker import Worker
from nsqwire.names import is_valid_name

DEFAULT_CONCURRENCY = max(2, min(8, os.cpu_count() or 1))


class Command(BaseCommand):
    """Consumes the topics of a backend's queues until SIGTERM."""

    help = (
        "Run tasks from NSQ until SIGTERM or SIGINT; running tasks are finished first. Examples: "
        "manage.py nsq_worker; manage.py nsq_worker --queue-name emails --concurrency 16"
    )
    requires_system_checks = "__all__"

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the command line."""
        parser.add_argument(
            "--backend", metavar="ALIAS", help="entry of TASKS; required if several entries use nsqtasks"
        )
        parser.add_argument(
            "--queue-name",
            metavar="QUEUE",
            action="append",
            help="run tasks of this queue only; may be repeated; by default, tasks of all QUEUES",
        )
        parser.add_argument(
            "--concurrency",
            type=_positive,
            default=DEFAULT_CONCURRENCY,
            metavar="N",
            help=f"number of tasks that run at the same time; by default {DEFAULT_CONCURRENCY} on this machine",
        )
        parser.add_argument(
            "--stop-timeout",
            type=_seconds,
            metavar="SECONDS",
            help="exit this long after the first signal, even if tasks run; by default, wait for them",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the worker. Raises CommandError for problems that the user can correct."""
        backend = self._backend(options["backend"])
        try:
            database = backend.settings.database
        except ImproperlyConfigured as error:
            raise CommandError(str(error)) from None
        queues = self._queues(backend, options["queue_name"])
        self._check_table(database)
        _log_to_stderr()
        stop_timeout: timedelta | None = options["stop_timeout"]
        worker = Worker(backend, queues, concurrency=options["concurrency"], stop_timeout=stop_timeout)
        logging.getLogger("nsqtasks").info(
            "worker %s runs tasks of %s, %d at once", worker.id, ", ".join(queues), options["concurrency"]
        )
        asyncio.run(worker.run())

    def _backend(self, alias: str | None) -> NSQBackend:
        ours = backends_of_nsq()
        if alias is None:
            if len(ours) != 1:
                found = f"it has {len(ours)}: {', '.join(ours)}" if ours else "it has none"
                raise CommandError(f"TASKS must have one backend of nsqtasks unless --backend names one; {found}")
            alias = ours[0]
        if alias not in ours:
            raise CommandError(f"--backend {alias}: TASKS has no backend of nsqtasks with this name")
        backend = task_backends[alias]
        assert isinstance(backend, NSQBackend)
        return backend

    def _queues(self, backend: NSQBackend, chosen: list[str] | None) -> list[str]:
        known = sorted(backend.queues)
        for queue in chosen or ():
            if known and queue not in known:
                raise CommandError(f"--queue-name {queue}: the backend's QUEUES are {', '.join(known)}")
            for topic in topics_of(backend.settings.topic_prefix, queue):
                if not is_valid_name(topic):
                    raise CommandError(f"--queue-name {queue}: NSQ refuses the topic {topic!r}")
        queues = list(dict.fromkeys(chosen or known))
        if not queues:
            raise CommandError("the backend's QUEUES is empty, which allows every queue: name queues with --queue-name")
        return queues

    def _check_table(self, database: str) -> None:
        table = TaskRecord._meta.db_table
        try:
            is_there = table in connections[database].introspection.table_names()
        except OperationalError as error:
            raise CommandError(f"the database cannot be reached: {error}") from None
        if not is_there:
            option = "" if database == "default" else f" --database {database}"
            raise CommandError(f"the table {table} is missing: run manage.py migrate{option}")


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


def _seconds(text: str) -> timedelta:
    try:
        seconds = timedelta(seconds=float(text))
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None
    if seconds < timedelta(0):
        raise argparse.ArgumentTypeError(f"{text} is less than 0")
    return seconds


def _log_to_stderr() -> None:
    """Show the worker's lines, unless the project's LOGGING handles them."""
    log = logging.getLogger("nsqtasks")
    if not log.hasHandlers():
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
