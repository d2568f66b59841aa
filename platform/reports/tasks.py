"""What Celery runs: the reports that were asked for, those that are due, and looking after the dead."""

from __future__ import annotations

import logging
from typing import Any

from celery import shared_task
from celery.signals import worker_ready, worker_shutting_down
from django.db import transaction

from console.celery import app
from reports import runner
from reports.live import announce
from reports.models import Report, ReportRun

logger = logging.getLogger(__name__)

app.conf.beat_schedule = {
    **(app.conf.beat_schedule or {}),
    "reports: close runs whose worker died": {"task": "reports.fail_abandoned_runs", "schedule": 30.0},
}


@shared_task(name="reports.run_report")
def run_report(run_id: int) -> None:
    """Run what was asked for."""
    runner.execute(run_id)


@shared_task(name="reports.run_scheduled")
def run_scheduled(report_id: int) -> None:
    """A report is due. It is left out if its last run is not over yet: two of them would only slow each other."""
    with transaction.atomic():
        report = Report.objects.select_for_update().filter(pk=report_id, enabled=True).first()
        if report is None:
            return
        if report.runs.filter(state__in=ReportRun.UNFINISHED).exists():
            logger.warning("not run: its last run is not over", extra={"report": report.name})
            return
        run = report.runs.create(job=report.job, parameters=report.parameters, requested_by=f"schedule {report.name}")
    announce(run)
    runner.execute(run.pk)


@shared_task(name="reports.fail_abandoned_runs")
def fail_abandoned_runs() -> None:
    """Close the runs whose worker has died."""
    for run_id in runner.fail_abandoned():
        logger.warning("closed a run whose worker died", extra={"run": run_id})


@worker_ready.connect
def look_after_the_dead(**_: Any) -> None:
    """A worker that starts closes what the one before it left, and takes up what the queue has lost."""
    fail_abandoned_runs()
    # A run that is still in the queue too is started once: the second delivery finds it no longer queued.
    for run_id in ReportRun.objects.filter(state=ReportRun.State.QUEUED).values_list("pk", flat=True):
        run_report.delay(run_id)


@worker_shutting_down.connect
def let_go(**_: Any) -> None:
    """Runs would keep a worker from stopping for as long as they take."""
    runner.stopping.set()
