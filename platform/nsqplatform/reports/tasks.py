"""The Celery tasks of reports.

``run_report`` lasts as long as its report and is in the queue ``reports`` (``nsq worker``). All other tasks are short
and in the queue ``dispatch`` (``nsq dispatcher``), so that none of them waits for a report. CELERY_BEAT_SCHEDULE says
when the periodic one runs.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from threading import Thread
from typing import Any

from celery import shared_task
from celery.signals import beat_init, worker_ready, worker_shutdown, worker_shutting_down
from django.conf import settings
from django.db import connection, transaction
from django.utils import timezone

from nsqplatform.clusters import current
from nsqplatform.clusters.current import in_every_cluster
from nsqplatform.clusters.declaration import DEFAULT
from nsqplatform.clusters.rows import in_cluster_of
from nsqplatform.outbound import Undelivered
from nsqplatform.reports import archive_size, notifications, preparation, runner, schedule
from nsqplatform.reports.live import broadcast_run
from nsqplatform.reports.models import Report, ReportRun
from nsqplatform.reports.warm_session import WARM_SESSION, remove_left_files
from nsqplatform.worker_task import WrongState
from nsqwire.units import Seconds

logger = logging.getLogger(__name__)

REPORTS_QUEUE = settings.CELERY_TASK_ROUTES["reports.run_report"]["queue"]
ABANDONED_CHECK_S = 5.0
MAX_WAITING = 10
"""Maximum number of waiting runs of a schedule; a further due time is skipped."""


@shared_task(name="reports.run_report")
def run_report(run_id: int) -> None:
    """Execute a run. Afterwards create a retry or notify, and start the next waiting run of its schedule."""
    with in_cluster_of(ReportRun, run_id) as found:
        run = runner.execute(run_id) if found else None
        if run is not None:
            finish_run(run)


@shared_task(name="reports.run_scheduled")
def run_scheduled(report_id: int, asked_at: Seconds | None = None) -> None:
    """Create a run of a due report, or skip it if its overlap policy says so and the previous run has not finished.

    ``asked_at`` (Unix seconds) is the time of beat's request. Of several requests that waited for a dispatcher, only
    one creates a run.
    """
    with in_cluster_of(Report, report_id) as found:
        if found:
            _run_scheduled(report_id, asked_at)


def _run_scheduled(report_id: int, asked_at: Seconds | None) -> None:
    with transaction.atomic():
        report = Report.objects.select_for_update().filter(pk=report_id, enabled=True).first()
        if report is None:
            return
        unfinished = list(report.runs.filter(state__in=ReportRun.UNFINISHED).values_list("pk", flat=True))
        if reason := _reason_to_skip(report, len(unfinished), asked_at):
            report.skip(reason=reason, at=timezone.now() if asked_at is None else datetime.fromtimestamp(asked_at, UTC))
            report.save()
            logger.warning("skipped", extra={"report": report.name, "reason": reason})
            return
        run = run_of(report, requested_by=f"schedule {report.name}")
        run.save()
        report.last_run_at = timezone.now()
        report.save()
        transaction.on_commit(lambda: run_report.delay(run.pk))
    broadcast_run(run)
    if report.overlap == Report.Overlap.CANCEL:
        for previous in unfinished:
            with suppress(WrongState), runner.changing(previous) as older:
                older.request_cancel(at=timezone.now())


def _reason_to_skip(report: Report, unfinished: int, asked_at: Seconds | None) -> str:
    """The reason to create no run, or an empty string."""
    if asked_at is not None and report.last_run_at is not None and asked_at < report.last_run_at.timestamp():
        return "it waited for the dispatcher, and a later run replaces it"
    if report.overlap == Report.Overlap.SKIP and unfinished:
        return "the previous run had not finished"
    return f"{unfinished} runs were waiting" if unfinished > MAX_WAITING else ""


def run_of(report: Report, *, requested_by: str) -> ReportRun:
    """A run with the schedule's current values, not saved."""
    return ReportRun(
        report=report,
        job=report.job,
        parameters=report.parameters,
        requested_by=requested_by,
        time_limit_s=report.time_limit_s,
        keep_days=report.keep_days,
    )


def finish_run(run: ReportRun) -> None:
    """Handle a run's end: create a retry or send notifications, and start the next waiting run."""
    report = run.report
    if report is None:
        return
    if run.state == ReportRun.State.FAILED and run.attempt <= report.retries:
        wait = timedelta(seconds=report.retry_after_s * 2 ** (run.attempt - 1))
        again = run_of(report, requested_by=run.requested_by)
        again.parameters, again.attempt, again.not_before = run.parameters, run.attempt + 1, timezone.now() + wait
        again.save()
        broadcast_run(again)
        run_report.apply_async((again.pk,), eta=again.not_before)
    elif notifies_of(report, run):
        for way in notifications.ways(report):
            notify.delay(run.pk, way)
    queue_next_run(report.pk)


def queue_next_run(report_id: int) -> None:
    """Queue the schedule's oldest waiting run, if it may start now."""
    waiting = ReportRun.objects.filter(report=report_id, state=ReportRun.State.QUEUED).order_by("pk").first()
    if waiting is not None and not waiting.must_wait(at=timezone.now()):
        run_report.delay(waiting.pk)


def notifies_of(report: Report, run: ReportRun) -> bool:
    """Whether the schedule notifies of the end of this run. It never notifies of a cancelled run."""
    states = {
        Report.NotifyOn.NEVER: (),
        Report.NotifyOn.FAILURE: (ReportRun.State.FAILED,),
        Report.NotifyOn.COMPLETION: (ReportRun.State.FAILED, ReportRun.State.SUCCEEDED),
    }
    return run.state in states[Report.NotifyOn(report.notify_on)]


@shared_task(name="reports.notify", autoretry_for=(Undelivered,), retry_backoff=5, max_retries=5)
def notify(run_id: int, way: notifications.Way) -> None:
    """Send a notification of a run's end, with retries for some minutes."""
    with in_cluster_of(ReportRun, run_id):
        run = ReportRun.objects.select_related("report").filter(pk=run_id).first()
        if run is not None and run.report is not None:
            notifications.send(run.report, run, way)


@shared_task(name="reports.list_archive")
def list_archive(cluster: str) -> None:
    """List the archive for its page."""
    if cluster in current.names():
        with current.entered(cluster):
            archive_size.list_now()


@shared_task(name="reports.drop_expired_results")
def drop_expired_results() -> None:
    """Remove expired results."""
    for run_id in runner.drop_expired_results():
        logger.info("removed an expired result", extra={"run": run_id})


@in_every_cluster
def close_abandoned() -> None:
    """Close the runs whose worker has died."""
    for run in runner.fail_abandoned():
        logger.warning("closed a run whose worker died", extra={"run": run.pk})
        finish_run(run)


@worker_ready.connect
def recover_runs(sender: Any, **_: Any) -> None:
    """When a worker starts, close abandoned runs, remove files of killed workers, and queue again the queued runs, of
    which the queue may have lost some."""
    if REPORTS_QUEUE not in sender.app.amqp.queues.consume_from:
        return
    close_abandoned()
    remove_left_files()
    preparation.start_listening()
    # A run that is also in the queue still starts only once: the second delivery finds that its state is not queued.
    for run in ReportRun.everywhere.filter(state=ReportRun.State.QUEUED):
        run_report.apply_async((run.pk,), eta=run.not_before)


@beat_init.connect
def maintain_new_archives(**_: Any) -> None:
    """Schedule the maintenance of the archives of clusters that are declared for the first time."""
    for cluster in current.names():
        if cluster != DEFAULT:
            with current.entered(cluster), transaction.atomic():
                schedule.schedule_maintenance()


@beat_init.connect
def start_closing_abandoned(**_: Any) -> None:
    """Beat itself closes runs whose worker has died: a task would wait for that worker."""
    Thread(target=_close_abandoned_repeatedly, name="abandoned runs", daemon=True).start()


def _close_abandoned_repeatedly() -> None:
    while True:
        time.sleep(ABANDONED_CHECK_S)
        try:
            close_abandoned()
        except Exception:  # the database or Redis is down; the next attempt follows
            logger.exception("cannot check for abandoned runs")
        finally:
            connection.close()


@worker_shutting_down.connect
def stop_runs(**_: Any) -> None:
    """End the runs of a worker that is shutting down; otherwise it would wait for their end."""
    runner.stopping.set()


@worker_shutdown.connect
def end_session(**_: Any) -> None:
    """End the Spark session of a worker that has ended its runs."""
    WARM_SESSION.end()
