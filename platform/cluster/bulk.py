"""Doing one thing to many topics or channels: each checked, done and written down as if it were asked alone."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from asgiref.sync import async_to_sync
from django.core.exceptions import PermissionDenied
from typing_extensions import TypedDict

from accounts import audit
from accounts.models import User
from accounts.rights import require
from accounts.roles import Permission
from aionsq.cluster import Action, Cluster, ClusterUnreachable, NotInCluster, Result, outcome_of, perform
from cluster import selectors, services

AT_ONCE = 8
"""Objects under way together. Each asks all its nodes at once, so this bounds the connections to a node too."""
LARGEST = 50
"""Objects in one request. What an action may take at worst, times this over AT_ONCE, is how long an answer may."""


class Target(NamedTuple):
    topic: str
    channel: str | None


class TargetOutcome(TypedDict):
    """What became of the action on one topic or channel; ``message`` says why where no node was asked."""

    topic: str
    channel: str | None
    outcome: Literal["done", "partial", "failed"]
    message: str
    results: list[Result]


def act_on_each(*, user: User, action: Action, targets: Sequence[Target], remote_address: str) -> list[TargetOutcome]:
    """Perform ``action`` on each target, some at a time; one that fails leaves the others to go on.

    The answers are in the order of ``targets``. Raises PermissionDenied, having changed nothing, if ``user`` may act on
    nothing at all; a topic that is not theirs is one that fails.
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
        services.write_down(
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
    """Why not; empty where ``user`` may."""
    try:
        require(user, Permission.ACT, topic=target.topic)
    except PermissionDenied as error:
        return str(error)
    return ""


async def _perform_each(
    cluster: Cluster, action: Action, targets: Sequence[Target], refusals: Mapping[Target, str]
) -> list[list[Result] | str]:
    """For each target what its nodes did, or why none was asked."""
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
