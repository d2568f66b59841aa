"""What operators may have done to the cluster: checked, done, and written down."""

from __future__ import annotations

import logging

from asgiref.sync import async_to_sync

from accounts.models import User
from accounts.roles import Permission
from accounts.services import require
from cluster import selectors
from cluster.actions import Action, outcome_of, perform
from cluster.models import AuditEntry

logger = logging.getLogger(__name__)


def act(*, user: User, action: Action, topic: str, channel: str | None, remote_address: str) -> AuditEntry:
    """Perform an action on behalf of ``user`` and return its audit entry.

    Raises PermissionDenied, NotInCluster and ClusterUnreachable, having changed nothing.
    """
    require(user, Permission.ACT)
    results = async_to_sync(perform)(selectors.cluster(), action, topic, channel)
    entry = AuditEntry.objects.create(
        user=user.username,
        action=action,
        topic=topic,
        channel=channel,
        outcome=outcome_of(results),
        results=results,
        remote_address=remote_address,
    )
    logger.info(
        "action",
        extra={
            "user": user.username,
            "action": str(action),
            "topic": topic,
            "channel": channel,
            "outcome": entry.outcome,
        },
    )
    return entry
