"""``nsq worker``: the Celery worker that runs reports."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from nsqdaemon.command_line import CommandParser
from nsqplatform.console.nsq.options import add_home, use_home
from nsqplatform.console.nsq.prepare import load_django, without_collections
from nsqplatform.console.nsq.readiness import write_pid_file


def parser() -> CommandParser:
    made = CommandParser(
        prog="nsq worker",
        description="Run reports.",
        examples=[("nsq worker --concurrency 4", "four reports at a time")],
    )
    made.add_argument("--concurrency", type=int, default=2, metavar="N", help="reports at a time (%(default)s)")
    add_home(made)
    return made


def main(argv: Sequence[str]) -> int:
    options = parser().parse_args(argv)
    use_home(options)
    load_django()
    from django.conf import settings

    return work(
        settings.CELERY_TASK_ROUTES["reports.run_report"]["queue"], name="worker", concurrency=options.concurrency
    )


def work(queue: str, *, name: str, concurrency: int) -> int:
    """Run the tasks of one queue until a signal."""
    with without_collections():
        from celery.platforms import SecurityWarning
        from celery.signals import worker_ready

        from nsqplatform.console.celery import app

        app.loader.import_default_modules()

    # Celery's warning about root and pickle: our tasks are JSON.
    warnings.simplefilter("ignore", SecurityWarning)
    worker_ready.connect(lambda **_: write_pid_file(), weak=False)
    # Threads, because a report is a separate process and its thread only waits.
    app.worker_main(
        [
            "--quiet",
            "worker",
            *("--queues", queue),
            *("--hostname", f"{name}@%h"),
            *("--pool", "threads"),
            *("--concurrency", str(concurrency)),
            *("--loglevel", "INFO"),
            "--without-gossip",
            "--without-mingle",
        ]
    )
    return 0
