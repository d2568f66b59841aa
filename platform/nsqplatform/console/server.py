"""Daphne with backpressure and bounded bodies. A failed response closes its connection, and a shutdown cancels running
requests.

Daphne writes all messages into the connection's buffer, without limit. Here, ``send`` returns once the buffer has
space again. Meanwhile, a streamed response reads no further, and a websocket's messages wait in the browser's queue
(cluster.live.subscribers), which has a limit: further messages are dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from daphne.cli import CommandLineInterface
from daphne.http_protocol import WebRequest
from daphne.server import Server
from django.conf import settings
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IPushProducer
from twisted.internet.tcp import Connection
from zope.interface import implementer

SEND_LIMIT = 2**20
"""Maximum number of bytes that are given to the kernel at once. With Twisted's 128 KiB, the event loop would run ten
times for one snapshot or one ``/api/counter`` of a large cluster. Without a limit, a slow client would cost much: at
each write, Twisted copies what is left of a buffer below the limit."""

logger = logging.getLogger(__name__)


@implementer(IPushProducer)
class Backpressure:
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


def register_backpressure(protocol: Any) -> None:
    """Have the connection's transport notify a new Backpressure, ``protocol.backpressure``."""
    protocol.backpressure = Backpressure()
    protocol.registerProducer(protocol.backpressure, True)


def bound_body(request: WebRequest) -> None:
    """Keep one byte more than DATA_UPLOAD_MAX_MEMORY_SIZE of the request's body, and drop the rest as it arrives.

    A longer body is refused once it has arrived. Until then, Twisted would write all of it to a file.
    """
    keep = request.handleContentChunk
    limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    received = 0

    def handle(data: bytes) -> None:
        nonlocal received
        room = limit + 1 - received
        received += len(data)
        if room > 0:
            keep(data[:room])
        if received > limit:  # a request in chunks has not announced it
            request.requestHeaders.setRawHeaders(b"Content-Length", [b"%d" % received])

    request.handleContentChunk = handle


class BackpressureServer(Server):
    """Daphne's server, with a Backpressure for each websocket and each streamed response. At shutdown it cancels
    every task of the event loop."""

    def create_application(self, protocol: Any, scope: dict[str, object]) -> asyncio.Queue[dict[str, object]] | None:
        queue: asyncio.Queue[dict[str, object]] | None = super().create_application(protocol, scope)
        if queue is not None and scope["type"] == "http":
            details = self.connections[protocol]
            details["application_instance"] = asyncio.ensure_future(
                closed_at_failure(protocol, details["application_instance"])
            )
        return queue

    def protocol_connected(self, protocol: Any) -> None:
        """Leave forms to Django. Twisted would parse them too, and answer those that it cannot parse without a body."""
        super().protocol_connected(protocol)
        protocol._parsePOSTFormSubmission = False
        if isinstance(protocol, WebRequest):
            bound_body(protocol)

    def protocol_disconnected(self, protocol: Any) -> None:
        """Undo bound_body, whose function refers to the request: only the garbage collector would free it."""
        super().protocol_disconnected(protocol)
        vars(protocol).pop("handleContentChunk", None)

    async def handle_reply(self, protocol: Any, message: Mapping[str, object]) -> None:
        kind, is_last = message["type"], not message.get("more_body")
        if kind == "http.response.start":
            protocol.is_answered = True
        elif (
            kind == "http.response.body"
            and is_last
            and hasattr(protocol, "backpressure")
            and protocol.channel is not None
        ):
            protocol.unregisterProducer()
        # Daphne applies its limit of received messages to sent ones too, and a snapshot may be larger.
        limit, protocol.maxMessagePayloadSize = getattr(protocol, "maxMessagePayloadSize", 0), 0
        try:
            await super().handle_reply(protocol, message)
        finally:
            protocol.maxMessagePayloadSize = limit
        if kind == "websocket.accept":
            protocol.unregisterProducer()  # the connection's original HTTP channel
            register_backpressure(protocol)
        elif kind == "websocket.send":
            await protocol.backpressure.released()
        elif kind == "http.response.body" and not is_last and protocol.channel is not None:
            if not hasattr(protocol, "backpressure"):
                register_backpressure(protocol)
            await protocol.backpressure.released()

    def kill_all_applications(self) -> Deferred[None]:
        """Cancel every task and wait for all of them; replaces Daphne's, which cancels one task per connection.

        Django runs a request in tasks of its own, which do not end with the task of the connection. A thread waits for
        such a request, and Python waits for the thread before it exits.
        """
        return Deferred.fromFuture(asyncio.ensure_future(cancel_other_tasks()))


async def closed_at_failure(protocol: Any, application: asyncio.Future[None]) -> None:
    """Wait for a request's application. If it fails in the middle of a response, close the connection, by which the
    client knows that the response is not complete.

    Daphne would begin an error page, which fails, and from then on forget no connection of this process.
    """
    try:
        await application
    except Exception:
        if not hasattr(protocol, "is_answered"):
            raise
        logger.exception("a response has ended early")
        protocol.loseConnection()


async def cancel_other_tasks() -> None:
    """Cancel all tasks of the event loop but this one, also those that start meanwhile, and wait until they end."""
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in others:
            task.cancel()
        await asyncio.wait(others)


class CommandLine(CommandLineInterface):
    """Daphne's command line with BackpressureServer."""

    server_class = BackpressureServer

    def run(self, args: list[str]) -> None:
        Connection.SEND_LIMIT = SEND_LIMIT
        super().run(args)
