"""``nsq worker``: the Celery worker that runs reports."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence

from console.nsq.prepare import load_django
from console.nsq.readiness import announce


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="nsq worker", description="Run the reports that are asked for.")
    parser.add_argument("--concurrency", type=int, default=2, metavar="N", help="reports at a time (%(default)s)")
    options = parser.parse_args(argv)
    load_django()
    from celery.platforms import SecurityWarning
    from celery.signals import worker_ready

    from console.celery import app

    # About root and pickle: tasks are JSON here.
    warnings.simplefilter("ignore", SecurityWarning)
    worker_ready.connect(lambda **_: announce(), weak=False)
    # Threads: a report is a process of its own, and a thread that waits for it costs nothing.
    app.worker_main(
        [
            "--quiet",
            "worker",
            *("--pool", "threads"),
            *("--concurrency", str(options.concurrency)),
            *("--loglevel", "INFO"),
            "--without-gossip",
            "--without-mingle",
        ]
    )
    return 0
