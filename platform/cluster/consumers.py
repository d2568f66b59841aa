"""The websocket ``/ws/cluster``: what one browser is told, and what it may ask for. It computes nothing."""

from __future__ import annotations

import json
import time
from typing import Any

from channels.auth import get_user
from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.contrib.sessions.backends.db import SessionStore
from django.urls import path
from redis.asyncio import Redis

from accounts.models import User
from accounts.roles import Permission
from accounts.services import user_of_token
from cluster import store
from cluster.live import CLUSTER
from nsqwire.names import is_valid_name

SIGN_IN_FIRST = 4401
"""Close code for a stranger; in the range that websockets leave to applications."""
WATCH_RENEWED_EVERY_S = 5.0
SIGN_IN_CHECKED_EVERY_S = 30.0


class ClusterConsumer(AsyncWebsocketConsumer):
    """One browser. ``version`` is that of the picture it holds, 0 for none.

    A delta that does not start from it (the channel layer drops what a browser is too slow to take) is answered by
    the newest whole picture instead: however far a browser falls behind, what waits for it is bounded.
    """

    redis: Redis
    version = 0
    watching: store.Channel | None = None
    watch_renewed_at = 0.0
    sign_in_checked_at = 0.0

    async def connect(self) -> None:
        # Accepted first: a browser is told the code of a close, but not the status of a refused handshake.
        await self.accept()
        if not await self._still_signed_in():
            return
        self.redis = store.connect_async()
        await self.channel_layer.group_add(CLUSTER, self.channel_name)
        await self._send_snapshot()

    async def disconnect(self, code: int) -> None:
        if not hasattr(self, "redis"):
            return
        await self.channel_layer.group_discard(CLUSTER, self.channel_name)
        await self._unwatch()
        await self.redis.aclose()

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        try:
            message = json.loads(text_data or "")
            kind = message["type"]
        except (ValueError, KeyError, TypeError):
            await self._refuse('expected a JSON text like {"type":"resync"}')
            return
        if kind == "resync":
            await self._send_snapshot()
        elif kind == "watch":
            await self._watch(message.get("topic"), message.get("channel"))
        elif kind == "unwatch":
            await self._unwatch()
        else:
            await self._refuse(f"unknown type {kind!r}; there are resync, watch and unwatch")

    async def broadcast(self, event: dict[str, Any]) -> None:
        """Pass on what cluster.live sent to a group this browser is in."""
        if time.monotonic() - self.sign_in_checked_at > SIGN_IN_CHECKED_EVERY_S and not await self._still_signed_in():
            return
        if "base" not in event:
            await self.send(text_data=event["text"])
        elif event["base"] == self.version:
            self.version = event["version"]
            await self.send(text_data=event["text"])
        elif event["base"] > self.version or event["version"] < self.version:
            await self._send_snapshot()
        if self.watching and time.monotonic() - self.watch_renewed_at > WATCH_RENEWED_EVERY_S:
            await self._renew_watch(self.watching)

    async def _still_signed_in(self) -> bool:
        """Look again whether this is somebody who may look; close the socket if not."""
        self.sign_in_checked_at = time.monotonic()
        user = await self._user()
        if user is not None and user.may(Permission.VIEW):
            return True
        await self.close(SIGN_IN_FIRST)
        return False

    async def _user(self) -> User | None:
        """The session's account, as the database has both now, else that of a script's bearer token."""
        user = await get_user({"session": SessionStore(self.scope["session"].session_key)})
        if isinstance(user, User):
            return user
        scheme, _, token = dict(self.scope["headers"]).get(b"authorization", b"").decode("latin-1").partition(" ")
        return await database_sync_to_async(user_of_token)(token) if scheme.lower() == "bearer" else None

    async def _send_snapshot(self) -> None:
        """Send the newest picture. Before the collector's first there is none; it comes as that one's delta."""
        kept = await self.redis.get(store.SNAPSHOT)
        if kept is not None:
            snapshot = json.loads(kept)
            self.version = snapshot["version"]
            await self.send(text_data=json.dumps({"type": "snapshot", **snapshot}, separators=(",", ":")))

    async def _watch(self, topic: object, channel: object) -> None:
        if not (
            isinstance(topic, str) and isinstance(channel, str) and is_valid_name(topic) and is_valid_name(channel)
        ):
            await self._refuse("watch needs the names of a topic and a channel")
            return
        await self._unwatch()
        self.watching = store.Channel(topic, channel)
        await self.channel_layer.group_add(self.watching.group, self.channel_name)
        await self._renew_watch(self.watching)

    async def _renew_watch(self, channel: store.Channel) -> None:
        self.watch_renewed_at = time.monotonic()
        await store.watch(self.redis, channel)

    async def _unwatch(self) -> None:
        if self.watching is not None:
            await self.channel_layer.group_discard(self.watching.group, self.channel_name)
            self.watching = None

    async def _refuse(self, message: str) -> None:
        await self.send(text_data=json.dumps({"type": "error", "message": message}))


websocket_urls = [path("ws/cluster", ClusterConsumer.as_asgi())]
