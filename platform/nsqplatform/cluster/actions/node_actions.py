"""Drains and hand-overs of nodes: authorized, performed and audited."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from asgiref.sync import async_to_sync

import nsqcluster
from nsqcluster import Cluster, Result, outcome_of
from nsqplatform.accounts import audit
from nsqplatform.accounts.models import AuditEntry, User
from nsqplatform.accounts.rights import require_pattern
from nsqplatform.accounts.roles import Permission
from nsqplatform.cluster import selectors
from nsqplatform.cluster.actions.services import mark_changed
from nsqplatform.cluster.actions.topic_nodes import address_of_node
from nsqwire.units import WholeSeconds


def drain(
    *, user: User, node: str, timeout_s: WholeSeconds | None, takes_publishes: bool | None, remote_address: str
) -> AuditEntry:
    """Drain a node on behalf of ``user``, or change the parameters of its drain, and return the audit entry.

    A parameter that is None is that of the node's own settings. Raises PermissionDenied, unless the user may act on all
    topics, and NotInCluster for an unknown node.
    """
    cluster = _permitted(user, node)
    results = async_to_sync(nsqcluster.drain)(cluster, node, timeout_s=timeout_s, takes_publishes=takes_publishes)
    parameters = [
        *([] if timeout_s is None else [f"timeout {timeout_s} s"] if timeout_s else ["no timeout"]),
        *([] if takes_publishes is None else ["takes publishes" if takes_publishes else "refuses publishes"]),
    ]
    return _record(user, "drain", node, results, remote_address, "; ".join(parameters))


def cancel_drain(*, user: User, node: str, remote_address: str) -> AuditEntry:
    """Let a node that drains register and take publishes again, and return the audit entry. Raises the same as
    ``drain``."""
    cluster = _permitted(user, node)
    return _record(user, "cancel drain", node, async_to_sync(nsqcluster.cancel_drain)(cluster, node), remote_address)


def hand_over(*, user: User, node: str, remote_address: str) -> AuditEntry:
    """Let the follower of a mirrored node lead on behalf of ``user``, and return the audit entry. Raises the same as
    ``drain``."""
    cluster = _permitted(user, node)
    return _record(user, "hand over", node, async_to_sync(nsqcluster.hand_over)(cluster, node), remote_address)


def _permitted(user: User, node: str) -> Cluster:
    """The cluster, with the node's address."""
    require_pattern(user, Permission.ACT, "*")  # a node has topics of all names
    cluster = selectors.cluster()
    return replace(cluster, addresses={**cluster.addresses, node: address_of_node(cluster, {}, node)})


def _record(
    user: User, action: str, node: str, results: Sequence[Result], remote_address: str, detail: str = ""
) -> AuditEntry:
    mark_changed()
    return audit.record(
        user=user,
        action=action,
        subject=node,
        detail=detail,
        outcome=outcome_of(results),
        results=results,
        remote_address=remote_address,
    )
