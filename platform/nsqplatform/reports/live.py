"""Telling the open browsers how a run is going."""

from __future__ import annotations

import logging

from redis.exceptions import RedisError

from nsqplatform.cluster.live.broadcast import CLUSTER, broadcast
from nsqplatform.reports.models import ReportRun
from nsqplatform.reports.schemas import run_detail

logger = logging.getLogger(__name__)


def announce(run: ReportRun) -> None:
    """Send RUN to every browser. A run goes on without an audience: a Redis that is away is only logged."""
    try:
        broadcast(CLUSTER, {"type": "run", "run": run_detail(run)})
    except (RedisError, OSError) as error:
        logger.warning("nobody was told of a run's progress", extra={"run": run.pk, "error": str(error)})
