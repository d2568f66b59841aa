"""Messages about alerts between processes: to browsers, and to the collector when a person changed something."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import cast

from redis.exceptions import RedisError

from nsqplatform.alerts import selectors
from nsqplatform.alerts.models import Alert
from nsqplatform.alerts.schemas import AlertsMessage
from nsqplatform.cluster import store
from nsqplatform.cluster.live.broadcast import CLUSTER, broadcast
from nsqplatform.clusters.current import Key

logger = logging.getLogger(__name__)

VERSION = Key("alerts:version")
"""The version of the last message to browsers. A browser that misses one requests all alerts."""
CHANGES = Key("alerts:changes")
"""A counter of changes by people; the collector reads it with every poll."""
MAX_BROADCAST = 100
"""Maximum number of alerts in one message. If more changed, a version is skipped, so that browsers request all
alerts."""


def version() -> int:
    with store.connect() as redis:
        return int(cast(bytes | None, redis.get(VERSION())) or 0)


def broadcast_alerts(alert_ids: Sequence[int] = (), *, by_person: bool = False) -> None:
    """Send every browser the counts and these alerts; ``by_person``: the collector must read the change.

    Raises nothing: if Redis cannot be reached, that is logged, and the change stays in effect.
    """
    try:
        if by_person:
            with store.connect() as redis:
                redis.incr(CHANGES())
        broadcast(CLUSTER, next_message(alert_ids).model_dump())
    except (RedisError, OSError) as error:
        logger.warning("cannot broadcast a change of alerts", extra={"error": str(error)})


def next_message(alert_ids: Sequence[int]) -> AlertsMessage:
    """The message for a change of these alerts, with the next version."""
    with store.connect() as redis:
        number = cast(int, redis.incrby(VERSION(), 2 if len(alert_ids) > MAX_BROADCAST else 1))
    return message(number, alert_ids[:MAX_BROADCAST])


def message(number: int, alert_ids: Sequence[int] = ()) -> AlertsMessage:
    """The message of version ``number`` with these alerts."""
    changed = Alert.objects.filter(pk__in=alert_ids) if alert_ids else Alert.objects.none()
    return AlertsMessage(type="alerts", version=number, counts=selectors.counts(), alerts=selectors.described(changed))


def present_message() -> AlertsMessage:
    """The message that is sent when nothing changed, for browsers that missed one."""
    return message(version())
