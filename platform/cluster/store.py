"""What the collector, the web process and the actions tell each other through Redis."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from typing import NamedTuple, cast

from django.conf import settings
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from cluster.rows import Snapshot

SNAPSHOT = "nsq:snapshot"
ADDRESSES = "nsq:addresses"
"""Node id to the ``host:port`` it is reached at, as JSON."""
WATCHED = "nsq:watched"
"""A sorted set of the channels whose clients some browser looks at; the score is when it stops to, in unix seconds."""
COLLECTOR = "nsq:collector"
"""Held by the collector at work; another one waits for it to expire."""

WATCH_EXPIRES_S = 15
COLLECTOR_EXPIRES_MS = 5_000


class Channel(NamedTuple):
    topic: str
    name: str

    @property
    def group(self) -> str:
        """The group of the websockets that watch it. Group names have a small alphabet, so: a digest."""
        return "clients." + hashlib.sha256(f"{self.topic}/{self.name}".encode()).hexdigest()[:32]


def connect() -> Redis:
    return Redis.from_url(settings.REDIS_URL, socket_timeout=5)


def connect_async() -> AsyncRedis:
    return AsyncRedis.from_url(settings.REDIS_URL, socket_timeout=5)


async def keep_snapshot(redis: AsyncRedis, snapshot: Snapshot, addresses: Mapping[str, str]) -> None:
    text = json.dumps(snapshot, separators=(",", ":"))
    await redis.mset({SNAPSHOT: text, ADDRESSES: json.dumps(addresses)})


async def watched_channels(redis: AsyncRedis) -> list[Channel]:
    await redis.zremrangebyscore(WATCHED, "-inf", time.time())
    members = cast(list[bytes], await redis.zrange(WATCHED, 0, -1))
    return [Channel(*json.loads(member)) for member in members]


async def watch(redis: AsyncRedis, channel: Channel) -> None:
    """Ask the collector for the channel's clients, for the next WATCH_EXPIRES_S seconds."""
    await redis.zadd(WATCHED, {json.dumps(channel): time.time() + WATCH_EXPIRES_S})


async def hold_collector(redis: AsyncRedis, holder: str) -> bool:
    """Become, or stay, the collector at work. False while another one is."""
    if await redis.set(COLLECTOR, holder, nx=True, px=COLLECTOR_EXPIRES_MS):
        return True
    if await redis.get(COLLECTOR) != holder.encode():
        return False
    await redis.pexpire(COLLECTOR, COLLECTOR_EXPIRES_MS)
    return True


async def release_collector(redis: AsyncRedis, holder: str) -> None:
    if await redis.get(COLLECTOR) == holder.encode():
        await redis.delete(COLLECTOR)
