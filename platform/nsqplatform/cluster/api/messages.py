"""Publishing messages, and peeking at the messages of a channel."""

from __future__ import annotations

from django.http import HttpRequest
from ninja import Query, Router, Schema
from pydantic import Field

from nsqplatform.accounts.auth import caller, needs
from nsqplatform.accounts.roles import Permission
from nsqplatform.accounts.schemas import InvalidRequest, Message
from nsqplatform.cluster.api.schemas import Name
from nsqplatform.cluster.messages import peeking, publishing

router = Router(tags=["messages"])

FAILURES = {401: Message, 403: Message, 404: Message, 422: InvalidRequest, 502: Message}


class PublishIn(Schema):
    topic: Name
    node: str | None = Field(None, max_length=300, description="a node's id; null for any")
    format: publishing.Format = Field("text", description="format of the bodies; json is validated and sent unchanged")
    defer_ms: int = Field(0, ge=0, le=2_592_000_000, description="to be delivered so much later; nodes set the limit")
    bodies: list[str] = Field(min_length=1, max_length=publishing.MAX_MESSAGES)


class PublishOut(Schema):
    node: str = Field(description="the node that stored them")
    count: int
    size: int = Field(description="bytes")


class PeekOut(Schema):
    total: int = Field(description="of all nodes that answered")
    nodes: list[peeking.NodePart]
    messages: list[peeking.PeekedMessage] = Field(description="grouped by node, in the node's order")


@router.post("messages", auth=needs(Permission.PUBLISH), response={200: PublishOut, 413: Message, **FAILURES})
def publish(request: HttpRequest, body: PublishIn) -> PublishOut:
    """Publish one or many messages, all to one node; 5 MiB together, and at most 100 of them if deferred."""
    done = publishing.publish(
        user=caller(request),
        topic=body.topic,
        texts=body.bodies,
        given=body.format,
        defer_ms=body.defer_ms,
        node=body.node,
        remote_address=request.META.get("REMOTE_ADDR", ""),
    )
    return PublishOut(node=done["node"], count=done["count"], size=done["size"])


@router.get("messages", auth=needs(Permission.READ), response={200: PeekOut, **FAILURES})
def peek(
    request: HttpRequest,
    topic: Name,
    channel: Name,
    state: peeking.State = "ready",
    limit: int = Query(20, ge=1, le=100),
    offset: int = Query(0, ge=0, le=1_000_000),
    max_body_bytes: int = Query(1024, ge=0, le=4096),
) -> peeking.Peeked:
    """The messages of a channel on all its nodes. Peeking delivers, counts and delays nothing."""
    return peeking.peek(
        user=caller(request),
        topic=topic,
        channel=channel,
        state=state,
        limit=limit,
        offset=offset,
        max_body_bytes=max_body_bytes,
    )


@router.get("messages/{id}", auth=needs(Permission.READ), response={200: peeking.PeekedMessage, **FAILURES})
def message(
    request: HttpRequest,
    id: str,
    topic: Name,
    channel: Name,
    node: str = Query(max_length=300),
    state: peeking.State = "ready",
    place: int = Query(0, ge=0, le=1_000_000, description="its position in the node's list when it was seen"),
) -> peeking.PeekedMessage:
    """One message with the first 64 KiB of its body."""
    return peeking.whole(
        user=caller(request), topic=topic, channel=channel, state=state, node=node, place=place, wanted=id
    )
