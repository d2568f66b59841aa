"""Alerts between processes: what browsers are told, and how the collector learns that people changed something."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, cast

from redis.exceptions import RedisError

from alerts import selectors
from alerts.models import Alert
from cluster import store
from cluster.live import CLUSTER, broadcast

logger = logging.getLogger(__name__)

VERSION = "nsq:alerts:version"
"""Counts what browsers were told; one that sees a gap asks for all alerts anew."""
ASKED = "nsq:alerts:asked"
"""Counts what people changed; the collector looks at it with every beat."""
TOLD_MOST = 100
"""Alerts in one message; browsers ask for the others, of which the gap in versions tells them."""


def version() -> int:
    with store.connect() as redis:
        return int(cast(bytes | None, redis.get(VERSION)) or 0)


def announce(alert_ids: Sequence[int] = (), *, asked: bool = False) -> None:
    """Tell every browser how many alerts there are, and how these are by now; with ``asked``, tell the collector that
    people changed something. Raises nothing: a Redis that is away is logged, and what was changed holds."""
    try:
        if asked:
            with store.connect() as redis:
                redis.incr(ASKED)
        broadcast(CLUSTER, next_message(alert_ids))
    except (RedisError, OSError) as error:
        logger.warning("nobody was told of a change of alerts", extra={"error": str(error)})


def next_message(alert_ids: Sequence[int]) -> dict[str, Any]:
    """What browsers are told of a change. Of more alerts than one message holds they learn by a gap in the versions."""
    with store.connect() as redis:
        number = cast(int, redis.incrby(VERSION, 2 if len(alert_ids) > TOLD_MOST else 1))
    return message(number, alert_ids[:TOLD_MOST])


def message(number: int, alert_ids: Sequence[int] = ()) -> dict[str, Any]:
    """``{"type":"alerts","version","counts","alerts":[ALERT]}``."""
    changed = Alert.objects.filter(pk__in=alert_ids) if alert_ids else Alert.objects.none()
    return {
        "type": "alerts",
        "version": number,
        "counts": selectors.counts(),
        "alerts": selectors.described(changed),
    }


def present_message() -> dict[str, Any]:
    """What browsers are told though nothing changed, lest one that missed a message stays wrong."""
    return message(version())
