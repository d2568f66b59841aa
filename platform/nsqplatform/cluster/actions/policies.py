"""Policies of the cluster's nodes: read, and changed on all nodes; authorized and audited."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from asgiref.sync import async_to_sync

from nsqcluster import Result, outcome_of, policies
from nsqcluster.policies import ChannelPolicy, Patterns, Policies, Values, text_of
from nsqplatform.accounts import audit
from nsqplatform.accounts.models import AuditEntry, User
from nsqplatform.accounts.rights import require_pattern
from nsqplatform.accounts.roles import Permission
from nsqplatform.cluster import selectors


class Mended(NamedTuple):
    """A policy that was changed on some nodes, with their results."""

    patterns: Patterns
    results: Sequence[Result]


def read() -> Policies:
    """The policies of all nodes. Raises ClusterUnreachable."""
    return async_to_sync(policies.read_policies)(selectors.cluster())


def of_channel(topic: str, channel: str) -> list[ChannelPolicy]:
    """What applies to a channel on each node. Raises NotInCluster and ClusterUnreachable."""
    return async_to_sync(policies.channel_policies)(selectors.cluster(), topic, channel)


def change(*, user: User, patterns: Patterns, values: Values | None, remote_address: str) -> AuditEntry:
    """Set a policy on all nodes on behalf of ``user``; without ``values``, delete it. Return the audit entry.

    Raises PermissionDenied, PolicyRefused, NotInCluster and ClusterUnreachable, having changed nothing.
    """
    require_pattern(user, Permission.ACT, patterns.topic)
    cluster = selectors.cluster()
    if values is None:
        results = async_to_sync(policies.delete_policy)(cluster, patterns)
    else:
        results = async_to_sync(policies.set_policy)(cluster, patterns, values)
    return record(user=user, patterns=patterns, values=values, results=results, remote_address=remote_address)


def mend(*, user: User, node: str, only: Patterns | None, remote_address: str) -> list[Mended]:
    """Make the policies of all nodes, or one of them, those of ``node``. Return what was changed.

    Raises PermissionDenied, unless the user may change all policies that differ; NotInCluster for a node whose policies
    are unknown, and ClusterUnreachable. Nothing has changed then.
    """
    cluster = selectors.cluster()
    found = async_to_sync(policies.read_policies)(cluster)
    plans = policies.mendings(found, node, only)
    for plan in plans:
        require_pattern(user, Permission.ACT, plan.patterns.topic)
    done = []
    for plan in plans:
        results = async_to_sync(policies.mend)(cluster, found, plan)
        done.append(Mended(plan.patterns, results))
        record(
            user=user,
            patterns=plan.patterns,
            values=plan.values,
            results=results,
            detail=f"as on {node}",
            remote_address=remote_address,
        )
    return done


def record(
    *,
    user: User,
    patterns: Patterns,
    values: Values | None,
    results: Sequence[Result],
    remote_address: str,
    detail: str = "",
    error: str = "",
) -> AuditEntry:
    """Record a change of a policy in the audit trail, and return the entry. ``error`` is the reason why nothing was
    changed; then there are no results."""
    return audit.record(
        user=user,
        action="delete policy" if values is None else "set policy",
        subject=patterns.as_name(),
        detail="; ".join(filter(None, (error, detail, text_of(values or {})))),
        outcome="failed" if error else outcome_of(results),
        results=results,
        remote_address=remote_address,
    )
