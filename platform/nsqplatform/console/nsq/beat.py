"""``nsq beat``: Celery beat, which starts the dispatcher's check for due reports."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from nsqplatform.console.nsq.prepare import load_django
from nsqplatform.console.nsq.readiness import write_pid_file


def main(argv: Sequence[str]) -> int:
    argparse.ArgumentParser(prog="nsq beat", description="Check regularly which scheduled reports are due.").parse_args(
        argv
    )
    load_django()
    from celery.signals import beat_init

    from nsqplatform.console.celery import app

    beat_init.connect(lambda **_: write_pid_file(), weak=False)
    app.start(["--quiet", "beat", "--loglevel", "INFO"])
    return 0
