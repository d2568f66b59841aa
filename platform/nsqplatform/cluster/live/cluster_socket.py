"""The websocket ``/ws/cluster``: forwards snapshots and deltas to one browser, and handles its requests."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from django.urls import path
from redis.exceptions import RedisError

from nsqplatform.cluster import metrics, store
from nsqplatform.cluster.live.broadcast import CLUSTER
from nsqplatform.cluster.live.signed_in_socket import SignedInSocket
from nsqplatform.cluster.live.snapshot_cache import snapshot_cache
from nsqplatform.cluster.live.subscribers import Subscription, subscribers
from nsqplatform.cluster.snapshots.snapshot import EVERYTHING, View
from nsqwire.names import is_valid_name

logger = logging.getLogger(__name__)

RECONNECT = 1012
"""Close code for a browser that cannot be served now: it reconnects, and first receives a whole snapshot."""
SNAPSHOT_TYPE, REST_TYPE = '"type":"snapshot"', '"type":"rest"'
"""The type of a message with a whole snapshot: for the browser's view, and for the rest beside its view."""
MAX_ID_LENGTH = 300
"""Maximum length of a node's id, in characters."""


class ClusterSocket(SignedInSocket):
    """One browser. ``version`` is the version of the snapshot it has, 0 for none. The query of its address may name its
    first view, as ``topic`` or ``node``.

    Messages that exceed the queue of a slow browser are dropped. A browser is sent the newest whole snapshot in place
    of a delta that does not start from its version.
    """

    subscription: Subscription | None = None
    version = 0
    is_counted = False
    """Whether it is among the clients that the metrics count."""
    delivering: asyncio.Task[None] | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:  # after an error in a handler, too, when no "websocket.disconnect" comes
            self._leave()

    async def connect(self) -> None:
        # Accepted first: browsers report the code of a close, but not the status of a refused handshake.
        await self.accept()
        if not await self.check_sign_in():
            return
        self.subscription = Subscription()
        self.sending = asyncio.Lock()
        self.is_counted = True
        metrics.websocket_clients.inc()
        try:
            asked = dict(parse_qsl(self.scope["query_string"].decode("latin-1")))
            self.subscription.view = await self._view_of(asked.get("topic"), asked.get("node")) or EVERYTHING
            await subscribers().join(self.subscription, CLUSTER)
            await self._join_view(self.subscription)
        except (RedisError, OSError) as error:
            await self._ask_to_reconnect(error)
            return
        self.delivering = asyncio.create_task(self._deliver(self.subscription))

    async def disconnect(self, code: int) -> None:
        self._leave()

    def _leave(self) -> None:
        """Receive nothing more, and no longer count as a client."""
        if self.subscription is None or not self.is_counted:
            return
        self.is_counted = False
        metrics.websocket_clients.dec()
        subscribers().leave(self.subscription)
        if self.delivering is not None:
            self.delivering.cancel()

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        try:
            message = json.loads(text_data or "")
            kind = message["type"]
        except (ValueError, KeyError, TypeError, RecursionError):
            await self.refuse('expected a JSON text like {"type":"resync"}')
            return
        if self.subscription is None:  # it is being closed
            return
        try:
            await self._do(self.subscription, kind, message)
        except (RedisError, OSError) as error:
            await self._ask_to_reconnect(error)

    async def _do(self, subscription: Subscription, kind: object, message: Mapping[str, object]) -> None:
        if kind == "resync":
            await self._send_snapshot()
        elif kind == "rest":
            await self._send_rest()
        elif kind == "view":
            await self._set_view(subscription, message.get("topic"), message.get("node"))
        elif kind == "watch":
            await self._watch(subscription, message.get("topic"), message.get("channel"))
        elif kind == "unwatch":
            self._unwatch(subscription)
        else:
            await self.refuse(f"unknown type {kind!r}; there are resync, rest, view, watch and unwatch")

    async def _ask_to_reconnect(self, error: Exception) -> None:
        logger.warning("closed a websocket; the browser will reconnect", extra={"error": str(error)})
        await self.close(RECONNECT)

    async def _deliver(self, subscription: Subscription) -> None:
        """Forward the messages of this browser's groups, as fast as it takes them."""
        try:
            while True:
                group, text, base, version = await subscription.next()
                if not await self.is_signed_in():
                    return
                async with self.sending:
                    await self._forward(group, text, base, version)
        except (RedisError, OSError) as error:
            await self._ask_to_reconnect(error)
        except Exception:  # nobody else waits for this task
            logger.exception("cannot send to a browser")
            await self.close(RECONNECT)

    async def _forward(self, group: str, text: str, base: int | None, version: int | None) -> None:
        assert self.subscription is not None
        if base is None or version is None:
            await self._send_text(text)
        elif group != self.subscription.view.group:
            return  # of its previous view
        elif base == self.version:
            self.version = version
            await self._send_text(text)
        elif base > self.version or version < self.version:
            metrics.websocket_resyncs.inc()
            await self._send_newest(self.subscription.view)

    async def _send_text(self, text: str) -> None:
        await subscribers().wait_turn()
        metrics.websocket_sent(text)
        await self.send(text_data=text)

    async def _send_snapshot(self) -> None:
        """Send the newest snapshot. If there is none yet, the first delta contains everything."""
        assert self.subscription is not None
        async with self.sending:  # no delta may overtake it
            await self._send_newest(self.subscription.view)

    async def _send_newest(self, view: View) -> None:
        version = await snapshot_cache().send(subscribers().redis, view, self._send_text)
        if version is not None:
            self.version = version

    async def _send_rest(self) -> None:
        """Send the whole newest snapshot in addition to the browser's view, whose version and deltas continue."""

        async def send(text: str) -> None:
            await self._send_text(text.replace(SNAPSHOT_TYPE, REST_TYPE, 1))

        async with self.sending:
            await snapshot_cache().send(subscribers().redis, EVERYTHING, send)

    async def _view_of(self, topic: object, node: object) -> View | None:
        """The view of one topic, of one node, or of everything. Refuses others, and returns None."""
        is_topic = topic is None or (isinstance(topic, str) and is_valid_name(topic))
        is_node = node is None or (isinstance(node, str) and 0 < len(node) <= MAX_ID_LENGTH and node.isprintable())
        if not (is_topic and is_node and None in (topic, node)):
            await self.refuse("view takes the name of a topic, or the id of a node, or neither")
            return None
        return View(topic, node)  # type: ignore[arg-type]  # checked above

    async def _set_view(self, subscription: Subscription, topic: object, node: object) -> None:
        """Restrict this browser to one topic or one node, or send it everything."""
        view = await self._view_of(topic, node)
        if view is None:
            return
        subscribers().leave(subscription, subscription.view.group)
        subscription.view = view
        await self._join_view(subscription)

    async def _join_view(self, subscription: Subscription) -> None:
        await subscribers().join(subscription, subscription.view.group)
        if subscription.view != EVERYTHING:
            await store.renew_watches(subscribers().redis, [subscription.view], [])
        await self._send_snapshot()

    async def _watch(self, subscription: Subscription, topic: object, channel: object) -> None:
        if not (
            isinstance(topic, str) and isinstance(channel, str) and is_valid_name(topic) and is_valid_name(channel)
        ):
            await self.refuse("watch needs the names of a topic and a channel")
            return
        self._unwatch(subscription)
        subscription.watching = store.Channel(topic, channel)
        await subscribers().join(subscription, subscription.watching.group)
        await store.renew_watches(subscribers().redis, [], [subscription.watching])

    def _unwatch(self, subscription: Subscription) -> None:
        if subscription.watching is not None:
            subscribers().leave(subscription, subscription.watching.group)
            subscription.watching = None


websocket_urls = [path("ws/cluster", ClusterSocket.as_asgi())]
