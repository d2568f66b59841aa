"""``nsq dispatcher``: the Celery worker for jobs and short tasks: due schedules, notifications, old results."""

from __future__ import annotations

from collections.abc import Sequence

from nsqdaemon.command_line import CommandParser
from nsqplatform.console.nsq.options import add_home, use_home
from nsqplatform.console.nsq.prepare import load_django
from nsqplatform.console.nsq.worker import work

CONCURRENCY = 8
"""Number of threads, half of which jobs may occupy (jobs.tasks). A webhook that does not answer occupies one for ten
seconds."""


def parser() -> CommandParser:
    made = CommandParser(
        prog="nsq dispatcher",
        description="Run jobs, keep the history, queue due reports, send their notifications and remove old results.",
        examples=[("nsq dispatcher --home /srv/nsq", "with the data in this folder")],
    )
    add_home(made)
    return made


def main(argv: Sequence[str]) -> int:
    use_home(parser().parse_args(argv))
    load_django()
    from django.conf import settings

    return work(settings.CELERY_TASK_DEFAULT_QUEUE, name="dispatcher", concurrency=CONCURRENCY)
