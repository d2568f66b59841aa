"""Messages to open browsers, sent from any process as one published message in Redis, whatever the number of browsers.

Each web process subscribes once (cluster.live.subscribers) and forwards each message to the browsers of its group.

    [[group, length, base, version], …] as JSON | newline | the texts, concatenated

``length`` is in bytes; ``base`` and ``version`` are those of a delta, and null for other messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import orjson
from redis.asyncio import Redis

from nsqplatform.cluster import store

CLUSTER = "cluster"
"""The group of every websocket on ``/ws/cluster``, whatever its view."""
ACCOUNTS = "accounts"
"""The group of changed accounts, for web processes: not forwarded to browsers (cluster.live.revocation)."""

Message: TypeAlias = Mapping[str, Any]
"""``type`` is one of the types in docs/architecture.md, Websocket."""


class Envelope(NamedTuple):
    """A message as it is sent to the browsers of ``group``."""

    group: str
    text: bytes
    base: int | None = None
    version: int | None = None


async def publish(redis: Redis, messages: Iterable[tuple[str, Message]]) -> None:
    """Send each message to the websockets of its group, in order. Raises redis.ConnectionError."""
    await redis.publish(store.LIVE(), packed(messages))


def broadcast(group: str, message: Message) -> None:
    """:func:`publish` one message, from code that is not on an event loop: views, tasks, commands."""
    with store.connect() as redis:
        redis.publish(store.LIVE(), packed([(group, message)]))


def packed(messages: Iterable[tuple[str, Message]]) -> bytes:
    """The published form of ``messages``: (group, message) pairs."""
    index, texts = [], []
    for group, message in messages:
        text = orjson.dumps(message)
        is_delta = message["type"] == "delta"
        index.append((group, len(text), *((message["base"], message["version"]) if is_delta else (None, None))))
        texts.append(text)
    return b"\n".join([orjson.dumps(index), b"".join(texts)])


def unpacked(data: bytes) -> Iterator[Envelope]:
    """The messages in ``data``, in order."""
    index, _, texts = data.partition(b"\n")
    begin = 0
    for group, length, base, version in orjson.loads(index):
        yield Envelope(group, texts[begin : begin + length], base, version)
        begin += length
