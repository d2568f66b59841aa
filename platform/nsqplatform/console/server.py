"""Daphne with backpressure on websockets.

Daphne writes all messages into the connection's buffer, without limit. Here, ``send`` returns once the buffer has
space again. Meanwhile, messages wait in the browser's queue (cluster.live.subscribers), which has a limit: further
messages are dropped.
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
    """Notified by a transport when its buffer is full and when it has space; see Twisted's IPushProducer."""

    def __init__(self) -> None:
        self._room = asyncio.Event()
        self._room.set()

    def pauseProducing(self) -> None:
        self._room.clear()

    def resumeProducing(self) -> None:
        self._room.set()

    def stopProducing(self) -> None:
        self._room.set()  # the connection is closed: the sender gets an error

    async def released(self) -> None:
        await self._room.wait()


class BrakingServer(Server):
    """Daphne's server, with a Brake for each websocket."""

    async def handle_reply(self, protocol: Any, message: dict[str, Any]) -> None:
        # Daphne applies its limit of received messages to sent ones too, and a snapshot may be larger.
        limit, protocol.maxMessagePayloadSize = getattr(protocol, "maxMessagePayloadSize", 0), 0
        try:
            await super().handle_reply(protocol, message)
        finally:
            protocol.maxMessagePayloadSize = limit
        if message["type"] == "websocket.accept":
            protocol.brake = Brake()
            protocol.unregisterProducer()  # the connection's original HTTP channel
            protocol.registerProducer(protocol.brake, True)
        elif message["type"] == "websocket.send":
            await protocol.brake.released()


class CommandLine(CommandLineInterface):
    """Daphne's command line with BrakingServer."""

    server_class = BrakingServer
