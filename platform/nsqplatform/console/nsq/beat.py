"""``nsq beat``: Celery beat, which starts due reports and the dispatcher's periodic tasks."""

from __future__ import annotations

from collections.abc import Sequence

from nsqdaemon.command_line import CommandParser
from nsqplatform.console.nsq.options import add_home, use_home
from nsqplatform.console.nsq.prepare import load_django
from nsqplatform.console.nsq.readiness import write_pid_file


def parser() -> CommandParser:
    made = CommandParser(
        prog="nsq beat",
        description="Start due reports and the periodic tasks of the dispatcher, such as keeping the history.",
        examples=[("nsq beat --home /srv/nsq", "with the data in this folder")],
    )
    add_home(made)
    return made


def main(argv: Sequence[str]) -> int:
    use_home(parser().parse_args(argv))
    load_django()
    from celery.signals import beat_init

    from nsqplatform.console.celery import app

    beat_init.connect(lambda **_: write_pid_file(), weak=False)
    app.start(["--quiet", "beat", "--loglevel", "INFO"])
    return 0
