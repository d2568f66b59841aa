"""The websocket ``/ws/cluster``: what one browser is told, and what it may ask for. It computes nothing."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

from django.urls import path
from redis.exceptions import RedisError

from cluster import metrics, store
from cluster.audience import Seat, audience
from cluster.live import CLUSTER
from cluster.picture import EVERYTHING, View
from cluster.showing import showing
from cluster.sockets import SignedInSocket
from nsqwire.names import is_valid_name

logger = logging.getLogger(__name__)

COME_AGAIN = 1012
"""Close code for a browser that can be told nothing more: it reconnects, and begins with a whole picture."""
LONGEST_NAME = 300
"""Of a topic or of a node's id, in characters."""


class ClusterConsumer(SignedInSocket):
    """One browser. ``version`` is that of the picture it holds, 0 for none; its seat says how much of it.

    A delta that does not start from it (what a browser is too slow to take is dropped) is answered by the newest
    whole picture instead: however far a browser falls behind, what waits for it is bounded.
    """

    seat: Seat | None = None
    version = 0
    delivering: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        # Accepted first: a browser is told the code of a close, but not the status of a refused handshake.
        await self.accept()
        if not await self.still_signed_in():
            return
        self.seat = Seat()
        self.showing = asyncio.Lock()
        metrics.websocket_clients.inc()
        try:
            await audience.join(self.seat, CLUSTER, EVERYTHING.group)
            await self._show()
        except (RedisError, OSError) as error:
            await self._send_away(error)
            return
        self.delivering = asyncio.create_task(self._deliver(self.seat))

    async def disconnect(self, code: int) -> None:
        if self.seat is None:
            return
        metrics.websocket_clients.dec()
        audience.leave(self.seat)
        if self.delivering is not None:
            self.delivering.cancel()

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        try:
            message = json.loads(text_data or "")
            kind = message["type"]
        except (ValueError, KeyError, TypeError):
            await self.refuse('expected a JSON text like {"type":"resync"}')
            return
        if self.seat is None:  # it is being closed
            return
        try:
            await self._do(self.seat, kind, message)
        except (RedisError, OSError) as error:
            await self._send_away(error)

    async def _do(self, seat: Seat, kind: object, message: dict[str, Any]) -> None:
        if kind == "resync":
            await self._show()
        elif kind == "view":
            await self._look(seat, message.get("topic"), message.get("node"))
        elif kind == "watch":
            await self._watch(seat, message.get("topic"), message.get("channel"))
        elif kind == "unwatch":
            self._unwatch(seat)
        else:
            await self.refuse(f"unknown type {kind!r}; there are resync, view, watch and unwatch")

    async def _send_away(self, error: Exception) -> None:
        logger.warning("a browser is sent away to come again", extra={"error": str(error)})
        await self.close(COME_AGAIN)

    async def _deliver(self, seat: Seat) -> None:
        """Pass on what this browser's groups are told, as fast as it takes it."""
        try:
            while True:
                group, text, base, version = await seat.next()
                if not await self.signed_in_lately():
                    return
                async with self.showing:
                    await self._take(group, text, base, version)
        except (RedisError, OSError) as error:
            await self._send_away(error)
        except Exception:  # nobody else waits for this task
            logger.exception("a browser could not be told")
            await self.close(COME_AGAIN)

    async def _take(self, group: str, text: str, base: int | None, version: int | None) -> None:
        assert self.seat is not None
        if base is None or version is None:
            await self._pass_on(text)
        elif group != self.seat.view.group:
            return  # of what it looked at before
        elif base == self.version:
            self.version = version
            await self._pass_on(text)
        elif base > self.version or version < self.version:
            metrics.websocket_resyncs.inc()
            await self._show_now(self.seat.view)

    async def _pass_on(self, text: str) -> None:
        await audience.turn()
        metrics.websocket_sent(text)
        await self.send(text_data=text)

    async def _show(self) -> None:
        """Send the newest picture. Before the collector's first there is none; it comes as that one's delta."""
        assert self.seat is not None
        async with self.showing:  # no delta may overtake it
            await self._show_now(self.seat.view)

    async def _show_now(self, view: View) -> None:
        version = await showing.show(audience.redis, view, self._pass_on)
        if version is not None:
            self.version = version

    async def _look(self, seat: Seat, topic: object, node: object) -> None:
        """Tell this browser of one topic, or of one node, or of everything from now on."""
        named = [name for name in (topic, node) if name is not None]
        if len(named) > 1 or not all(isinstance(name, str) and 0 < len(name) <= LONGEST_NAME for name in named):
            await self.refuse("view takes the name of a topic, or the id of a node, or neither")
            return
        audience.leave(seat, seat.view.group)
        seat.view = View(topic, node)  # type: ignore[arg-type]  # checked above
        await audience.join(seat, seat.view.group)
        if seat.view != EVERYTHING:
            await store.keep_looking(audience.redis, [seat.view], [])
        await self._show()

    async def _watch(self, seat: Seat, topic: object, channel: object) -> None:
        if not (
            isinstance(topic, str) and isinstance(channel, str) and is_valid_name(topic) and is_valid_name(channel)
        ):
            await self.refuse("watch needs the names of a topic and a channel")
            return
        self._unwatch(seat)
        seat.watching = store.Channel(topic, channel)
        await audience.join(seat, seat.watching.group)
        await store.keep_looking(audience.redis, [], [seat.watching])

    def _unwatch(self, seat: Seat) -> None:
        if seat.watching is not None:
            audience.leave(seat, seat.watching.group)
            seat.watching = None


websocket_urls = [path("ws/cluster", ClusterConsumer.as_asgi())]
