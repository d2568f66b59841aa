"""Publishing messages; listing, searching, downloading and exporting the messages of a channel."""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator, Mapping
from typing import Annotated

from django.http import HttpRequest, StreamingHttpResponse
from ninja import Query, Router, Schema
from pydantic import AfterValidator, Field

from nsqcluster.messages import State
from nsqplatform.accounts.auth import caller, needs, remote_address
from nsqplatform.accounts.roles import Permission
from nsqplatform.accounts.schemas import Body, InvalidRequest, Message
from nsqplatform.cluster.api.schemas import Name
from nsqplatform.cluster.messages.actions import MessageAction, act_on_messages
from nsqplatform.cluster.messages.criteria import Criteria, Match
from nsqplatform.cluster.messages.export import Format as ExportFormat
from nsqplatform.cluster.messages.export import export_messages
from nsqplatform.cluster.messages.matches import matches
from nsqplatform.cluster.messages.peek import Order, Peeked, body_of, peek_message, peek_messages
from nsqplatform.cluster.messages.publish import MAX_MESSAGES, publish_messages
from nsqplatform.cluster.messages.publish import Format as PublishFormat
from nsqplatform.cluster.messages.rows import PeekedMessage
from nsqplatform.cluster.messages.scan import NodePart
from nsqplatform.cluster.messages.search import Search, search_events
from nsqplatform.downloads import download

router = Router(tags=["messages"])

MESSAGE_ID = re.compile(r"[0-9a-zA-Z]{1,16}")
MAX_IDS = 1000
LONGEST_MS = 10 * 365 * 86_400_000
LARGEST_BYTES = 1 << 40
FAILURES = {401: Message, 403: Message, 404: Message, 422: InvalidRequest, 502: Message}


def _message_id(text: str) -> str:
    if not MESSAGE_ID.fullmatch(text):
        raise ValueError("an id is up to 16 letters and digits")
    return text


MessageId = Annotated[str, Field(max_length=16), AfterValidator(_message_id)]


class PublishIn(Body):
    topic: Name
    node: str | None = Field(None, max_length=300, description="a node's id; null for any")
    format: PublishFormat = Field("text", description="format of the bodies; json is validated and sent unchanged")
    headers: dict[str, str] = Field({}, description="headers of each message; only brokerd stores them")
    defer_ms: int = Field(0, ge=0, le=2_592_000_000, description="delay of the delivery; nodes limit it")
    bodies: list[str] = Field(min_length=1, max_length=MAX_MESSAGES)


class PublishOut(Schema):
    node: str = Field(description="the node that stored them")
    count: int
    size: int = Field(description="bytes")


class PeekOut(Schema):
    total: int = Field(description="of all nodes that answered")
    nodes: list[NodePart]
    messages: list[PeekedMessage] = Field(description="in the requested order")


@router.post("messages", auth=needs(Permission.PUBLISH), response={200: PublishOut, 413: Message, **FAILURES})
def publish(request: HttpRequest, body: PublishIn) -> PublishOut:
    """Publish one or more messages, all to one node: at most 5 MiB together, and at most 100 messages if deferred."""
    done = publish_messages(
        user=caller(request),
        topic=body.topic,
        texts=body.bodies,
        given=body.format,
        headers=body.headers,
        defer_ms=body.defer_ms,
        node=body.node,
        remote_address=remote_address(request),
    )
    return PublishOut(node=done["node"], count=done["count"], size=done["size"])


@router.get("messages", auth=needs(Permission.READ), response={200: PeekOut, **FAILURES})
def peek(
    request: HttpRequest,
    topic: Name,
    channel: Name,
    state: State = "ready",
    order: Order = "node",
    limit: int = Query(20, ge=1, le=100),
    offset: int = Query(0, ge=0, le=1_000_000_000),
    max_body_bytes: int = Query(1024, ge=0, le=4096),
) -> Peeked:
    """The messages of a channel on all its nodes, without side effects: no message is delivered, counted or delayed.

    ``order=node`` has pages, one node after the other. ``oldest`` and ``newest`` return the first or last messages of
    all nodes together.
    """
    return peek_messages(
        user=caller(request),
        topic=topic,
        channel=channel,
        state=state,
        order=order,
        limit=limit,
        offset=offset,
        max_body_bytes=max_body_bytes,
    )


class MessagesActionIn(Schema):
    action: MessageAction
    topic: Name
    channel: Name
    node: str = Field(max_length=300, description="id of the node that has the messages")
    ids: list[MessageId] = Field(min_length=1, max_length=MAX_IDS)
    target: Name | None = Field(None, description="the topic to copy or move the messages to, on the same node")


class MessagesActionOut(Schema):
    count: int = Field(description="messages acted on; for a requeue, also those that were already ready")
    not_found: list[str] = Field(description="ids that are no longer in the channel")


@router.post("messages/actions", auth=needs(Permission.ACT), response={200: MessagesActionOut, **FAILURES})
def act(request: HttpRequest, body: MessagesActionIn) -> MessagesActionOut:
    """Requeue, finish, copy or move messages. A move publishes a message and then finishes it, so it is made at least
    once."""
    done = act_on_messages(
        user=caller(request),
        action=body.action,
        topic=body.topic,
        channel=body.channel,
        node=body.node,
        ids=body.ids,
        target=body.target,
        remote_address=remote_address(request),
    )
    return MessagesActionOut(count=done.messages, not_found=list(done.not_found))


class SearchIn(Body):
    """Criteria, all of which a message must meet. See ``cluster.messages.criteria.Criteria``."""

    state: State | None = None
    id: str = Field("", max_length=16)
    text: str = Field("", max_length=1000, description="occurs in the body; match is its format")
    match: Match = Field("text", description="text, case-insensitive; regex, in RE2's syntax; or hex, bytes in hex")
    header: str = Field(
        "", max_length=1000, description="name of a header, or name:text, a text that occurs in its value, in any case"
    )
    min_attempts: int | None = Field(None, ge=0, le=65_535)
    max_attempts: int | None = Field(None, ge=0, le=65_535)
    min_age_ms: int | None = Field(None, ge=0, le=LONGEST_MS)
    max_age_ms: int | None = Field(None, ge=0, le=LONGEST_MS)
    min_size: int | None = Field(None, ge=0, le=LARGEST_BYTES)
    max_size: int | None = Field(None, ge=0, le=LARGEST_BYTES)

    @property
    def criteria(self) -> Criteria:
        return Criteria(**self.model_dump())


@router.get("messages/search", auth=needs(Permission.READ), response={200: None, **FAILURES})
def search(
    request: HttpRequest,
    topic: Name,
    channel: Name,
    criteria: Query[SearchIn],
    limit: int = Query(100, ge=1, le=1000),
    max_body_bytes: int = Query(1024, ge=0, le=4096),
) -> StreamingHttpResponse:
    """Search all messages of a channel. The response is NDJSON; the ``type`` of a line is message, progress or end.

    To stop the search, close the connection. Whole bodies are searched, except values that masks hide;
    a search in the values of a header that masks hide is refused.
    """
    started = Search(caller(request), topic, channel, criteria.criteria)
    found = search_events(started, limit=limit, max_body_bytes=max_body_bytes)
    return StreamingHttpResponse(_json_lines(found), content_type="application/x-ndjson")


class MatchesOut(Schema):
    matching: int
    total: int = Field(description="messages of the channel on the nodes that answered")
    withheld: int = Field(description="messages whose bodies a mask withholds; they are not counted as matching")
    as_of: int = Field(description="when the count began, Unix milliseconds")
    nodes: list[NodePart]


@router.get("messages/count", auth=needs(Permission.READ), response={200: MatchesOut, **FAILURES})
def count(request: HttpRequest, topic: Name, channel: Name, criteria: Query[SearchIn]) -> MatchesOut:
    """Count the messages of a channel that match."""
    as_of = time.time_ns() // 1_000_000
    found = matches(Search(caller(request), topic, channel, criteria.criteria), as_of=as_of)
    return MatchesOut(
        as_of=as_of, matching=found.matching, total=found.total, withheld=found.withheld, nodes=found.nodes
    )


@router.get("messages/export", auth=needs(Permission.READ), response={200: None, **FAILURES})
def export(
    request: HttpRequest, topic: Name, channel: Name, criteria: Query[SearchIn], format: ExportFormat = "ndjson"
) -> StreamingHttpResponse:
    """Download all messages of a channel that match, with their whole bodies. Masked values are replaced."""
    user = caller(request)
    lines = export_messages(
        user=user,
        search=Search(user, topic, channel, criteria.criteria),
        format=format,
        remote_address=remote_address(request),
    )
    content_type = "text/csv; charset=utf-8" if format == "csv" else "application/x-ndjson"
    return download(lines, content_type, f"{topic}-{channel}.{format}".replace("#", "-"))


@router.get("messages/{id}", auth=needs(Permission.READ), response={200: PeekedMessage, **FAILURES})
def message(
    request: HttpRequest, id: MessageId, topic: Name, channel: Name, node: str = Query(max_length=300)
) -> PeekedMessage:
    """One message in any state, with the first 64 KiB of its body."""
    return peek_message(user=caller(request), topic=topic, channel=channel, node=node, message_id=id)


@router.get("messages/{id}/body", auth=needs(Permission.READ), response={200: None, **FAILURES})
def body(
    request: HttpRequest, id: MessageId, topic: Name, channel: Name, node: str = Query(max_length=300)
) -> StreamingHttpResponse:
    """Download the whole body of a message, however large, with masked values replaced."""
    found = body_of(user=caller(request), topic=topic, channel=channel, node=node, message_id=id)
    response = download(found.pieces, "application/octet-stream", f"{id}.bin")
    response["Content-Length"] = str(found.size)
    return response


async def _json_lines(events: AsyncIterator[Mapping[str, object]]) -> AsyncIterator[bytes]:
    async for event in events:
        yield json.dumps(event, separators=(",", ":")).encode() + b"\n"
