"""Lists the messages of a channel on all its nodes, and finds one with its body, without side effects."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import AsyncIterator, Iterator
from typing import Literal, NamedTuple

from asgiref.sync import async_to_sync
from django.core.exceptions import PermissionDenied, ValidationError
from typing_extensions import TypedDict

from nsqcluster import Client, Cluster, NotInCluster, Refused, RequestFailed, messages
from nsqcluster.messages import LISTED_BYTES, State
from nsqcluster.messages import PeekedMessage as BrokerMessage
from nsqplatform.accounts.models import User
from nsqplatform.cluster import node_client, selectors
from nsqplatform.cluster.actions.topic_nodes import NodeFailed, address_of_node, node_addresses
from nsqplatform.cluster.messages import masks
from nsqplatform.cluster.messages.hidden_paths import HiddenPaths, Visible
from nsqplatform.cluster.messages.rows import PeekedMessage, row
from nsqplatform.cluster.messages.scan import NodePart, reason_of

SHOWN_BYTES = 65_536
"""Maximum size of a body in a JSON response; a download has no limit."""
BODIES_AT_ONCE = 8

Order = Literal["node", "oldest", "newest"]


class Listing(NamedTuple):
    """The messages of a channel in one state."""

    topic: str
    channel: str
    state: State


class Window(NamedTuple):
    """A part of a node's list."""

    limit: int
    offset: int
    max_body_bytes: int


class Peeked(TypedDict):
    """Messages in the requested order. ``total`` is the number of messages on all nodes that answered."""

    total: int
    nodes: list[NodePart]
    messages: list[PeekedMessage]


class WithheldBody(PermissionDenied):
    """A mask withholds the body."""

    def __init__(self, message_id: str) -> None:
        super().__init__(f"a mask withholds the body of message {message_id}: it is not JSON that could be masked")


class Body(NamedTuple):
    """A body in pieces; ``size`` is its number of bytes."""

    size: int
    pieces: AsyncIterator[bytes]


def peek_messages(
    *,
    user: User,
    topic: str,
    channel: str,
    state: State,
    order: Order,
    limit: int,
    offset: int,
    max_body_bytes: int,
) -> Peeked:
    """A page of the channel's messages: node by node, or the first or last of all nodes together.

    Raises PermissionDenied, ValidationError, NotInCluster and ClusterUnreachable.
    """
    if offset and order != "node":
        raise ValidationError({"offset": f"only order=node has pages; order={order} has the first {limit} messages"})
    hidden = masks.hidden_paths(user, topic)
    wanted = Listing(topic, channel, state)
    return async_to_sync(_peek)(selectors.cluster(), wanted, hidden, order, limit, offset, max_body_bytes)


def peek_message(*, user: User, topic: str, channel: str, node: str, message_id: str) -> PeekedMessage:
    """One message, with the first SHOWN_BYTES of its body.

    Raises PermissionDenied, NotInCluster, ClusterUnreachable and NodeFailed.
    """
    hidden = masks.hidden_paths(user, topic)
    return async_to_sync(_peek_message)(selectors.cluster(), hidden, node, topic, channel, message_id)


def body_of(*, user: User, topic: str, channel: str, node: str, message_id: str) -> Body:
    """The whole body of a message. Raises the same as ``peek_message``, and WithheldBody."""
    hidden = masks.hidden_paths(user, topic)
    return async_to_sync(_body)(selectors.cluster(), hidden, node, topic, channel, message_id)


async def _peek(
    cluster: Cluster, wanted: Listing, hidden: HiddenPaths, order: Order, limit: int, offset: int, max_body_bytes: int
) -> Peeked:
    """Read the number of messages of each node, then the page's messages from the nodes that have them."""
    where = await node_addresses(cluster, wanted.topic)
    async with node_client.client() as http:
        counted = await asyncio.gather(
            *(_part(http, node, where[node], wanted, Window(0, 0, 0)) for node in sorted(where))
        )
        parts = [part for part, _ in counted if part is not None]
        if not parts:
            raise NotInCluster(f"no node of the cluster has channel {wanted.channel} of topic {wanted.topic}")
        read_bytes = LISTED_BYTES if hidden.paths else max_body_bytes
        pages = []
        for node, skip, take in _page_parts(parts, order, limit, offset):
            window = Window(take, skip, read_bytes)
            pages.append(_rows(http, node, where[node], wanted, window, hidden, max_body_bytes))
        found = [each for page in await asyncio.gather(*pages) for each in page]
    if order != "node":
        found = sorted(found, key=_moment, reverse=order == "newest")[:limit]
    rows = [row for _, row in found]
    return Peeked(total=sum(part["total"] or 0 for part in parts), nodes=parts, messages=rows)


def _page_parts(parts: list[NodePart], order: Order, limit: int, offset: int) -> Iterator[tuple[str, int, int]]:
    """``(node, offset, limit)`` of each part of a node's list that belongs to the page."""
    left, skip = limit, offset
    for part in parts:
        total = part["total"] or 0
        take = max(0, min(left, total - skip))
        if take:
            yield part["node"], total - take if order == "newest" else skip, take
        if order == "node":
            left -= take
            skip = max(0, skip - total)


def _moment(found: tuple[BrokerMessage, PeekedMessage]) -> tuple[int, str, str]:
    """The time by which the nodes order their lists, in ns: deferred messages by due time, others by age."""
    message, row = found
    return message.due or message.timestamp, row["node"], message.id


async def _part(
    http: Client, node: str, address: str, wanted: Listing, window: Window
) -> tuple[NodePart | None, list[BrokerMessage]]:
    """One node's count and page; None if it does not have the channel. Raises nothing: an error is stored."""
    try:
        page = await messages.peek(http, address, *wanted, **window._asdict())
    except RequestFailed as error:
        reason = reason_of(error)
        return NodePart(node=node, total=None, error=reason) if reason else None, []
    return NodePart(node=node, total=page.total, error=""), page.messages


async def _rows(
    http: Client, node: str, address: str, wanted: Listing, window: Window, hidden: HiddenPaths, max_body_bytes: int
) -> list[tuple[BrokerMessage, PeekedMessage]]:
    """Return a page of the node's messages, each with its row."""
    _, listed = await _part(http, node, address, wanted, window)
    slots = asyncio.Semaphore(BODIES_AT_ONCE)

    async def shown(message: BrokerMessage) -> PeekedMessage:
        async with slots:
            visible = await _visible(http, address, wanted.topic, wanted.channel, hidden, message)
        return row(node, message, visible, hidden.visible_headers(message.headers), max_body_bytes)

    rows = await asyncio.gather(*(shown(message) for message in listed))
    for message, each in zip(listed, rows, strict=True):
        each["truncated"] = each["truncated"] or (each["visibility"] == "whole" and message.truncated)
    return list(zip(listed, rows, strict=True))


async def _visible(
    http: Client, address: str, topic: str, channel: str, hidden: HiddenPaths, message: BrokerMessage
) -> Visible:
    """The visible part of a listed message. A mask needs the whole body; without that, the body is withheld."""
    if not hidden.paths or not message.truncated:
        return await hidden.visible_in_thread(b64decode(message.body))
    try:
        found = await messages.body(http, address, topic, channel, message.id)
    except RequestFailed:
        return Visible(b"", "withheld")
    return await hidden.visible_in_thread(found)


async def _peek_message(
    cluster: Cluster, hidden: HiddenPaths, node: str, topic: str, channel: str, message_id: str
) -> PeekedMessage:
    address = address_of_node(cluster, await node_addresses(cluster, topic), node)
    async with node_client.client() as http:
        try:
            message = await messages.message(http, address, topic, channel, message_id)
            found = await messages.body(http, address, topic, channel, message_id)
        except RequestFailed as error:
            raise failed(error, message_id) from None
    visible = await hidden.visible_in_thread(found)
    return row(node, message, visible, hidden.visible_headers(message.headers), SHOWN_BYTES)


async def _body(cluster: Cluster, hidden: HiddenPaths, node: str, topic: str, channel: str, message_id: str) -> Body:
    address = address_of_node(cluster, await node_addresses(cluster, topic), node)
    async with node_client.client() as http:
        try:
            message = await messages.message(http, address, topic, channel, message_id)
            if not hidden.paths:
                return Body(message.size, _pieces(address, topic, channel, message_id))
            found = await messages.body(http, address, topic, channel, message_id)
        except RequestFailed as error:
            raise failed(error, message_id) from None
    visible = await hidden.visible_in_thread(found)
    if visible.visibility == "withheld":
        raise WithheldBody(message_id)
    return Body(len(visible.body), _once(visible.body))


async def _pieces(address: str, topic: str, channel: str, message_id: str) -> AsyncIterator[bytes]:
    async with node_client.client() as http:
        async for piece in messages.body_pieces(http, address, topic, channel, message_id):
            yield piece


async def _once(whole_body: bytes) -> AsyncIterator[bytes]:
    yield whole_body


def failed(error: RequestFailed, message_id: str) -> NotInCluster | NodeFailed:
    """The exception for a node's error about one message."""
    if isinstance(error, Refused) and error.is_unknown_message:
        return NotInCluster(f"message {message_id} is no longer there: it was finished, or there was none with this id")
    if isinstance(error, Refused) and error.is_unknown_name:  # the registry still names the node for a deleted topic
        what: Literal["topic", "channel"] = "topic" if error.message.startswith("TOPIC") else "channel"
        return NotInCluster(f"message {message_id} is no longer there: its node does not have the {what}", what)
    return NodeFailed(reason_of(error) or error.reason)
