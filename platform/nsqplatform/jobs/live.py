"""Sends the state of jobs to the open browsers."""

from __future__ import annotations

import logging

from redis.exceptions import RedisError

from nsqplatform.cluster.live.broadcast import CLUSTER, broadcast
from nsqplatform.jobs.models import Job
from nsqplatform.jobs.schemas import JobMessage, job_detail

logger = logging.getLogger(__name__)


def broadcast_job(job: Job) -> None:
    """Send the job to every browser. If Redis cannot be reached, that is logged, and the job continues."""
    try:
        broadcast(CLUSTER, JobMessage(type="job", job=job_detail(job)).model_dump())
    except (RedisError, OSError) as error:
        logger.warning("cannot broadcast a job's progress", extra={"job": job.pk, "error": str(error)})
