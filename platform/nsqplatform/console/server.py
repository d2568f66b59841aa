"""Daphne, with a brake: a websocket whose browser does not keep up makes its sender wait.

Daphne alone writes whatever it is given into the connection's buffer, without bound. With the brake, ``send`` returns
once the buffer has room again; meanwhile messages wait in the browser's queue
(cluster.live.subscribers), which is bounded: further messages are dropped.
"""

from __future__ import annotations

import asyncio
from typing import Any

from daphne.cli import CommandLineInterface
from daphne.server import Server
from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer


@implementer(IPushProducer)
class Brake:
    """Hears from a transport when its buffer is full and when it has room; see Twisted's IPushProducer."""

    def __init__(self) -> None:
        self._room = asyncio.Event()
        self._room.set()

    def pauseProducing(self) -> None:
        self._room.clear()

    def resumeProducing(self) -> None:
        self._room.set()

    def stopProducing(self) -> None:
        self._room.set()  # the connection is gone: let the sender find out

    async def released(self) -> None:
        await self._room.wait()


class BrakingServer(Server):
    async def handle_reply(self, protocol: Any, message: dict[str, Any]) -> None:
        # Daphne's limit on what a browser may send is one on what it may be sent as well, and a snapshot may be larger.
        limit, protocol.maxMessagePayloadSize = getattr(protocol, "maxMessagePayloadSize", 0), 0
        try:
            await super().handle_reply(protocol, message)
        finally:
            protocol.maxMessagePayloadSize = limit
        if message["type"] == "websocket.accept":
            protocol.brake = Brake()
            protocol.unregisterProducer()  # the HTTP channel that the connection began as
            protocol.registerProducer(protocol.brake, True)
        elif message["type"] == "websocket.send":
            await protocol.brake.released()


class CommandLine(CommandLineInterface):
    """Daphne's command line, on our server."""

    server_class = BrakingServer
