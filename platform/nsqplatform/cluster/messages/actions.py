"""Actions on messages of a channel on one node: requeueing, finishing, copying and moving them to another topic.

Moving publishes a message and finishes it once the publish is acknowledged, so a message is moved at least once: if the
node or the platform is killed in between, it is in both places.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from asgiref.sync import async_to_sync
from django.core.exceptions import PermissionDenied

from nsqcluster import Client, Cluster, Interrupted, NotInCluster, Refused, RequestFailed, Result, TimedOut, messages
from nsqcluster.publishing import publish_all, publish_with_headers
from nsqplatform.accounts import audit
from nsqplatform.accounts.models import User
from nsqplatform.accounts.rights import require
from nsqplatform.accounts.roles import Permission
from nsqplatform.cluster import node_client, selectors
from nsqplatform.cluster.actions.services import mark_changed
from nsqplatform.cluster.actions.topic_nodes import NodeFailed, address_of_node, node_addresses
from nsqplatform.cluster.messages import masks
from nsqplatform.cluster.messages.publish import NODE_ERRORS, CannotPublish
from nsqwire.counted import counted

BODIES_AT_ONCE = 8
PUBLISHED_BYTES = 1 << 20
"""Maximum size of the bodies that are published together. A longer body is published alone."""
NO_CHANNEL = "the node does not have this channel any more"


class MessageAction(StrEnum):
    """An action on messages."""

    REQUEUE = "requeue"
    FINISH = "finish"
    COPY = "copy"
    MOVE = "move"

    @property
    def publishes(self) -> bool:
        """Whether it needs a target topic."""
        return self in (MessageAction.COPY, MessageAction.MOVE)

    @property
    def past(self) -> str:
        return {"requeue": "requeued", "finish": "finished", "copy": "copied", "move": "moved"}[self]


class Copied(NamedTuple):
    """What a copy of a message has of it."""

    body: bytes
    headers: dict[str, str]


class HiddenBodies(PermissionDenied):
    """A mask hides parts of the bodies and headers."""

    def __init__(self, action: MessageAction, topic: str) -> None:
        super().__init__(
            f"a mask hides values in the bodies of topic {topic} from you, so you may not {action} its messages"
        )


class Acted(NamedTuple):
    """``messages`` is the number of messages acted on; ``not_found`` has the ids that were no longer in the channel.

    ``error`` is the reason why the other messages were not, or may not have been, acted on; empty if there are none.
    """

    messages: int
    not_found: Sequence[str]
    error: str = ""

    def result(self, action: MessageAction, node: str, target: str | None) -> Result:
        """The node's result."""
        where = f" to topic {target}" if target else ""
        parts = [f"{counted(self.messages, 'message')} {action.past}{where}"]
        if self.not_found:
            parts.append(f"{len(self.not_found):,} no longer there")
        if self.error:
            parts.append(self.error)
        return Result(node=node, target="nsqd", outcome="failed" if self.error else "done", detail="; ".join(parts))


def check_rights(user: User, action: MessageAction, topic: str, target: str | None) -> None:
    """Raise PermissionDenied unless ``user`` may act on messages of ``topic``, and publish whole bodies to ``target``.

    A copy of the masked body would lose values, and a copy of the whole body would reveal them.
    """
    require(user, Permission.ACT, topic=topic)
    if action.publishes:
        require(user, Permission.PUBLISH, topic=target)
        if masks.hidden_paths(user, topic).paths:
            raise HiddenBodies(action, topic)


def check_target(action: MessageAction, topic: str, target: str | None) -> None:
    """Raise CannotPublish unless the action has the target that it needs: another topic for a move, none for a requeue
    or finish."""
    if action.publishes and not target:
        raise CannotPublish("target", f"the topic to {action} the messages to is missing")
    if not action.publishes and target:
        raise CannotPublish("target", f"{action} has no target topic")
    if action is MessageAction.MOVE and target == topic:
        raise CannotPublish("target", "the messages are in this topic already")


def act_on_messages(
    *,
    user: User,
    action: MessageAction,
    topic: str,
    channel: str,
    node: str,
    ids: Sequence[str],
    target: str | None,
    remote_address: str,
) -> Acted:
    """Act on messages of one node, on behalf of ``user``.

    Raises CannotPublish, PermissionDenied, NotInCluster and ClusterUnreachable, having changed nothing; NodeFailed,
    which is audited.
    """
    check_target(action, topic, target)
    check_rights(user, action, topic, target)
    acted = async_to_sync(_act)(selectors.cluster(), action, topic, channel, node, ids, target)
    result = acted.result(action, node, target)
    mark_changed()
    audit.record(
        user=user,
        action=f"{action} messages",
        topic=topic,
        channel=channel,
        outcome=result["outcome"],
        detail=result["detail"],
        results=[result],
        remote_address=remote_address,
    )
    if acted.error:
        raise NodeFailed(f"node {node}: {result['detail']}")
    return acted


async def _act(
    cluster: Cluster,
    action: MessageAction,
    topic: str,
    channel: str,
    node: str,
    ids: Sequence[str],
    target: str | None,
) -> Acted:
    address = address_of_node(cluster, await node_addresses(cluster, topic), node)
    async with node_client.client() as http:
        return await act(http, address, action, topic, channel, ids, target)


async def act(
    http: Client,
    address: str,
    action: MessageAction,
    topic: str,
    channel: str,
    ids: Sequence[str],
    target: str | None,
) -> Acted:
    """Act on messages of the node at ``address``. Raises NotInCluster if the node does not have the channel."""
    try:
        if action is MessageAction.REQUEUE:
            requeued = await messages.requeue(http, address, topic, channel, ids)
            return Acted(requeued.requeued, requeued.not_found)
        if action is MessageAction.FINISH:
            finished = await messages.finish(http, address, topic, channel, ids)
            return Acted(finished.finished, finished.not_found)
    except RequestFailed as error:
        _require_channel(error)
        return Acted(0, (), _reason(error, action))
    assert target is not None
    return await _publish(http, address, action, topic, channel, ids, target)


async def _publish(
    http: Client, address: str, action: MessageAction, topic: str, channel: str, ids: Sequence[str], target: str
) -> Acted:
    """Copy or move messages, in the order of ``ids``."""
    count, not_found = 0, list[str]()
    for some in _batched(ids):
        try:
            found = await _found(http, address, topic, channel, some)
        except RequestFailed as error:
            if not count:
                _require_channel(error)
            return Acted(count, not_found, _reason(error, action))
        not_found += [each for each in some if each not in found]
        for part in _parts(found):
            try:
                await _publish_part(http, address, target, [found[each] for each in part])
            except RequestFailed as error:
                return Acted(count, not_found, _not_stored(error, target))
            if action is MessageAction.MOVE:
                try:
                    await messages.finish(http, address, topic, channel, part)
                except RequestFailed as error:
                    copied = f"{len(part):,} more were published to topic {target} and not finished"
                    return Acted(count, not_found, f"{copied}: {_reason(error, action)}")
            count += len(part)
    return Acted(count, not_found)


def _batched(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    return (ids[start : start + BODIES_AT_ONCE] for start in range(0, len(ids), BODIES_AT_ONCE))


async def _publish_part(http: Client, address: str, target: str, part: Sequence[Copied]) -> None:
    """Publish messages with their headers. Only a node that takes headers has shown any."""
    if any(each.headers for each in part):
        await publish_with_headers(http, address, target, part)
    else:
        await publish_all(http, address, target, [each.body for each in part])


async def _found(http: Client, address: str, topic: str, channel: str, ids: Sequence[str]) -> dict[str, Copied]:
    """The whole bodies and the headers of the messages that the channel still has, by id. Raises RequestFailed."""

    async def one(message_id: str) -> Copied | None:
        where = (http, address, topic, channel, message_id)
        try:
            body, message = await asyncio.gather(messages.body(*where), messages.message(*where))
            return Copied(body, message.headers)
        except Refused as error:
            if error.is_unknown_message:
                return None
            raise

    found = await asyncio.gather(*map(one, ids))
    return {message_id: each for message_id, each in zip(ids, found, strict=True) if each is not None}


def _parts(found: dict[str, Copied]) -> Iterator[list[str]]:
    """Split messages into parts of at most PUBLISHED_BYTES, or of one message."""
    part, size = list[str](), 0
    for message_id, (body, _) in found.items():
        if part and size + len(body) > PUBLISHED_BYTES:
            yield part
            part, size = [], 0
        part.append(message_id)
        size += len(body)
    if part:
        yield part


def _not_stored(error: RequestFailed, target: str) -> str:
    code = error.message if isinstance(error, Refused) else ""
    if code in NODE_ERRORS:
        return NODE_ERRORS[code][1]
    unsure = isinstance(error, (TimedOut, Interrupted))
    return f"{error.reason}; it may have stored messages in topic {target}" if unsure else error.reason


def _require_channel(error: RequestFailed) -> None:
    """Raise NotInCluster if a node that has changed nothing yet does not have the channel."""
    if isinstance(error, Refused) and error.is_unknown_name:
        raise NotInCluster(NO_CHANNEL)


def _reason(error: RequestFailed, action: MessageAction) -> str:
    """Why a node did not act, or did not act on the rest."""
    if isinstance(error, Refused) and error.is_unknown_name:
        return NO_CHANNEL
    if isinstance(error, Refused) and error.is_unknown_request:
        return f"this nsqd cannot {action} single messages; brokerd can, Go's nsqd cannot"
    return error.reason
