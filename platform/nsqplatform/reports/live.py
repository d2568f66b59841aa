"""Sends the state of runs to the open browsers."""

from __future__ import annotations

import logging

from redis.exceptions import RedisError

from nsqplatform.cluster.live.broadcast import CLUSTER, broadcast
from nsqplatform.reports.models import ReportRun
from nsqplatform.reports.schemas import RunMessage, run_detail

logger = logging.getLogger(__name__)


def broadcast_run(run: ReportRun) -> None:
    """Send the run to every browser. If Redis cannot be reached, that is logged, and the run continues."""
    try:
        broadcast(CLUSTER, RunMessage(type="run", run=run_detail(run)).model_dump())
    except (RedisError, OSError) as error:
        logger.warning("cannot broadcast a run's progress", extra={"run": run.pk, "error": str(error)})
