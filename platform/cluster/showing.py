"""The newest picture in a web process, read once for all its browsers, and sent to a few of them at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import orjson
from redis.asyncio import Redis

from cluster import store
from cluster.picture import EVERYTHING, Picture, View

SENT_AT_ONCE = 8
"""Whole pictures under way to browsers. Hundreds may come back in one second, when the web process restarts."""
PATIENCE_S = 2.0
"""After so long a browser that is slow to take its picture no longer holds up those that wait for theirs."""
VERSION_BYTES = 64
"""A kept picture begins with its version and its time."""


class Showing:
    """Reads the picture when somebody needs one that is newer than the last that was read."""

    def __init__(self) -> None:
        self._reading = asyncio.Lock()
        self._sending = asyncio.Semaphore(SENT_AT_ONCE)
        self._begins = b""
        self._picture: Picture | None = None
        self._texts: dict[View, str] = {}

    async def show(self, redis: Redis, view: View, send: Callable[[str], Awaitable[None]]) -> int | None:
        """Send the newest picture as far as ``view`` goes, and return its version; None if there is no picture yet."""
        async with self._sending:
            async with self._reading:
                version, text = await self._text(redis, view)
            if text is None:
                return None
            sending = asyncio.ensure_future(send(text))
            await asyncio.wait([sending], timeout=PATIENCE_S)
        await sending
        return version

    async def _text(self, redis: Redis, view: View) -> tuple[int, str | None]:
        begins = await redis.getrange(store.PICTURE, 0, VERSION_BYTES - 1)
        if not begins:
            return 0, None
        if begins != self._begins or self._picture is None:
            kept = cast(bytes, await redis.get(store.PICTURE))
            self._picture = Picture.kept(kept)
            self._begins = kept[:VERSION_BYTES]
            self._texts = {EVERYTHING: kept.decode()}
        text = self._texts.get(view)
        if text is None:
            text = self._texts[view] = orjson.dumps(self._picture.message(view)).decode()
        return self._picture.version, text


showing = Showing()
