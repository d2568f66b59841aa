"""Requesting jobs on the dead messages of channels."""

from __future__ import annotations

from collections.abc import Sequence

from django.core.exceptions import ValidationError
from django.http import Http404

from nsqcluster.messages import ChosenDead
from nsqplatform.accounts.models import User
from nsqplatform.cluster.actions.notification import Origin
from nsqplatform.cluster.actions.topic_nodes import NodeFailed
from nsqplatform.cluster.messages.dead import Channel, DeadAction, count_dead
from nsqplatform.jobs import services
from nsqplatform.jobs.kinds.dead import parameters_of
from nsqplatform.jobs.kinds.kind import Subject
from nsqplatform.jobs.models import Job


def request_dead(
    *,
    action: DeadAction,
    channels: Sequence[Channel],
    chosen: ChosenDead,
    rate: int,
    by: User,
    origin: Origin,
    remote_address: str = "",
) -> Job:
    """Queue a job on the chosen dead messages of channels, with one subject for each node of a channel that has some.

    A node that does not answer now is a subject too. Raises ValidationError, PermissionDenied and ClusterUnreachable;
    NodeFailed if no node answers, and Http404 if no message matches; then nothing has changed.
    """
    if rate and action is DeadAction.REMOVE:
        raise ValidationError({"rate": "messages are removed at once"})
    parts = count_dead(channels, chosen)
    if not any(part["matching"] for part in parts):
        if failures := [f"node {part['node']}: {part['error']}" for part in parts if part["error"]]:
            raise NodeFailed("; ".join(dict.fromkeys(failures)))
        raise Http404("no dead message matches any more")
    return services.request_job(
        kind=f"{action} dead messages",
        parameters=parameters_of(parts, chosen, rate),
        subjects=[
            Subject(part["topic"], part["channel"], part["node"]) for part in parts if part["matching"] or part["error"]
        ],
        by=by,
        origin=origin,
        remote_address=remote_address,
    )
