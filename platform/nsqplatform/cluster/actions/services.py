"""The actions of operators on the cluster: authorized, performed and audited."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Literal

from asgiref.sync import async_to_sync
from typing_extensions import TypedDict

from nsqcluster import Action, NotInCluster, Result, Rewound, actions, outcome_of
from nsqplatform.accounts import audit
from nsqplatform.accounts.models import AuditEntry, User
from nsqplatform.accounts.rights import require
from nsqplatform.accounts.roles import Permission
from nsqplatform.cluster import selectors, store
from nsqplatform.cluster.actions.execution import execute


def act(*, user: User, action: Action, topic: str, channel: str | None, remote_address: str) -> AuditEntry:
    """Perform an action on behalf of ``user`` and return its audit entry.

    Raises PermissionDenied, NotInCluster and ClusterUnreachable, having changed nothing.
    """
    require(user, Permission.ACT, topic=topic)
    results = async_to_sync(execute)(selectors.cluster(), action, topic, channel)
    return record_action(
        user=user, action=action, topic=topic, channel=channel, results=results, remote_address=remote_address
    )


def tombstone(*, user: User, topic: str, node: str, address: str, remote_address: str) -> AuditEntry:
    """Tombstone a topic on one node, at ``address``, and return the audit entry.

    Raises PermissionDenied, and NotInCluster if neither a registry nor the node has the topic.
    """
    require(user, Permission.ACT, topic=topic)
    known = selectors.cluster()
    known = replace(known, addresses={**known.addresses, node: address})
    results = async_to_sync(actions.tombstone)(known, topic, node)
    if all(each["outcome"] == "absent" for each in results):
        raise NotInCluster(f"node {node} does not have topic {topic}")
    return record_action(
        user=user, action="tombstone", topic=topic, channel=None, results=results, remote_address=remote_address
    )


def rewind(*, user: User, topic: str, channel: str, since: datetime, remote_address: str) -> AuditEntry:
    """Rewind a channel to ``since`` on every node, and return the audit entry.

    Raises PermissionDenied, NotInCluster and ClusterUnreachable, having changed nothing.
    """
    require(user, Permission.ACT, topic=topic)
    moment = since.astimezone(UTC).isoformat()
    results = async_to_sync(actions.rewind)(selectors.cluster(), topic, channel, moment)
    return record_action(
        user=user, action="rewind", topic=topic, channel=channel, results=results, remote_address=remote_address
    )


class RewindPart(TypedDict):
    """The messages that one node would redeliver. ``messages`` is null if unknown, for the reason in ``error``;
    ``oldest`` is in Unix milliseconds, null without messages; ``complete`` is false if the node no longer stores all
    messages of that time.
    """

    node: str
    messages: int | None
    oldest: int | None
    complete: bool
    error: str


def preview_rewind(*, user: User, topic: str, channel: str, since: datetime) -> list[RewindPart]:
    """Count the messages that ``rewind`` would redeliver on each node. Nothing is changed. Raises the same as
    ``rewind``."""
    require(user, Permission.ACT, topic=topic)
    moment = since.astimezone(UTC).isoformat()
    known = async_to_sync(actions.preview_rewind)(selectors.cluster(), topic, channel, moment)
    return [_rewind_part(node, part) for node, part in sorted(known.items())]


def _rewind_part(node: str, part: Rewound | str) -> RewindPart:
    if isinstance(part, str):
        return RewindPart(node=node, messages=None, oldest=None, complete=False, error=part)
    oldest = part.oldest_timestamp and part.oldest_timestamp // 1_000_000
    return RewindPart(node=node, messages=part.messages, oldest=oldest, complete=part.complete, error="")


def record_action(
    *,
    user: User,
    action: Action | Literal["tombstone", "publish", "rewind"],
    topic: str,
    channel: str | None,
    results: list[Result],
    remote_address: str,
) -> AuditEntry:
    """Record the outcome of an action in the audit trail, and return the entry. Also calls ``mark_changed``."""
    mark_changed()
    return audit.record(
        user=user,
        action=action,
        topic=topic,
        channel=channel,
        outcome=outcome_of(results),
        results=results,
        remote_address=remote_address,
    )


def mark_changed() -> None:
    """Set CHANGED in Redis, because the snapshot may not show the effect of an action yet."""
    with store.connect() as redis:
        redis.set(store.CHANGED(), "1", px=store.CHANGED_EXPIRES_MS)
