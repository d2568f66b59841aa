"""Hand-overs of mirrored nodes."""

from __future__ import annotations

from django.http import HttpRequest
from ninja import Router

from nsqplatform.accounts.auth import caller, needs, remote_address
from nsqplatform.accounts.roles import Permission
from nsqplatform.cluster.actions import node_actions
from nsqplatform.cluster.api.drains import REFUSALS, NodeIn
from nsqplatform.cluster.api.schemas import ActionOut

router = Router(tags=["cluster"])


@router.post("hand-overs", auth=needs(Permission.ACT), response={200: ActionOut, **REFUSALS})
def hand_over(request: HttpRequest, body: NodeIn) -> ActionOut:
    """Let the follower of a mirrored node lead: clients have to connect again. It fails, and nothing is changed, if no
    follower is in sync. The answer is sent once the follower leads, or after 30 seconds."""
    entry = node_actions.hand_over(user=caller(request), node=body.node, remote_address=remote_address(request))
    return ActionOut.model_validate({"outcome": entry.outcome, "results": entry.results})
