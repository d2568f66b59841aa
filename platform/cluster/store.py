"""What the collector, the web process and the actions tell each other through Redis."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import orjson
from django.conf import settings
from redis import Redis
from redis.asyncio import BlockingConnectionPool
from redis.asyncio import Redis as AsyncRedis

from cluster.picture import EVERYTHING, Picture, View

PICTURE = "nsq:picture"
"""The newest picture, as a browser that looks at everything is told it, JSON."""
ADDRESSES = "nsq:addresses"
"""Node id to the ``host:port`` it is reached at, as JSON."""
WATCHED = "nsq:watched"
"""A sorted set of the channels whose clients some browser looks at; the score is when it stops to, in unix seconds."""
VIEWS = "nsq:views"
"""A sorted set of what browsers look at that is not everything; the score is as in WATCHED."""
STATE = "nsq:state"
"""Of the newest picture ``version``, ``taken_at``, whether its nodes are ``all_up``, whether it ``has_all`` that nodes
hold (each has answered at least once), and the digest of its ``topics``,
and of each registry its ``error``, null if it answered: JSON."""
TOPICS = "nsq:topics"
"""The names of all topics, sorted, as JSON."""
LOOKUPD = "nsq:lookupd"
"""The registries' addresses, JSON, or null for none, while ``PUT /config`` has changed them."""
CHANGED = "nsq:changed"
"""There for a few seconds after an action, while the picture may not show it yet."""
LIVE = "nsq:live"
"""Where browsers are told things (cluster.live); published, and kept nowhere."""
COLLECTOR = "nsq:collector"
"""Held by the collector at work; another one waits for it to expire."""

COLLECTOR_METRICS = "nsq:collector_metrics"
"""The collector's own figures in Prometheus' text format; gone soon after the collector is."""
HISTORY = "nsq:history:"
"""Begins the keys of the last hour's figures (cluster.history)."""

WATCH_EXPIRES_S = 15
COLLECTOR_EXPIRES_MS = 5_000
CHANGED_EXPIRES_MS = 5_000
METRICS_EXPIRE_MS = 10_000
HISTORY_EXPIRES_S = 3_700
KEEP_HISTORY = """
for place, key in ipairs(KEYS) do
    redis.call('SETRANGE', key, ARGV[2 * place], ARGV[2 * place + 1])
    redis.call('EXPIRE', key, ARGV[1])
end
"""


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


def connect_for_many(connections: int, *, patience_s: float) -> AsyncRedis:
    """A client for hundreds who may ask at once: they take turns, where another would refuse the hundred-and-first."""
    pool = BlockingConnectionPool.from_url(
        settings.REDIS_URL, max_connections=connections, timeout=patience_s, socket_timeout=patience_s
    )
    return AsyncRedis.from_pool(pool)


async def keep_picture(
    redis: AsyncRedis,
    picture: Picture,
    addresses: Mapping[str, str],
    registries: Mapping[str, str | None],
    metrics: bytes,
    *,
    has_all: bool,
) -> None:
    """``addresses`` by node id; ``registries``: what each failed with last, None if it answered; ``metrics`` the
    collector's own; ``has_all`` as in STATE."""
    names = orjson.dumps(sorted(picture.topics))
    state = {
        "version": picture.version,
        "taken_at": picture.taken_at,
        "registries": registries,
        "all_up": all(state == "up" for state in picture.nodes.columns.get("state", ())),
        "has_all": has_all,
        "topics": hashlib.sha256(names).hexdigest(),
    }
    pipe = redis.pipeline(transaction=False)
    pipe.mset(
        {
            PICTURE: orjson.dumps(picture.message(EVERYTHING)),
            ADDRESSES: orjson.dumps(addresses),
            STATE: orjson.dumps(state),
            TOPICS: names,
        }
    )
    pipe.set(COLLECTOR_METRICS, metrics, px=METRICS_EXPIRE_MS)
    await pipe.execute()


async def keep_history(redis: AsyncRedis, records: Sequence[tuple[str, int, bytes]]) -> None:
    """Write each ``(key, offset, record)``: hundreds with each beat, so in one command."""
    told = [part for _, offset, record in records for part in (offset, record)]
    await redis.eval(KEEP_HISTORY, len(records), *(key for key, _, _ in records), HISTORY_EXPIRES_S, *told)


def lookupd_in_force(changed: bytes | str | None) -> Sequence[str]:
    """The registries' addresses: what LOOKUPD holds, else the settings'."""
    addresses: Sequence[str] = (json.loads(changed) or ()) if changed else settings.NSQLOOKUPD_HTTP_ADDRESSES
    return addresses


async def looked_at(redis: AsyncRedis) -> tuple[list[Channel], list[View]]:
    """The channels whose clients are watched, and the views beside that of everything."""
    pipe = redis.pipeline(transaction=False)
    for name in (WATCHED, VIEWS):
        pipe.zremrangebyscore(name, "-inf", time.time())
        pipe.zrange(name, 0, -1)
    _, channels, _, views = await pipe.execute()
    return [Channel(*json.loads(member)) for member in channels], [View(*json.loads(member)) for member in views]


async def keep_looking(redis: AsyncRedis, views: Iterable[View], watched: Iterable[Channel]) -> None:
    """Ask the collector for the changes of these views, and for the clients of these channels, for the next
    WATCH_EXPIRES_S seconds."""
    until = time.time() + WATCH_EXPIRES_S
    pipe = redis.pipeline(transaction=False)
    for name, members in ((VIEWS, views), (WATCHED, watched)):
        if found := {json.dumps(member): until for member in members}:
            pipe.zadd(name, found)
    await pipe.execute()


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
