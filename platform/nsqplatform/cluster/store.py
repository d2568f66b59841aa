"""The data in Redis that the collector, the web processes and the actions share."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import orjson
from django.conf import settings
from redis import Redis
from redis.asyncio import BlockingConnectionPool
from redis.asyncio import Redis as AsyncRedis

from nsqplatform.cluster.readings.node import Node
from nsqplatform.cluster.snapshots.snapshot import EVERYTHING, Snapshot, View
from nsqplatform.clusters import current
from nsqplatform.clusters.current import Key
from nsqwire.units import Milliseconds

SNAPSHOT = Key("snapshot")
"""The newest snapshot, as sent to browsers that view everything, JSON."""
SNAPSHOT_HEAD_BYTES = 64
"""Length of its beginning, which contains its version and its time, and so differs from that of any other snapshot."""
ADDRESSES = Key("addresses")
"""Node id to the ``host:port`` of its HTTP server, JSON."""
WATCHED = Key("watched")
"""A sorted set of the channels whose clients are watched; the score is when the watch expires, in Unix seconds."""
VIEWS = Key("views")
"""A sorted set of the browsers' views other than everything; scores as in WATCHED."""
NODES = Key("nodes")
"""KnownNode of every node that the collector polls, for its next start, JSON."""
STATE = Key("state")
"""The state of the newest snapshot, JSON: ``version``; ``taken_at``; ``all_up``, whether all nodes are up; ``has_all``,
whether each node has answered at least once; the digest of its ``topics``; and the error of each of the
``registries``, null if it answered."""
TOPICS = Key("topics")
"""The names of all topics, sorted, as JSON."""
LOOKUPD = Key("lookupd")
"""The registries' addresses, JSON, or null for none, while ``PUT /config`` has changed them."""
EMPTIED = Key("emptied")
"""A sorted set of the channels that the platform is emptying or has just emptied; scores as in WATCHED. Go's nsqd does
not report whether a message that left was finished or emptied."""
CHANGED = Key("changed")
"""Exists for a few seconds after an action, while the snapshot may not show its effect yet."""
LIVE = Key("live")
"""The channel on which messages to browsers are published (cluster.live.broadcast)."""
COLLECTOR = Key("collector")
"""The lock of the active collector; others wait until it expires."""

COLLECTOR_METRICS = Key("collector_metrics")
"""The collector's own metrics in Prometheus' text format; expires soon after the collector stops."""
DAMAGED_FILES = Key("damaged_files")
"""DamagedFiles as JSON; expires soon after the collector stops, and while the archive cannot be listed."""
HISTORY = Key("history:")
"""The prefix of the keys of the last hour's figures (cluster.history.records)."""

WATCH_EXPIRES_S = 15
COLLECTOR_EXPIRES_MS = 5_000
CHANGED_EXPIRES_MS = 5_000
EMPTIED_EXPIRES_S = 10
"""Longer than a request to a node and the poll that reads its effect."""
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


@dataclass(frozen=True, kw_only=True)
class KnownNode:
    """``read_at``: when the node was last read, in Unix milliseconds; None if it never answered."""

    node: Node
    read_at: Milliseconds | None


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
    nodes: Sequence[KnownNode],
    registries: Mapping[str, str | None],
    metrics: bytes,
    damaged_files: DamagedFiles | None,
    *,
    has_all: bool,
) -> None:
    """Store a snapshot and what belongs to it. ``addresses`` by node id; ``nodes``: all that are polled;
    ``registries``: the last error of each, None if it answered; ``metrics``: the collector's own; ``damaged_files``:
    None if the archive could not be listed; ``has_all``: as in STATE."""
    names = orjson.dumps(sorted(snapshot.topics))
    state = {
        "version": snapshot.version,
        "taken_at": snapshot.taken_at_ms,
        "registries": registries,
        "all_up": all(state == "up" for state in snapshot.nodes.columns.get("state", ())),
        "has_all": has_all,
        "topics": hashlib.sha256(names).hexdigest(),
    }
    pipe = redis.pipeline(transaction=False)
    pipe.mset(
        {
            SNAPSHOT(): orjson.dumps(snapshot.message(EVERYTHING)),
            ADDRESSES(): orjson.dumps(addresses),
            NODES(): orjson.dumps(nodes),
            STATE(): orjson.dumps(state),
            TOPICS(): names,
        }
    )
    pipe.set(COLLECTOR_METRICS(), metrics, px=METRICS_EXPIRE_MS)
    if damaged_files is None:
        pipe.delete(DAMAGED_FILES())
    else:
        pipe.set(DAMAGED_FILES(), orjson.dumps(list(damaged_files)), px=METRICS_EXPIRE_MS)
    await pipe.execute()


def nodes_of(kept: bytes | str | None) -> list[KnownNode]:
    """The value of NODES; empty if there is none, or one that another release stored."""
    try:
        return msgspec.json.decode(kept, type=list[KnownNode]) if kept else []
    except msgspec.ValidationError:
        return []


def damaged_files_of(kept: bytes | str | None) -> DamagedFiles | None:
    """The value of DAMAGED_FILES; None if there is none."""
    return DamagedFiles(*orjson.loads(kept)) if kept else None


async def store_history(redis: AsyncRedis, records: Sequence[tuple[str, int, bytes]]) -> None:
    """Write each ``(key, offset, record)``, all in one command: there are hundreds per poll."""
    arguments = [part for _, offset, record in records for part in (offset, record)]
    await redis.eval(KEEP_HISTORY, len(records), *(key for key, _, _ in records), HISTORY_EXPIRES_S, *arguments)


def lookupd_in_force(changed: bytes | str | None) -> Sequence[str]:
    """The registries' addresses: those in LOOKUPD, else the declared ones."""
    addresses: Sequence[str] = (json.loads(changed) or ()) if changed else current.lookupd_http_addresses()
    return addresses


async def watches(redis: AsyncRedis) -> tuple[list[Channel], list[View]]:
    """The channels whose clients are watched, and the views other than everything."""
    pipe = redis.pipeline(transaction=False)
    for name in (WATCHED(), VIEWS()):
        pipe.zremrangebyscore(name, "-inf", time.time())
        pipe.zrange(name, 0, -1)
    _, channels, _, views = await pipe.execute()
    return [Channel(*json.loads(member)) for member in channels], [View(*json.loads(member)) for member in views]


async def emptied_channels(redis: AsyncRedis) -> frozenset[Channel]:
    """The channels in EMPTIED."""
    pipe = redis.pipeline(transaction=False)
    pipe.zremrangebyscore(EMPTIED(), "-inf", time.time())
    pipe.zrange(EMPTIED(), 0, -1)
    _, found = await pipe.execute()
    return frozenset(Channel(*json.loads(member)) for member in found)


async def note_emptying(redis: AsyncRedis, channels: Sequence[Channel]) -> None:
    """Put channels that are about to be emptied into EMPTIED."""
    until = time.time() + EMPTIED_EXPIRES_S
    await redis.zadd(EMPTIED(), {json.dumps(channel): until for channel in channels})


async def renew_watches(redis: AsyncRedis, views: Iterable[View], watched: Iterable[Channel]) -> None:
    """Request the deltas of these views and the clients of these channels for the next WATCH_EXPIRES_S seconds."""
    until = time.time() + WATCH_EXPIRES_S
    pipe = redis.pipeline(transaction=False)
    for name, members in ((VIEWS(), views), (WATCHED(), watched)):
        if found := {json.dumps(member): until for member in members}:
            pipe.zadd(name, found)
    await pipe.execute()


async def acquire_collector(redis: AsyncRedis, holder: str) -> bool:
    """Become, or remain, the active collector. Returns False while another one is active."""
    if await redis.set(COLLECTOR(), holder, nx=True, px=COLLECTOR_EXPIRES_MS):
        return True
    if await redis.get(COLLECTOR()) != holder.encode():
        return False
    await redis.pexpire(COLLECTOR(), COLLECTOR_EXPIRES_MS)
    return True


async def release_collector(redis: AsyncRedis, holder: str) -> None:
    if await redis.get(COLLECTOR()) == holder.encode():
        await redis.delete(COLLECTOR())
