"""The Celery tasks of jobs, in the queue of the dispatcher. CELERY_BEAT_SCHEDULE defines when the periodic ones run."""

from __future__ import annotations

import logging
from datetime import timedelta
from threading import BoundedSemaphore
from typing import Any

from celery import shared_task
from celery.signals import celeryd_after_setup, worker_shutting_down
from django.conf import settings
from django.utils import timezone

from nsqplatform.clusters import current
from nsqplatform.clusters.rows import in_cluster_of
from nsqplatform.jobs import runner
from nsqplatform.jobs.models import Job
from nsqplatform.worker_process import this_worker

logger = logging.getLogger(__name__)

JOBS_AT_ONCE = 4
"""Maximum number of jobs that a dispatcher executes at once. The rest of its threads is for short tasks."""
KEPT = timedelta(days=14)
"""How long a job is kept after its end. Its audit entries are kept for ``--audit-retention``."""

_slots = BoundedSemaphore(JOBS_AT_ONCE)


@shared_task(name="jobs.run_job")
def run_job(job_id: int) -> None:
    """Execute a job, then start queued ones. If JOBS_AT_ONCE jobs already run here, the job stays queued."""
    if not _slots.acquire(blocking=False):
        return
    try:
        with in_cluster_of(Job, job_id) as found:
            if found:
                runner.execute(job_id)
    finally:
        _slots.release()
        queue_next_jobs()


def queue_next_jobs() -> None:
    """Send the oldest queued jobs to the queue. A job that is in the queue twice still starts only once."""
    waiting = (
        Job.everywhere.filter(state=Job.State.QUEUED, cluster__in=current.names())
        .order_by("pk")
        .values_list("pk", flat=True)
    )
    for job_id in waiting[:JOBS_AT_ONCE]:
        run_job.delay(job_id)


@shared_task(name="jobs.resume_abandoned")
def resume_abandoned() -> None:
    """Resume the jobs whose worker has died, and start queued ones whose ids the queue has lost."""
    requeue_abandoned()
    queue_next_jobs()


@current.in_every_cluster
def requeue_abandoned(*, restarted: str = "") -> None:
    for job in runner.requeue_abandoned(restarted=restarted):
        if not restarted:
            logger.warning("resuming a job whose worker died", extra={"job": job.pk})


@shared_task(name="jobs.remove_old_jobs")
def remove_old_jobs() -> None:
    """Remove jobs that ended longer than KEPT ago."""
    Job.everywhere.filter(finished_at__lt=timezone.now() - KEPT).delete()


@celeryd_after_setup.connect
def recover_jobs(instance: Any, **_: Any) -> None:
    """When a dispatcher starts, return the jobs of its killed predecessor to the queue, and start queued jobs."""
    if settings.CELERY_TASK_DEFAULT_QUEUE not in instance.app.amqp.queues.consume_from:
        return
    requeue_abandoned(restarted=this_worker())
    queue_next_jobs()


@worker_shutting_down.connect
def stop_jobs(**_: Any) -> None:
    """Return the jobs of a worker that is shutting down to the queue; otherwise it would wait for them to end."""
    runner.stopping.set()
