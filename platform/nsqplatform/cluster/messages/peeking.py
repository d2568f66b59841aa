"""Lists the messages of a channel on all its nodes, without side effects."""

from __future__ import annotations

import asyncio
from typing import Literal

from asgiref.sync import async_to_sync
from typing_extensions import TypedDict

from nsqcluster import Client, Cluster, NotInCluster, Refused, RequestFailed
from nsqcluster.peek import PeekedClient, PeekPage
from nsqcluster.peek import PeekedMessage as BrokerMessage
from nsqplatform.accounts.models import User
from nsqplatform.accounts.rights import require
from nsqplatform.accounts.roles import Permission
from nsqplatform.cluster import node_client, selectors
from nsqplatform.cluster.actions.topic_nodes import NodeFailed, address_of_node, holders

State = Literal["ready", "in_flight", "deferred"]

WHOLE_BYTES = 65_536
"""The limit of a body in a broker's response."""
MOVED_BY = 20
"""A message is searched within this distance of the position at which it was seen."""
NOT_OFFERED = "this nsqd cannot list the messages of a channel; brokerd can, Go's nsqd cannot"


class Holder(TypedDict):
    """The consumer that has a message in flight."""

    client_id: str
    hostname: str
    remote_address: str
    user_agent: str


class PeekedMessage(TypedDict):
    """Times are unix milliseconds; ``body`` is the base64 of its beginning, ``size`` its full size in bytes. ``place``
    is its position in its node's list."""

    node: str
    place: int
    id: str
    timestamp: int
    attempts: int
    size: int
    body: str
    truncated: bool
    due: int | None
    deadline: int | None
    client: Holder | None


class NodePart(TypedDict):
    """``total``: the node's number of messages; null if unknown, for the reason in ``error``."""

    node: str
    total: int | None
    error: str


class Peeked(TypedDict):
    """Messages, grouped by node; ``total`` of all nodes that answered."""

    total: int
    nodes: list[NodePart]
    messages: list[PeekedMessage]


def peek(*, user: User, topic: str, channel: str, state: State, limit: int, offset: int, max_body_bytes: int) -> Peeked:
    """A page of the channel's messages. Raises PermissionDenied, NotInCluster and ClusterUnreachable."""
    require(user, Permission.READ, topic=topic)
    question = asking(topic, channel, state, max_body_bytes)
    return async_to_sync(_peek)(selectors.cluster(), question, limit, offset)


def whole(*, user: User, topic: str, channel: str, state: State, node: str, place: int, wanted: str) -> PeekedMessage:
    """The message with the id ``wanted``, searched near ``place``, with the first WHOLE_BYTES of its body.

    Raises PermissionDenied, NotInCluster, ClusterUnreachable and NodeFailed.
    """
    require(user, Permission.READ, topic=topic)
    question = asking(topic, channel, state, WHOLE_BYTES)
    return async_to_sync(_whole)(selectors.cluster(), question, node, place, wanted)


def asking(topic: str, channel: str, state: State, max_body_bytes: int) -> dict[str, str | int]:
    return {"topic": topic, "channel": channel, "state": state, "max_body_bytes": max_body_bytes}


async def _peek(cluster: Cluster, question: dict[str, str | int], limit: int, offset: int) -> Peeked:
    """Read the number of messages of each node, then the messages of the nodes on which the page is."""
    where = await holders(cluster, str(question["topic"]))
    async with node_client.client() as http:
        counted = await asyncio.gather(
            *(_part(http, name, address, question, 0, 0) for name, address in sorted(where.items()))
        )
        parts = [part for part, _ in counted if part["error"] not in ("CHANNEL_NOT_FOUND", "TOPIC_NOT_FOUND")]
        if not parts:
            raise NotInCluster(f"no node of the cluster has channel {question['channel']} of topic {question['topic']}")
        pages = []
        left, skip = limit, offset
        for part in parts:
            total = part["total"] or 0
            take = max(0, min(left, total - skip))
            if take:
                pages.append(_part(http, part["node"], where[part["node"]], question, take, skip))
            left -= take
            skip = max(0, skip - total)
        messages = [message for _, found in await asyncio.gather(*pages) for message in found]
    return Peeked(total=sum(part["total"] or 0 for part in parts), nodes=parts, messages=messages)


async def _whole(cluster: Cluster, question: dict[str, str | int], node: str, place: int, wanted: str) -> PeekedMessage:
    where = await holders(cluster, str(question["topic"]))
    first = max(0, place - MOVED_BY)
    async with node_client.client() as http:
        part, found = await _part(http, node, address_of_node(cluster, where, node), question, 2 * MOVED_BY, first)
    if part["error"]:
        raise NodeFailed(part["error"])
    for message in found:
        if message["id"] == wanted:
            return message
    raise NotInCluster(f"message {wanted} is no longer there: it was delivered, finished or requeued")


async def _part(
    http: Client, node: str, address: str, question: dict[str, str | int], limit: int, offset: int
) -> tuple[NodePart, list[PeekedMessage]]:
    """One node's count and page. Raises nothing: an error is stored with the node."""
    try:
        page = await http.get(address, "/channel/peek", PeekPage, question | {"limit": limit, "offset": offset})
    except RequestFailed as error:
        code = error.message if isinstance(error, Refused) else ""
        absent = code in ("TOPIC_NOT_FOUND", "CHANNEL_NOT_FOUND")
        why = "CHANNEL_NOT_FOUND" if absent else NOT_OFFERED if code == "NOT_FOUND" else error.reason
    else:
        messages = [_message(node, offset + number, each) for number, each in enumerate(page.messages)]
        return NodePart(node=node, total=page.total, error=""), messages
    return NodePart(node=node, total=None, error=why), []


def _message(node: str, place: int, message: BrokerMessage) -> PeekedMessage:
    return PeekedMessage(
        node=node,
        place=place,
        id=message.id,
        timestamp=message.timestamp // 1_000_000,
        attempts=message.attempts,
        size=message.size,
        body=message.body,
        truncated=message.truncated,
        due=None if message.due is None else message.due // 1_000_000,
        deadline=None if message.deadline is None else message.deadline // 1_000_000,
        client=_holder(message.client) if message.client else None,
    )


def _holder(client: PeekedClient) -> Holder:
    return Holder(
        client_id=client.client_id,
        hostname=client.hostname,
        remote_address=client.remote_address,
        user_agent=client.user_agent,
    )
