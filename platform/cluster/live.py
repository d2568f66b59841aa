"""Telling open browsers something, from any process: one message in Redis, whatever their number.

Each web process listens to it once (cluster.audience) and hands its browsers what is meant for them.

    [[group, length, base, version], …] as JSON | newline | the texts, one behind the other

``length`` is in bytes; ``base`` and ``version`` are those of a delta, null of anything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import orjson
from redis.asyncio import Redis

from cluster import store

CLUSTER = "cluster"
"""The group of every websocket on ``/ws/cluster``, whatever it looks at."""

Message: TypeAlias = Mapping[str, Any]
"""``type`` is one of the types in docs/architecture.md, Websocket."""


class Told(NamedTuple):
    """A message as a browser of ``group`` is sent it."""

    group: str
    text: bytes
    base: int | None = None
    version: int | None = None


async def tell(redis: Redis, messages: Iterable[tuple[str, Message]]) -> None:
    """Send each message to the websockets of its group, in their order. Raises redis' ConnectionError."""
    await redis.publish(store.LIVE, packed(messages))


def broadcast(group: str, message: Message) -> None:
    """:func:`tell` one message, from code that is not on an event loop: views, tasks, commands."""
    with store.connect() as redis:
        redis.publish(store.LIVE, packed([(group, message)]))


def packed(messages: Iterable[tuple[str, Message]]) -> bytes:
    index, texts = [], []
    for group, message in messages:
        text = orjson.dumps(message)
        is_delta = message["type"] == "delta"
        index.append((group, len(text), *((message["base"], message["version"]) if is_delta else (None, None))))
        texts.append(text)
    return b"\n".join([orjson.dumps(index), b"".join(texts)])


def unpacked(data: bytes) -> Iterator[Told]:
    index, _, texts = data.partition(b"\n")
    begin = 0
    for group, length, base, version in orjson.loads(index):
        yield Told(group, texts[begin : begin + length], base, version)
        begin += length
