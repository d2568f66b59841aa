"""Bulk actions: one action on many topics or channels, each authorized, performed and audited on its own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from asgiref.sync import async_to_sync
from django.core.exceptions import PermissionDenied
from typing_extensions import TypedDict

from nsqcluster import Action, Cluster, ClusterUnreachable, NotInCluster, Result, outcome_of, perform
from nsqplatform.accounts import audit
from nsqplatform.accounts.models import User
from nsqplatform.accounts.rights import require
from nsqplatform.accounts.roles import Permission
from nsqplatform.cluster import selectors
from nsqplatform.cluster.actions import services

AT_ONCE = 8
"""Maximum number of targets processed concurrently. Each uses one connection to a node, so this also limits
connections."""
LARGEST = 50
"""Maximum number of targets in one request. A response takes at most LARGEST / AT_ONCE times as long as one action."""


class Target(NamedTuple):
    topic: str
    channel: str | None


class TargetOutcome(TypedDict):
    """The outcome of the action on one topic or channel; ``message`` says why if no request was sent."""

    topic: str
    channel: str | None
    outcome: Literal["done", "partial", "failed"]
    message: str
    results: list[Result]


def act_on_each(*, user: User, action: Action, targets: Sequence[Target], remote_address: str) -> list[TargetOutcome]:
    """Perform ``action`` on each target, several at a time. A failure does not stop the others.

    The outcomes are in the order of ``targets``. Raises PermissionDenied if ``user`` may not act at all. Topics outside
    their rights fail.
    """
    require(user, Permission.ACT)
    refusals = {target: why for target in set(targets) if (why := refusal(user, target))}
    for target, why in refusals.items():
        audit.refused(
            user=user,
            action=action,
            subject="",
            topic=target.topic,
            channel=target.channel,
            detail=why,
            remote_address=remote_address,
        )
    answers = async_to_sync(_perform_each)(selectors.cluster(), action, targets, refusals)
    outcomes: list[TargetOutcome] = []
    for target, answer in zip(targets, answers, strict=True):
        if isinstance(answer, str):
            outcomes.append(
                TargetOutcome(topic=target.topic, channel=target.channel, outcome="failed", message=answer, results=[])
            )
            continue
        services.record_action(
            user=user,
            action=action,
            topic=target.topic,
            channel=target.channel,
            results=answer,
            remote_address=remote_address,
        )
        outcomes.append(
            TargetOutcome(
                topic=target.topic, channel=target.channel, outcome=outcome_of(answer), message="", results=answer
            )
        )
    return outcomes


def refusal(user: User, target: Target) -> str:
    """Why ``user`` may not act on ``target``; empty if they may."""
    try:
        require(user, Permission.ACT, topic=target.topic)
    except PermissionDenied as error:
        return str(error)
    return ""


async def _perform_each(
    cluster: Cluster, action: Action, targets: Sequence[Target], refusals: Mapping[Target, str]
) -> list[list[Result] | str]:
    """For each target the results of its nodes, or why no request was sent."""
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(target: Target) -> list[Result] | str:
        if target in refusals:
            return refusals[target]
        async with turn:
            try:
                return await perform(cluster, action, target.topic, target.channel)
            except (NotInCluster, ClusterUnreachable) as error:
                return str(error)

    return await asyncio.gather(*(one(target) for target in targets))
