"""Answers ``/api/topics`` and ``/api/counter`` from the collector's snapshot, if a query would give the same result.

The condition is that the snapshot is recent and complete, and no action was performed in the last few seconds.
Otherwise the methods return None, and the caller queries the cluster.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from contextlib import suppress
from dataclasses import dataclass

import orjson
from redis.asyncio import Redis
from redis.exceptions import RedisError

from nsqdaemon.http import Response, json_response
from nsqdaemon.http.messages import JSON_HEADER, NSQ_HEADER
from nsqplatform.cluster import store
from nsqplatform.cluster.snapshots.rows import Columns
from nsqplatform.cluster.snapshots.table import SHARES
from nsqplatform.clusters import current
from nsqplatform.nsqadmin.reads import count_shape, sorted_by_key
from nsqwire.gojson import encode_without_floats

FRESH_MS = 2_000
"""Two polls, because a snapshot's time is the beginning of its poll."""
CHECK_INTERVAL_S = 0.2

Text = bytes | str | None


@dataclass(frozen=True, kw_only=True)
class State:
    """The snapshot's state, which is known without reading the snapshot."""

    version: int
    taken_at: int
    topics: str
    """Digest of the topics' names."""
    all_up: bool
    is_complete: bool
    """Whether all registries answered, all nodes have answered at least once, and the snapshot includes all actions."""
    by_registries: bool
    """Whether registries are configured (mode L)."""


class SnapshotAnswers:
    """The answers of one version, created on first use."""

    def __init__(self) -> None:
        self._state: State | None = None
        self._checked_at = -math.inf
        self._action_count = 0
        self._checking = asyncio.Lock()
        self._redis: Redis | None = None
        self._topics_of: str | None = None
        self._topics: Response | None = None
        self._counter_of: int | None = None
        self._counter: Response | None = None

    def acted(self) -> None:
        """Read the state again for the next answer, because this process has performed an action."""
        self._checked_at = -math.inf
        self._action_count += 1

    async def topics(self) -> Response | None:
        """The answer of ``/api/topics``; None also if a server to query is down (without registries: a node)."""
        state = await self._current()
        if state is None or not (state.by_registries or state.all_up):
            return None
        if self._topics_of != state.topics:
            kept = await self._get(store.TOPICS())
            if kept is None:
                return None
            self._topics = json_response({"topics": json.loads(kept) or None, "message": ""})
            self._topics_of = state.topics
        return self._topics

    async def counter(self) -> Response | None:
        """The answer of ``/api/counter``; None also if a node is down."""
        state = await self._current()
        if state is None or not state.all_up:
            return None
        if self._counter_of != state.version:
            kept = await self._get(store.SNAPSHOT())
            if kept is None:
                return None
            self._counter = counter_answer(orjson.loads(kept)["channels"])
            self._counter_of = state.version
        return self._counter

    async def _current(self) -> State | None:
        """The state of the newest snapshot, if it is complete and fresh."""
        if time.monotonic() - self._checked_at >= CHECK_INTERVAL_S:
            async with self._checking:  # one request reads it, and concurrent ones wait for the result
                if time.monotonic() - self._checked_at >= CHECK_INTERVAL_S:
                    action_count = self._action_count
                    try:
                        self._state = state_of(*await self._mget(store.STATE(), store.CHANGED(), store.LOOKUPD()))
                    except (RedisError, OSError, ValueError, KeyError, TypeError):
                        self._state = None  # the cluster is queried then
                    if action_count == self._action_count:  # none was performed meanwhile
                        self._checked_at = time.monotonic()
        state = self._state
        is_usable = state is not None and state.is_complete and time.time() * 1000 - state.taken_at <= FRESH_MS
        return state if is_usable else None

    async def _get(self, key: str) -> Text:
        with suppress(RedisError, OSError):
            [kept] = await self._mget(key)
            return kept
        return None

    async def _mget(self, *keys: str) -> list[Text]:
        if self._redis is None:
            self._redis = store.connect_async()
        return await self._redis.mget(*keys)


def state_of(kept: Text, changed: Text, lookupd: Text) -> State | None:
    if kept is None:
        return None
    stored = json.loads(kept)
    in_force = store.lookupd_in_force(lookupd)
    answered = [address for address, error in stored["registries"].items() if error is None]
    asked_all = sorted(answered) == sorted(in_force) and bool(in_force or current.nsqd_http_addresses())
    return State(
        version=stored["version"],
        taken_at=stored["taken_at"],
        topics=stored["topics"],
        all_up=stored["all_up"],
        is_complete=changed is None and asked_all and stored["has_all"],
        by_registries=bool(in_force),
    )


def counter_answer(channels: Columns) -> Response:
    """``channels``: the snapshot's channels."""
    count = SHARES["channels"].index("message_count")
    columns = zip(*(channels.get(name, ()) for name in ("topic", "name", "nodes")), strict=True)
    stats = {
        f"{topic}:{name}:{share[0]}": count_shape(share[0], topic, name, share[count])
        for topic, name, shares in columns
        for share in shares
    }
    # The fast encoder, because this is large and contains no floats.
    return Response(
        200, encode_without_floats({"stats": sorted_by_key(stats), "message": ""}), (JSON_HEADER, NSQ_HEADER)
    )
