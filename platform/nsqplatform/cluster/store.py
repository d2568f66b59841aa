"""The data in Redis that the collector, the web processes and the actions share."""

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

from nsqplatform.cluster.snapshots.snapshot import EVERYTHING, Snapshot, View

SNAPSHOT = "nsq:snapshot"
"""The newest snapshot, as sent to browsers that view everything, JSON."""
ADDRESSES = "nsq:addresses"
"""Node id to the ``host:port`` of its HTTP server, JSON."""
WATCHED = "nsq:watched"
"""A sorted set of the channels whose clients are watched; the score is when the watch expires, in unix seconds."""
VIEWS = "nsq:views"
"""A sorted set of the browsers' views other than everything; scores as in WATCHED."""
STATE = "nsq:state"
"""The state of the newest snapshot, JSON: ``version``; ``taken_at``; ``all_up``, whether all nodes are up; ``has_all``,
whether each node has answered at least once; the digest of its ``topics``; and the error of each of the
``registries``, null if it answered."""
TOPICS = "nsq:topics"
"""The names of all topics, sorted, as JSON."""
LOOKUPD = "nsq:lookupd"
"""The registries' addresses, JSON, or null for none, while ``PUT /config`` has changed them."""
CHANGED = "nsq:changed"
"""Exists for a few seconds after an action, while the snapshot may not show its effect yet."""
LIVE = "nsq:live"
"""The channel on which messages to browsers are published (cluster.live.broadcast)."""
COLLECTOR = "nsq:collector"
"""The lock of the active collector; others wait until it expires."""

COLLECTOR_METRICS = "nsq:collector_metrics"
"""The collector's own metrics in Prometheus' text format; expires soon after the collector stops."""
DAMAGED_FILES = "nsq:damaged_files"
"""DamagedFiles as JSON; expires soon after the collector stops, and while the archive cannot be listed."""
HISTORY = "nsq:history:"
"""The prefix of the keys of the last hour's figures (cluster.history.records)."""

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
        """The group of the websockets that watch it; a digest, so that its length does not depend on names."""
        return "clients." + hashlib.sha256(f"{self.topic}/{self.name}".encode()).hexdigest()[:32]


class DamagedFiles(NamedTuple):
    """The files of the archive that maintenance set aside as damaged. ``first``: the path of the oldest hour's first
    file, relative to the archive; empty if there is none."""

    file_count: int
    first: str


def connect() -> Redis:
    return Redis.from_url(settings.REDIS_URL, socket_timeout=5)


def connect_async() -> AsyncRedis:
    return AsyncRedis.from_url(settings.REDIS_URL, socket_timeout=5)


def connect_for_many(connections: int, *, patience_s: float) -> AsyncRedis:
    """A client for hundreds of concurrent callers, which wait for one of ``connections`` connections."""
    pool = BlockingConnectionPool.from_url(
        settings.REDIS_URL, max_connections=connections, timeout=patience_s, socket_timeout=patience_s
    )
    return AsyncRedis.from_pool(pool)


async def store_snapshot(
    redis: AsyncRedis,
    snapshot: Snapshot,
    addresses: Mapping[str, str],
    registries: Mapping[str, str | None],
    metrics: bytes,
    damaged_files: DamagedFiles | None,
    *,
    has_all: bool,
) -> None:
    """Store a snapshot and what belongs to it. ``addresses`` by node id; ``registries``: the last error of each, None
    if it answered; ``metrics``: the collector's own; ``damaged_files``: None if the archive could not be listed;
    ``has_all``: as in STATE."""
    names = orjson.dumps(sorted(snapshot.topics))
    state = {
        "version": snapshot.version,
        "taken_at": snapshot.taken_at,
        "registries": registries,
        "all_up": all(state == "up" for state in snapshot.nodes.columns.get("state", ())),
        "has_all": has_all,
        "topics": hashlib.sha256(names).hexdigest(),
    }
    pipe = redis.pipeline(transaction=False)
    pipe.mset(
        {
            SNAPSHOT: orjson.dumps(snapshot.message(EVERYTHING)),
            ADDRESSES: orjson.dumps(addresses),
            STATE: orjson.dumps(state),
            TOPICS: names,
        }
    )
    pipe.set(COLLECTOR_METRICS, metrics, px=METRICS_EXPIRE_MS)
    if damaged_files is None:
        pipe.delete(DAMAGED_FILES)
    else:
        pipe.set(DAMAGED_FILES, orjson.dumps(list(damaged_files)), px=METRICS_EXPIRE_MS)
    await pipe.execute()


def damaged_files_of(kept: bytes | str | None) -> DamagedFiles | None:
    """The value of DAMAGED_FILES; None if there is none."""
    return DamagedFiles(*orjson.loads(kept)) if kept else None


async def store_history(redis: AsyncRedis, records: Sequence[tuple[str, int, bytes]]) -> None:
    """Write each ``(key, offset, record)``, all in one command: there are hundreds per poll."""
    arguments = [part for _, offset, record in records for part in (offset, record)]
    await redis.eval(KEEP_HISTORY, len(records), *(key for key, _, _ in records), HISTORY_EXPIRES_S, *arguments)


def lookupd_in_force(changed: bytes | str | None) -> Sequence[str]:
    """The registries' addresses: those in LOOKUPD, else those of the settings."""
    addresses: Sequence[str] = (json.loads(changed) or ()) if changed else settings.NSQLOOKUPD_HTTP_ADDRESSES
    return addresses


async def watches(redis: AsyncRedis) -> tuple[list[Channel], list[View]]:
    """The channels whose clients are watched, and the views other than everything."""
    pipe = redis.pipeline(transaction=False)
    for name in (WATCHED, VIEWS):
        pipe.zremrangebyscore(name, "-inf", time.time())
        pipe.zrange(name, 0, -1)
    _, channels, _, views = await pipe.execute()
    return [Channel(*json.loads(member)) for member in channels], [View(*json.loads(member)) for member in views]


async def renew_watches(redis: AsyncRedis, views: Iterable[View], watched: Iterable[Channel]) -> None:
    """Request the deltas of these views and the clients of these channels for the next WATCH_EXPIRES_S seconds."""
    until = time.time() + WATCH_EXPIRES_S
    pipe = redis.pipeline(transaction=False)
    for name, members in ((VIEWS, views), (WATCHED, watched)):
        if found := {json.dumps(member): until for member in members}:
            pipe.zadd(name, found)
    await pipe.execute()


async def acquire_collector(redis: AsyncRedis, holder: str) -> bool:
    """Become, or remain, the active collector. Returns False while another one is active."""
    if await redis.set(COLLECTOR, holder, nx=True, px=COLLECTOR_EXPIRES_MS):
        return True
    if await redis.get(COLLECTOR) != holder.encode():
        return False
    await redis.pexpire(COLLECTOR, COLLECTOR_EXPIRES_MS)
    return True


async def release_collector(redis: AsyncRedis, holder: str) -> None:
    if await redis.get(COLLECTOR) == holder.encode():
        await redis.delete(COLLECTOR)
