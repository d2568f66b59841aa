"""Policies of the cluster's nodes."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from django.http import HttpRequest
from ninja import Query, Router, Schema
from pydantic import AfterValidator, Field

from nsqcluster import Result, outcome_of
from nsqcluster.policies import ChannelPolicy, Patterns, PolicyRow
from nsqcluster.survey import Failure
from nsqplatform.accounts.auth import caller, needs, remote_address
from nsqplatform.accounts.roles import Permission
from nsqplatform.accounts.schemas import InvalidRequest, Line, Message
from nsqplatform.cluster.actions import policies
from nsqplatform.cluster.api.schemas import ActionOut, Name

router = Router(tags=["policies"])
REFUSALS = {401: Message, 403: Message, 404: Message, 422: InvalidRequest, 502: Message}
LARGEST_POLICY = 16_384


def _of_moderate_size(values: dict[str, Any]) -> dict[str, Any]:
    if len(json.dumps(values)) > LARGEST_POLICY:
        raise ValueError(f"longer than {LARGEST_POLICY:,} characters")
    return values


class PatternsIn(Schema):
    topic_pattern: Line = Field(min_length=1, max_length=100, description="a glob of topics, with * and ?")
    channel_pattern: Line = Field("*", min_length=1, max_length=100, description="a glob of channels")

    @property
    def patterns(self) -> Patterns:
        return Patterns(self.topic_pattern, self.channel_pattern)


class PolicyIn(PatternsIn):
    policy: Annotated[dict[str, Any], AfterValidator(_of_moderate_size)] = Field(
        description="keys and values of the nodes' release, which the nodes check"
    )


class MendIn(Schema):
    node: Line = Field(max_length=300, description="id of the node whose policies the others get")
    topic_pattern: Line = Field("", max_length=100, description="with it, only the policy of these patterns is mended")
    channel_pattern: Line = Field("*", min_length=1, max_length=100)


class PoliciesOut(Schema):
    policies: list[PolicyRow] = Field(description="by topic pattern and channel pattern")
    nodes: list[str] = Field(description="ids of the nodes that can have policies")
    without_policies: list[str] = Field(description="ids of the nodes that cannot, as Go's nsqd")
    errors: list[Failure] = Field(description="servers that did not answer")


class MendedPolicy(Schema):
    topic_pattern: str
    channel_pattern: str
    outcome: Literal["done", "partial", "failed"]
    results: list[Result]


class MendOut(Schema):
    policies: list[MendedPolicy] = Field(description="those that were changed on some node")


class ChannelPoliciesOut(Schema):
    nodes: list[ChannelPolicy] = Field(description="the nodes that have the channel and can have policies")


@router.get("policies", auth=needs(Permission.VIEW), response={200: PoliciesOut, 401: Message, 502: Message})
def list_policies(request: HttpRequest) -> PoliciesOut:
    """The policies of all nodes, and how these differ. Each request reads all nodes."""
    found = policies.read()
    return PoliciesOut(
        policies=found.rows(), nodes=[*found.by_node], without_policies=found.without, errors=found.failures
    )


@router.get(
    "policies/applied",
    auth=needs(Permission.VIEW),
    response={200: ChannelPoliciesOut, 401: Message, 404: Message, 422: InvalidRequest, 502: Message},
)
def applied_policies(request: HttpRequest, topic: Name = Query(...), channel: Name = Query(...)) -> ChannelPoliciesOut:
    """The policy that applies to a channel, on each of its nodes."""
    return ChannelPoliciesOut(nodes=policies.of_channel(topic, channel))


@router.post("policies", auth=needs(Permission.ACT), response={200: ActionOut, **REFUSALS})
def set_policy(request: HttpRequest, body: PolicyIn) -> ActionOut:
    """Set a policy on every node. It replaces an earlier one of the same patterns. The nodes check the keys and values;
    a field error names the key that they refuse."""
    entry = policies.change(
        user=caller(request),
        patterns=body.patterns,
        values=body.policy,
        remote_address=remote_address(request),
    )
    return ActionOut.model_validate({"outcome": entry.outcome, "results": entry.results})


@router.delete("policies", auth=needs(Permission.ACT), response={200: ActionOut, **REFUSALS})
def delete_policy(request: HttpRequest, deleted: Query[PatternsIn]) -> ActionOut:
    """Delete a policy on every node."""
    entry = policies.change(
        user=caller(request),
        patterns=deleted.patterns,
        values=None,
        remote_address=remote_address(request),
    )
    return ActionOut.model_validate({"outcome": entry.outcome, "results": entry.results})


@router.post("policies/mend", auth=needs(Permission.ACT), response={200: MendOut, **REFUSALS})
def mend_policies(request: HttpRequest, body: MendIn) -> MendOut:
    """Make the policies of all nodes those of one node: set what the others lack or have with other values, and delete
    what this node lacks."""
    mended = policies.mend(
        user=caller(request),
        node=body.node,
        only=Patterns(body.topic_pattern, body.channel_pattern) if body.topic_pattern else None,
        remote_address=remote_address(request),
    )
    return MendOut.model_validate(
        {
            "policies": [
                {
                    "topic_pattern": each.patterns.topic,
                    "channel_pattern": each.patterns.channel,
                    "outcome": outcome_of(each.results),
                    "results": each.results,
                }
                for each in mended
            ]
        }
    )
