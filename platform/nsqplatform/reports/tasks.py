"""The Celery tasks of reports.

``run_report`` waits for a report for as long as it takes, in the queue ``reports`` (``nsq worker``). All others take
moments and are in the queue ``dispatch`` (``nsq dispatcher``), so that none of them waits for a report.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from threading import Thread
from typing import Any

from celery import shared_task
from celery.signals import beat_init, worker_ready, worker_shutting_down
from django.conf import settings
from django.db import connection, transaction

from nsqplatform.console.celery import app
from nsqplatform.outbound import Undelivered
from nsqplatform.reports import notice, runner
from nsqplatform.reports.live import announce
from nsqplatform.reports.models import Report, ReportRun, WrongState, now

logger = logging.getLogger(__name__)

app.conf.beat_schedule = {
    **(app.conf.beat_schedule or {}),
    "reports: drop results that were kept long enough": {"task": "reports.drop_expired_results", "schedule": 3600.0},
}
REPORTS_QUEUE = settings.CELERY_TASK_ROUTES["reports.run_report"]["queue"]
LOOK_EVERY_S = 5.0
WAITING_MOST = 10
"""A schedule that queues what overlaps has at most so many runs waiting."""


@shared_task(name="reports.run_report")
def run_report(run_id: int) -> None:
    """Run what was asked for, and see to what follows from its end."""
    run = runner.execute(run_id)
    if run is not None:
        run_over(run)


@shared_task(name="reports.run_scheduled")
def run_scheduled(report_id: int, asked_at: float | None = None) -> None:
    """A report is due: make a run, or skip it as its overlap policy says while its last run is not over.

    ``asked_at`` (unix seconds) is when beat asked. Requests that waited for a dispatcher make one run together.
    """
    with transaction.atomic():
        report = Report.objects.select_for_update().filter(pk=report_id, enabled=True).first()
        if report is None:
            return
        unfinished = list(report.runs.filter(state__in=ReportRun.UNFINISHED).values_list("pk", flat=True))
        if reason := _reason_to_skip(report, len(unfinished), asked_at):
            report.skip(reason=reason, at=now() if asked_at is None else datetime.fromtimestamp(asked_at, UTC))
            report.save()
            logger.warning("skipped", extra={"report": report.name, "reason": reason})
            return
        run = run_of(report, requested_by=f"schedule {report.name}")
        run.save()
        report.last_run_at = now()
        report.save()
        transaction.on_commit(lambda: run_report.delay(run.pk))
    announce(run)
    if report.overlap == Report.Overlap.CANCEL:
        for previous in unfinished:
            with suppress(WrongState), runner.changing(previous) as older:
                older.request_cancel(at=now())


def _reason_to_skip(report: Report, unfinished: int, asked_at: float | None) -> str:
    """Empty if it makes a run."""
    if asked_at is not None and report.last_run_at is not None and asked_at < report.last_run_at.timestamp():
        return "it waited for the dispatcher, and a later run stands for it"
    if report.overlap == Report.Overlap.SKIP and unfinished:
        return "the last run was not over"
    return f"{unfinished} runs were waiting" if unfinished > WAITING_MOST else ""


def run_of(report: Report, *, requested_by: str) -> ReportRun:
    """A run of a schedule, as it now is; not saved."""
    return ReportRun(
        report=report,
        job=report.job,
        parameters=report.parameters,
        requested_by=requested_by,
        time_limit_s=report.time_limit_s,
        keep_days=report.keep_days,
    )


def run_over(run: ReportRun) -> None:
    """What follows from a run's end: another attempt, or word of it, and the next one that waited for it."""
    report = run.report
    if report is None:
        return
    if run.state == ReportRun.State.FAILED and run.attempt <= report.retries:
        wait = timedelta(seconds=report.retry_after_s * 2 ** (run.attempt - 1))
        again = run_of(report, requested_by=run.requested_by)
        again.parameters, again.attempt, again.not_before = run.parameters, run.attempt + 1, now() + wait
        again.save()
        announce(again)
        run_report.apply_async((again.pk,), eta=again.not_before)
    elif wants_word(report, run):
        for way in notice.ways(report):
            tell.delay(run.pk, way)
    start_next(report.pk)


def start_next(report_id: int) -> None:
    """Put the oldest run of a schedule that waits, and need wait no more, into the queue."""
    waiting = ReportRun.objects.filter(report=report_id, state=ReportRun.State.QUEUED).order_by("pk").first()
    if waiting is not None and not waiting.must_wait(at=now()):
        run_report.delay(waiting.pk)


def wants_word(report: Report, run: ReportRun) -> bool:
    """Cancelled runs are nobody's news."""
    told = {
        Report.NotifyOn.NEVER: (),
        Report.NotifyOn.FAILURE: (ReportRun.State.FAILED,),
        Report.NotifyOn.COMPLETION: (ReportRun.State.FAILED, ReportRun.State.SUCCEEDED),
    }
    return run.state in told[Report.NotifyOn(report.notify_on)]


@shared_task(name="reports.tell", autoretry_for=(Undelivered,), retry_backoff=5, max_retries=5)
def tell(run_id: int, way: notice.Way) -> None:
    """Send word of a run's end to whom its schedule names; tried again for some minutes."""
    run = ReportRun.objects.select_related("report").filter(pk=run_id).first()
    if run is not None and run.report is not None:
        notice.send(run.report, run, way)


@shared_task(name="reports.drop_expired_results")
def drop_expired_results() -> None:
    """Remove results that have been kept long enough."""
    for run_id in runner.drop_expired_results():
        logger.info("dropped a result that was kept long enough", extra={"run": run_id})


def close_abandoned() -> None:
    """Close the runs whose worker has died."""
    for run in runner.fail_abandoned():
        logger.warning("closed a run whose worker died", extra={"run": run.pk})
        run_over(run)


@worker_ready.connect
def look_after_the_dead(sender: Any, **_: Any) -> None:
    """A worker that starts closes what the one before it left, and takes up what the queue has lost."""
    if REPORTS_QUEUE not in sender.app.amqp.queues.consume_from:
        return
    close_abandoned()
    # A run that is still in the queue too is started once: the second delivery finds it no longer queued.
    for run in ReportRun.objects.filter(state=ReportRun.State.QUEUED):
        run_report.apply_async((run.pk,), eta=run.not_before)


@beat_init.connect
def watch_the_workers(**_: Any) -> None:
    """Beat itself looks for runs whose worker has died: a task for it would wait for the worker that is gone."""
    Thread(target=_look_for_the_dead, name="abandoned runs", daemon=True).start()


def _look_for_the_dead() -> None:
    while True:
        time.sleep(LOOK_EVERY_S)
        try:
            close_abandoned()
        except Exception:  # the database or Redis is away: looked for again
            logger.exception("could not look for abandoned runs")
        finally:
            connection.close()


@worker_shutting_down.connect
def let_go(**_: Any) -> None:
    """Runs would keep a worker from stopping for as long as they take."""
    runner.stopping.set()
