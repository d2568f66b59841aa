"""Drains of nodes: begun and cancelled."""

from __future__ import annotations

from django.http import HttpRequest
from ninja import Router
from pydantic import ConfigDict, Field

from nsqplatform.accounts.auth import caller, needs, remote_address
from nsqplatform.accounts.roles import Permission
from nsqplatform.accounts.schemas import Body, InvalidRequest, Line, Message
from nsqplatform.cluster.actions import node_actions
from nsqplatform.cluster.api.schemas import ActionOut

router = Router(tags=["cluster"])
REFUSALS = {401: Message, 403: Message, 404: Message, 422: InvalidRequest}
LONGEST_DRAIN_S = 30 * 86_400


class NodeIn(Body):
    model_config = ConfigDict(extra="forbid")

    node: Line = Field(max_length=300, description="a node's id")


class DrainIn(NodeIn):
    timeout_s: int | None = Field(
        None,
        ge=0,
        le=LONGEST_DRAIN_S,
        description="seconds after which the process ends although messages are left; 0: only when the node is empty; "
        "null: the node's --drain-timeout",
    )
    takes_publishes: bool | None = Field(
        None, description="whether the node takes publishes meanwhile; null: the node's --drain-publishes"
    )


@router.post("drains", auth=needs(Permission.ACT), response={200: ActionOut, **REFUSALS})
def drain(request: HttpRequest, body: DrainIn) -> ActionOut:
    """Drain a node, or change the parameters of its drain: it leaves the registries, its consumers finish what is
    there, and its process ends. Go's nodes fail with a message."""
    entry = node_actions.drain(
        user=caller(request),
        node=body.node,
        timeout_s=body.timeout_s,
        takes_publishes=body.takes_publishes,
        remote_address=remote_address(request),
    )
    return ActionOut.model_validate({"outcome": entry.outcome, "results": entry.results})


@router.post("drains/cancel", auth=needs(Permission.ACT), response={200: ActionOut, **REFUSALS})
def cancel_drain(request: HttpRequest, body: NodeIn) -> ActionOut:
    """Let a node that drains register and take publishes again."""
    entry = node_actions.cancel_drain(user=caller(request), node=body.node, remote_address=remote_address(request))
    return ActionOut.model_validate({"outcome": entry.outcome, "results": entry.results})
