"""The newest snapshot, read from Redis once for all browsers of a web process, and sent to a few at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import orjson
from redis.asyncio import Redis

from nsqplatform.cluster import store
from nsqplatform.cluster.snapshots.snapshot import EVERYTHING, Snapshot, View

SENT_AT_ONCE = 8
"""Maximum number of browsers that are sent a whole snapshot concurrently. Hundreds reconnect in one second after the
web process restarts."""
TIMEOUT_S = 2.0
"""A browser that has not taken its snapshot by then no longer delays the others."""
VERSION_BYTES = 64
"""A stored snapshot begins with its version and its time."""


class SnapshotCache:
    """Reads the stored snapshot when a browser needs one and it has changed since it was last read."""

    def __init__(self) -> None:
        self._reading = asyncio.Lock()
        self._sending = asyncio.Semaphore(SENT_AT_ONCE)
        self._begins = b""
        self._snapshot: Snapshot | None = None
        self._texts: dict[View, str] = {}

    async def send(self, redis: Redis, view: View, send: Callable[[str], Awaitable[None]]) -> int | None:
        """Send the part of the newest snapshot in ``view`` and return its version, None if there is no snapshot yet."""
        async with self._sending:
            async with self._reading:
                version, text = await self._text(redis, view)
            if text is None:
                return None
            sending = asyncio.ensure_future(send(text))
            await asyncio.wait([sending], timeout=TIMEOUT_S)
        await sending
        return version

    async def _text(self, redis: Redis, view: View) -> tuple[int, str | None]:
        begins = await redis.getrange(store.SNAPSHOT, 0, VERSION_BYTES - 1)
        if not begins:
            return 0, None
        if begins != self._begins or self._snapshot is None:
            kept = cast(bytes, await redis.get(store.SNAPSHOT))
            self._snapshot = Snapshot.from_json(kept)
            self._begins = kept[:VERSION_BYTES]
            self._texts = {EVERYTHING: kept.decode()}
        text = self._texts.get(view)
        if text is None:
            text = self._texts[view] = orjson.dumps(self._snapshot.message(view)).decode()
        return self._snapshot.version, text


snapshot_cache = SnapshotCache()
