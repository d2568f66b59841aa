"""The newest snapshot, read from Redis once for all browsers of a web process, and sent to a few at a time."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import cast

import orjson
from redis.asyncio import Redis

from nsqplatform.cluster import store
from nsqplatform.cluster.snapshots.snapshot import EVERYTHING, Snapshot, View
from nsqplatform.clusters.current import PerCluster

SENT_AT_ONCE = 8
"""Maximum number of browsers that are sent a whole snapshot concurrently. Hundreds reconnect in one second after the
web process restarts."""
TIMEOUT_S = 2.0
"""A browser that has not received its snapshot within this time no longer delays the others."""
VERSION = re.compile(rb'"version":(\d+),"taken_at":\d+')


class SnapshotCache:
    """Reads the stored snapshot when a browser needs one and it has changed since it was last read.

    Browsers whose view is everything are sent the stored text; it is parsed when a browser needs only a part of it.
    """

    def __init__(self) -> None:
        self._reading = asyncio.Lock()
        self._sending = asyncio.Semaphore(SENT_AT_ONCE)
        self._head = b""
        self._version = 0
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
        head = await redis.getrange(store.SNAPSHOT(), 0, store.SNAPSHOT_HEAD_BYTES - 1)
        if not head:
            return 0, None
        if head != self._head:
            kept = cast(bytes, await redis.get(store.SNAPSHOT()))
            self._head, self._version = kept[: store.SNAPSHOT_HEAD_BYTES], version_of(kept)
            self._texts, self._snapshot = {EVERYTHING: kept.decode()}, None
        text = self._texts.get(view)
        if text is None:
            if self._snapshot is None:
                self._snapshot = Snapshot.from_json(self._texts[EVERYTHING])
            text = self._texts[view] = orjson.dumps(self._snapshot.message(view)).decode()
        return self._version, text


def version_of(stored: bytes) -> int:
    """The version of a stored snapshot, without parsing all of it if it begins as the collector writes it."""
    found = VERSION.search(stored, 0, store.SNAPSHOT_HEAD_BYTES)
    return int(found[1] if found else orjson.loads(stored)["version"])


snapshot_cache = PerCluster(SnapshotCache)
