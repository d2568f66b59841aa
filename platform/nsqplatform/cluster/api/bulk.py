"""One action on many topics or channels."""

from __future__ import annotations

from typing import Literal

from django.http import HttpRequest
from ninja import Router, Schema
from pydantic import Field

from nsqcluster import Action
from nsqplatform.accounts.auth import caller, needs
from nsqplatform.accounts.roles import Permission
from nsqplatform.accounts.schemas import InvalidRequest, Message
from nsqplatform.cluster.actions.bulk import LARGEST, Target, TargetOutcome, act_on_each
from nsqplatform.cluster.actions.notification import notify_all, origin_of
from nsqplatform.cluster.api.schemas import Name

router = Router(tags=["cluster"])


class TargetIn(Schema):
    topic: Name
    channel: Name | None = None


class BulkIn(Schema):
    action: Literal[Action.PAUSE, Action.UNPAUSE, Action.EMPTY, Action.DELETE]
    targets: list[TargetIn] = Field(min_length=1, max_length=LARGEST)


class BulkOut(Schema):
    outcomes: list[TargetOutcome] = Field(description="in the order of the targets")


@router.post(
    "actions/bulk",
    auth=needs(Permission.ACT),
    response={200: BulkOut, 401: Message, 403: Message, 422: InvalidRequest},
)
def bulk(request: HttpRequest, body: BulkIn) -> dict[str, list[TargetOutcome]]:
    """Pause, unpause, empty or delete up to 50 topics and channels; each has its own outcome and audit entry."""
    outcomes = act_on_each(
        user=caller(request),
        action=body.action,
        targets=[Target(each.topic, each.channel) for each in body.targets],
        remote_address=request.META.get("REMOTE_ADDR", ""),
    )
    origin = origin_of(request)
    for each in outcomes:
        if each["results"]:
            notify_all(origin, body.action, each["topic"], each["channel"])
    return {"outcomes": outcomes}
