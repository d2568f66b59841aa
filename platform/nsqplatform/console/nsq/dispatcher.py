"""``nsq dispatcher``: the Celery worker for jobs and short tasks: due schedules, notifications, old results."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from nsqplatform.console.nsq.prepare import load_django
from nsqplatform.console.nsq.worker import work

CONCURRENCY = 8
"""Number of threads, half of which jobs may occupy (jobs.tasks). A webhook that does not answer occupies one for ten
seconds."""


def main(argv: Sequence[str]) -> int:
    argparse.ArgumentParser(
        prog="nsq dispatcher",
        description="Run jobs, queue due reports, send their notifications and remove old results.",
    ).parse_args(argv)
    load_django()
    from django.conf import settings

    return work(settings.CELERY_TASK_DEFAULT_QUEUE, name="dispatcher", concurrency=CONCURRENCY)
