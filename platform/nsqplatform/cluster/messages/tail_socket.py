"""The websocket ``/ws/tail``, which connects one browser to the tail of one topic."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any, Literal

from channels.db import database_sync_to_async
from django.core.exceptions import PermissionDenied
from django.urls import path
from redis.exceptions import RedisError
from typing_extensions import TypedDict

from aionsq import ClientError
from nsqcluster import ClusterUnreachable, NotInCluster
from nsqplatform.accounts import audit
from nsqplatform.accounts.forwarded import client_of_scope
from nsqplatform.accounts.models import User
from nsqplatform.accounts.rights import require
from nsqplatform.accounts.roles import Permission
from nsqplatform.cluster.live.signed_in_socket import SignedInSocket
from nsqplatform.cluster.messages import masks
from nsqplatform.cluster.messages.tail import (
    INTERVAL_S,
    NodeWithoutChannel,
    Tail,
    TailedMessage,
    Viewer,
    nodes_without_channel,
    tails,
)
from nsqplatform.redis_errors import redis_failure
from nsqwire.names import is_valid_name

SEND_INTERVAL_S = 1.0
"""Interval of status messages to the browser, even without new messages."""
MAX_FILTER_LENGTH = 200
MASKS_READ_EVERY_S = 4.0
"""Interval at which masks are read again: a new mask applies to open tails within about this time."""


class TailStarted(TypedDict):
    """The tail has begun to consume."""

    type: Literal["started"]
    topic: str
    channel: str


class TailAsk(TypedDict):
    """The tail would be the topic's first channel on these nodes, and would receive the waiting messages."""

    type: Literal["ask"]
    topic: str
    nodes: list[NodeWithoutChannel]


class TailedMessages(TypedDict):
    """The messages received since the last such message. ``nodes`` is the number of nodes that the tail is connected
    to."""

    type: Literal["messages"]
    messages: list[TailedMessage]
    skipped: int
    nodes: int


class TailSocket(SignedInSocket):
    """One browser. ``tail`` is None before the browser starts one and after it stops it."""

    tail: Tail | None = None
    sender: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        await self.accept()
        self.viewer = Viewer()
        await self.check_sign_in()

    async def disconnect(self, code: int) -> None:
        await self._stop()

    def may_stay(self, user: User) -> bool:
        return user.may(Permission.READ, self.tail.topic) if self.tail else super().may_stay(user)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        try:
            message = json.loads(text_data or "")
            kind = message["type"]
        except (ValueError, KeyError, TypeError, RecursionError):
            await self.refuse('expected a JSON text like {"type":"start","topic":"orders"}')
            return
        if kind == "start":
            await self._start(message)
        elif kind == "stop":
            await self._stop()
        elif kind in ("pause", "resume"):
            self.viewer.paused = kind == "pause"
        elif kind == "filter":
            self._filter(message.get("text"))
        else:
            await self.refuse(f"unknown type {kind!r}; there are start, stop, pause, resume and filter")

    async def _start(self, message: dict[str, Any]) -> None:
        topic = message.get("topic")
        if not (isinstance(topic, str) and is_valid_name(topic)):
            await self.refuse("start needs the name of a topic")
            return
        await self._stop()
        takes_backlog = message.get("take_backlog") is True
        try:
            user = await self.user()
            if user is None:
                raise PermissionDenied("sign in first")
            hidden = await database_sync_to_async(masks.hidden_paths)(user, topic)
            first = [] if tails().is_tailed(topic) else await nodes_without_channel(topic)
            if first and not takes_backlog:
                await self._send({"type": "ask", "topic": topic, "nodes": first})
                return
            if first:  # the waiting messages would be missing from the channel that a consumer creates later
                await database_sync_to_async(require)(user, Permission.ACT, topic=topic)
            self.viewer = Viewer(hidden=hidden)
            self._filter(message.get("filter"))
            self.tail = await tails().join(topic, self.viewer)
            self.sign_in_check_due = 0.0  # a check in the meantime did not include this topic
        except PermissionDenied as error:
            await self._refuse_and_audit(topic, str(error))
            return
        except (NotInCluster, ClusterUnreachable, ClientError) as error:
            await self.refuse(str(error))
            return
        except RedisError as error:
            await self.refuse(redis_failure(error))
            return
        await self._send({"type": "started", "topic": topic, "channel": self.tail.channel})
        self.sender = asyncio.create_task(self._send_messages(self.tail))

    async def _refuse_and_audit(self, topic: str, detail: str) -> None:
        await database_sync_to_async(audit.refused)(
            user=await self.user(),
            action="tail",
            topic=topic,
            subject=f"websocket {self.scope['path']}",
            detail=detail,
            remote_address=client_of_scope(self.scope),
        )
        await self.refuse(detail)

    def _filter(self, text: object) -> None:
        self.viewer.words = tuple(text[:MAX_FILTER_LENGTH].lower().split()) if isinstance(text, str) else ()

    async def _stop(self) -> None:
        if self.sender is not None:
            self.sender.cancel()
            self.sender = None
        if self.tail is not None:
            tail, self.tail = self.tail, None
            await tails().leave(tail, self.viewer)

    async def _send_messages(self, tail: Tail) -> None:
        """Send waiting messages repeatedly. A slow browser gets longer intervals and more skipped messages."""
        sent_at = 0.0
        masks_read_at = time.monotonic()
        while await self.is_signed_in():
            if time.monotonic() - masks_read_at > MASKS_READ_EVERY_S:
                masks_read_at = time.monotonic()
                if not await self._masks_read(tail.topic):
                    return
            messages, skipped = self.viewer.take()
            if messages or skipped or time.monotonic() - sent_at > SEND_INTERVAL_S:
                sent_at = time.monotonic()
                await self._send(
                    {"type": "messages", "messages": messages, "skipped": skipped, "nodes": tail.connections}
                )
            await asyncio.sleep(INTERVAL_S)

    async def _masks_read(self, topic: str) -> bool:
        """Apply the topic's masks as they are now. Returns whether the user may still read it."""
        user = await self.user()
        if user is None:
            return False
        try:
            hidden = await database_sync_to_async(masks.hidden_paths)(user, topic)
        except PermissionDenied as error:
            await self.refuse(str(error))
            return False
        if hidden != self.viewer.hidden:
            self.viewer.hidden = hidden
            self.viewer.waiting.clear()
        return True

    async def _send(self, message: TailStarted | TailAsk | TailedMessages) -> None:
        await self.send(text_data=json.dumps(message, separators=(",", ":")))


tail_urls = [path("ws/tail", TailSocket.as_asgi())]
