"""Publishing by users: to the node that they choose, or to any node that accepts it. Count and bytes are audited."""

from __future__ import annotations

import asyncio
import json
import random
from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from asgiref.sync import async_to_sync

from nsqcluster import (
    Client,
    Cluster,
    ClusterUnreachable,
    NotInCluster,
    NotReached,
    Refused,
    RequestFailed,
    Result,
)
from nsqcluster.publishing import publish, publish_all, publish_with_headers, stores_headers
from nsqcluster.targets import Targets
from nsqplatform.accounts.models import User
from nsqplatform.accounts.rights import require
from nsqplatform.accounts.roles import Permission
from nsqplatform.cluster import node_client, selectors
from nsqplatform.cluster.actions import services
from nsqplatform.cluster.actions.topic_nodes import address_of_node, targets_of
from nsqwire.counted import counted
from nsqwire.errors import BadHeaders
from nsqwire.headers import checked_headers

Format = Literal["text", "json", "base64"]

LARGEST_BYTES = 5 * 1024 * 1024
"""Maximum size of all messages of one request; the default of nsqd's --max-body-size."""
MAX_MESSAGES = 10_000
MAX_DEFERRED = 100
"""NSQ publishes deferred messages one by one."""
AT_ONCE = 8

NODE_ERRORS = {
    "MSG_TOO_BIG": ("bodies", "a message is larger than this node accepts (its --max-msg-size, 1 MiB unless changed)"),
    "BODY_TOO_BIG": (
        "bodies",
        "this is more than this node accepts at once (its --max-body-size, 5 MiB unless changed)",
    ),
    "INVALID_DEFER": (
        "defer_ms",
        "the delay is longer than this node permits (its --max-req-timeout, 1 h unless changed)",
    ),
}
"""Field and message for a node's error codes."""


class CannotPublish(Exception):
    """The value of ``field`` is invalid; nothing was published."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(f"{field}: {text}")
        self.field, self.text = field, text


class NoHeaders(CannotPublish):
    """The messages have headers, and the node is Go's nsqd."""

    def __init__(self, node: str) -> None:
        super().__init__("headers", f"node {node} does not store headers: only brokerd does, not Go's nsqd")


class NotAccepted(Exception):
    """The node failed; the text names it and what may have been stored."""


class Messages(NamedTuple):
    """What is published to a topic. The headers are those of each message."""

    topic: str
    bodies: Sequence[bytes]
    headers: Mapping[str, str]
    defer_ms: int


class Published(Result):
    """``count`` and ``size``: stored messages and bytes."""

    count: int
    size: int


def bodies_of(texts: Sequence[str], given: Format) -> list[bytes]:
    """The messages as bytes. Raises CannotPublish naming the first that is empty or not of the given format."""
    bodies = []
    for number, text in enumerate(texts):
        field = f"bodies.{number}"
        if given == "base64":
            try:
                body = b64decode(text, validate=True)
            except ValueError:
                raise CannotPublish(field, "not base64") from None
        else:
            body = text.encode("utf-8", "surrogatepass")
        if not body:
            raise CannotPublish(field, "a message has at least one byte")
        if given == "json":
            check_json(text, field)
        bodies.append(body)
    size = sum(map(len, bodies))
    if size > LARGEST_BYTES:
        raise CannotPublish("bodies", f"{size:,} bytes together; the limit is {LARGEST_BYTES:,}")
    return bodies


def headers_of(given: Mapping[str, str]) -> dict[str, str]:
    """The headers, with names in lower case. Raises CannotPublish."""
    for name, value in given.items():
        if value != value.strip(" "):  # /pub would remove them
            raise CannotPublish("headers", f"value of header {name} begins or ends with a space")
    try:
        return checked_headers(given.items())
    except BadHeaders as error:
        raise CannotPublish("headers", str(error)) from None


def check_json(text: str, field: str) -> None:
    def not_json(word: str) -> None:
        raise CannotPublish(field, f"not JSON: {word} is not a value")

    try:
        json.loads(text, parse_constant=not_json)
    except json.JSONDecodeError as error:
        raise CannotPublish(field, f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise CannotPublish(field, "not JSON that could be checked: nested too deeply") from None


def publish_messages(
    *,
    user: User,
    topic: str,
    texts: Sequence[str],
    given: Format,
    headers: Mapping[str, str],
    defer_ms: int,
    node: str | None,
    remote_address: str,
) -> Published:
    """Publish on behalf of ``user``, all to one node and all with ``headers``.

    Raises PermissionDenied, CannotPublish and NotInCluster, having published nothing; NotAccepted, which is audited.
    """
    require(user, Permission.PUBLISH, topic=topic)
    messages = Messages(topic, bodies_of(texts, given), headers_of(headers), defer_ms)
    if defer_ms and len(texts) > MAX_DEFERRED:
        raise CannotPublish("bodies", f"{len(texts):,} messages; at most {MAX_DEFERRED} can be deferred at once")
    done = async_to_sync(_publish)(selectors.cluster(), selectors.nodes_down(), messages, node)
    services.record_action(
        user=user,
        action="publish",
        topic=topic,
        channel=None,
        results=[Result(node=done["node"], target="nsqd", outcome=done["outcome"], detail=done["detail"])],
        remote_address=remote_address,
    )
    if done["outcome"] != "done":
        raise NotAccepted(f"node {done['node']}: {done['detail']}")
    return done


async def _publish(cluster: Cluster, down: frozenset[str], messages: Messages, node: str | None) -> Published:
    """Publish to the chosen node, or to the candidates in random order until one can be reached and stores the headers.
    For a topic without nodes, every node is a candidate."""
    try:
        found = await targets_of(cluster, messages.topic)
    except (NotInCluster, ClusterUnreachable):
        found = Targets()
    if node is not None:
        candidates = [(node, address_of_node(cluster, found.nodes, node))]
    else:
        current = {name: address for name, address in found.nodes.items() if name in found.holders}
        recent = {name: cluster.address(name) for name in cluster.seen.get(messages.topic, ())}
        known = current or recent or cluster.addresses or cluster.given
        candidates = random.sample(list(known.items()), len(known))
        candidates.sort(key=lambda each: each[0] in down)
    if not candidates:
        raise NotInCluster("there is no node to publish to")
    unreachable = list[Published]()
    without_headers = list[NoHeaders]()
    async with node_client.client() as http:
        for name, address in candidates:
            try:
                done = await _publish_to(http, name, address, messages)
            except NoHeaders as error:
                without_headers.append(error)
                continue
            if done["outcome"] != "unreachable":
                return done
            unreachable.append(done)
    if unreachable:
        return unreachable[-1]
    raise without_headers[-1]


async def _publish_to(http: Client, node: str, address: str, messages: Messages) -> Published:
    """Publish to one node. Raises CannotPublish if the node refuses the values, and NoHeaders. The outcome
    ``unreachable`` guarantees that nothing was stored."""
    topic, bodies, headers, defer_ms = messages
    if headers:
        try:
            if not await stores_headers(http, address):
                raise NoHeaders(node)
        except RequestFailed as error:
            return Published(node=node, target="nsqd", outcome="unreachable", detail=error.reason, count=0, size=0)
    slots = asyncio.Semaphore(AT_ONCE)

    async def alone(body: bytes) -> bytes | RequestFailed:
        async with slots:
            try:
                await publish(http, address, topic, body, headers=headers, defer_ms=defer_ms)
            except RequestFailed as error:
                return error
            return body

    async def together() -> list[bytes | RequestFailed]:
        try:
            if headers:
                await publish_with_headers(http, address, topic, [(body, headers) for body in bodies])
            else:
                await publish_all(http, address, topic, bodies)
        except RequestFailed as error:
            return [error] * len(bodies)
        return list(bodies)

    answers = await asyncio.gather(*(alone(body) for body in bodies)) if defer_ms else await together()
    stored = [answer for answer in answers if isinstance(answer, bytes)]
    failure = next((answer for answer in answers if isinstance(answer, RequestFailed)), None)
    size = sum(map(len, stored))
    summary = f"{counted(len(stored), 'message')}, {counted(size, 'byte')}"
    if failure is None:
        return Published(node=node, target="nsqd", outcome="done", detail=summary, count=len(stored), size=size)
    code = failure.message if isinstance(failure, Refused) else ""
    never_sent = isinstance(failure, NotReached)
    if code in NODE_ERRORS and not stored:
        raise CannotPublish(NODE_ERRORS[code][0], f"{NODE_ERRORS[code][1]}; node {node}")
    why = failure.reason if code or never_sent else f"{failure.reason}; it may have stored messages"
    return Published(
        node=node,
        target="nsqd",
        outcome="unreachable" if never_sent and not stored else "failed",
        detail=f"{why} ({summary} of {len(bodies):,} stored)" if stored else why,
        count=len(stored),
        size=size,
    )
