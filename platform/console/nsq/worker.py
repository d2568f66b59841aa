"""``nsq worker``: the Celery worker that runs reports."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from console.nsq.prepare import load_django


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="nsq worker", description="Run the reports that are asked for.")
    parser.add_argument("--concurrency", type=int, default=2, metavar="N", help="reports at a time (%(default)s)")
    options = parser.parse_args(argv)
    load_django()
    from console.celery import app

    # Threads: a report is a process of its own, and a thread that waits for it costs nothing.
    app.worker_main(
        [
            "worker",
            *("--pool", "threads"),
            *("--concurrency", str(options.concurrency)),
            *("--loglevel", "INFO"),
            "--without-gossip",
            "--without-mingle",
        ]
    )
    return 0
