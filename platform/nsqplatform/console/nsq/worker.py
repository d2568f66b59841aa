"""``nsq worker``: the Celery worker that runs reports."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence

from nsqplatform.console.nsq.prepare import load_django
from nsqplatform.console.nsq.readiness import announce


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="nsq worker", description="Run reports.")
    parser.add_argument("--concurrency", type=int, default=2, metavar="N", help="reports at a time (%(default)s)")
    options = parser.parse_args(argv)
    load_django()
    from django.conf import settings

    return work(
        settings.CELERY_TASK_ROUTES["reports.run_report"]["queue"], name="worker", concurrency=options.concurrency
    )


def work(queue: str, *, name: str, concurrency: int) -> int:
    """Run the tasks of one queue until a signal ends it."""
    from celery.platforms import SecurityWarning
    from celery.signals import worker_ready

    from nsqplatform.console.celery import app

    # About root and pickle: tasks are JSON here.
    warnings.simplefilter("ignore", SecurityWarning)
    worker_ready.connect(lambda **_: announce(), weak=False)
    # Threads: a report is a process of its own, and a thread that waits for it costs nothing.
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
