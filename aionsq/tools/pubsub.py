"""``nsq pubsub``: an HTTP server whose clients receive the messages of a channel as an endless stream of lines.

NSQ's nsq_pubsub (until 1.0), with its flags and responses. Differences: a message that a client did not receive is
requeued; ``/stats`` keeps working after clients have disconnected; unreachable nsqds are retried.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, cast

from aionsq.consumer import Consumer
from aionsq.errors import ConnectFailed
from aionsq.message import Message
from aionsq.options import ConsumerOptions
from aionsq.tools.flags import ConsumerFlags, Sources, ToolFailed, WrongUsage, consumer_options, sources
from aionsq.tools.process import Run, Tool
from aionsq.tools.progress import progress
from nsqdaemon.http import HTTPError, HTTPServer, Request, Response, Stream, refusal, text_response
from nsqdaemon.http.messages import TEXT_HEADER
from nsqdaemon.listener import ListenFailed, listen_tcp
from nsqdaemon.settings import setting
from nsqwire.addresses import address_text
from nsqwire.durations import format_duration
from nsqwire.names import is_valid_name
from nsqwire.units import Seconds

log = logging.getLogger(__name__)

NAME = "nsq_pubsub"

HEARTBEAT_SECONDS: Final = 30.0
RETRY_SECONDS: Final = 1.0
GRACE: Final = timedelta(seconds=5)


@dataclass(frozen=True, kw_only=True)
class PubSubFlags(ConsumerFlags):
    """Flags of nsq_pubsub."""

    http_address: str = setting("0.0.0.0:8080", "Address to listen on for HTTP clients, host:port.")
    max_in_flight: int = setting(100, "Most messages in flight per client.")


class Subscriber(asyncio.Protocol):
    """The connection of one client after its request. It sends the messages of a channel, one per line."""

    def __init__(self, topic: str, channel: str, server: PubSub) -> None:
        self.topic = topic
        self.channel = channel
        self.address = "@"
        self.connected_at: Seconds = time.monotonic()
        self._server = server
        self._left = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._serving: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport

    # --- called by asyncio ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=0)  # so that resume_writing is called when everything was sent
        self.address = address_text(transport.get_extra_info("peername"))
        self._serving = asyncio.create_task(self._serve())

    def data_received(self, data: bytes) -> None:
        self.leave()  # a client that sends something has stopped reading the stream

    def eof_received(self) -> bool:
        self.leave()
        return True

    def connection_lost(self, error: Exception | None) -> None:
        self.leave()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # --- called by the server ---

    def leave(self) -> None:
        """Stop the delivery of messages, and close the connection."""
        self._left.set()
        self._writable.set()

    async def closed(self) -> None:
        """Wait until the client's consumer has stopped."""
        if self._serving is not None:
            await asyncio.gather(self._serving, return_exceptions=True)

    # --- inside ---

    async def _serve(self) -> None:
        self._server.subscribers.add(self)
        leaving = asyncio.create_task(self._left.wait())
        try:
            while not self._left.is_set():
                consumer = self._server.consumer(self.topic, self.channel)
                try:
                    async with consumer:
                        log.info("[%s] subscribed to [%s : %s]", self.address, self.topic, self.channel)
                        running = [
                            asyncio.create_task(each) for each in (self._deliver(consumer), self._send_heartbeats())
                        ]
                        await leaving
                        consumer.begin_stop(GRACE)
                    for task in running:
                        task.cancel()
                    await asyncio.gather(*running, return_exceptions=True)
                except ConnectFailed as error:
                    log.warning("[%s] %s; retrying", self.address, error)
                    await asyncio.wait((leaving,), timeout=RETRY_SECONDS)
        finally:
            leaving.cancel()
            self._server.subscribers.discard(self)
            if self._transport.get_write_buffer_size():
                self._transport.abort()  # the client does not read, so that close() would wait for ever
            else:
                self._transport.close()
            log.info("[%s] left [%s : %s]", self.address, self.topic, self.channel)

    async def _deliver(self, consumer: Consumer) -> None:
        while (message := await consumer.next_message()) is not None:
            await self._deliver_one(message)

    async def _deliver_one(self, message: Message) -> None:
        """Finish a message once it was written to the client's socket; otherwise requeue it."""
        self._transport.write(message.body + b"\n")
        await asyncio.sleep(0)  # the event loop writes at the end of its iteration
        await self._writable.wait()
        if self._left.is_set():
            message.requeue(timedelta(0), backoff=False)
        else:
            message.finish()
            self._server.delivered += 1

    async def _send_heartbeats(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            if self._writable.is_set():  # send no heartbeats to a client that does not read
                self._transport.write(b'{"_heartbeat_":%d}\n' % time.time())


class PubSub:
    """State shared by the requests of all clients."""

    def __init__(self, where: Sources, options: ConsumerOptions) -> None:
        self.subscribers: set[Subscriber] = set()
        self.delivered = 0
        """Number of messages delivered to clients."""
        self._where = where
        self._options = options

    def consumer(self, topic: str, channel: str) -> Consumer:
        """A consumer for one client."""
        return self._where.consumer(topic, channel, self._options)

    def answer(self, request: Request) -> Response:
        """Answer one request; never raises."""
        try:
            if request.path == b"/sub":
                return self._sub(request)
            if request.path == b"/stats":
                return text_response(self._stats(), nsq=False)
        except HTTPError as error:
            return refusal(request, error)
        return text_response("404 page not found\n", 404, nsq=False)

    def _sub(self, request: Request) -> Response:
        names = {}
        for kind in ("topic", "channel"):
            name = request.params.get(kind)
            if name is None:
                return text_response(f"MISSING_ARG_{kind.upper()}\n", 500, nsq=False)
            if not is_valid_name(name):
                return text_response(f"INVALID_ARG_{kind.upper()}\n", 500, nsq=False)
            names[kind] = name
        return Stream(Subscriber(names["topic"], names["channel"], self), (TEXT_HEADER,))

    def _stats(self) -> str:
        now = time.monotonic()
        lines = [
            f"[{each.address}] [{each.topic} : {each.channel}]"
            f" connected: {format_duration(int(now - each.connected_at) * 1_000_000_000)}\n"
            for each in sorted(self.subscribers, key=lambda each: each.connected_at)
        ]
        return f"Total Messages: {self.delivered}\n\n{''.join(lines)}"

    async def close(self) -> None:
        """Stop every client's consumer and close the connections."""
        leaving: Sequence[Subscriber] = list(self.subscribers)
        for subscriber in leaving:
            subscriber.leave()
        await asyncio.gather(*(subscriber.closed() for subscriber in leaving))


async def pubsub(flags: PubSubFlags, run: Run) -> int:
    """Serve until stopped. Raises ToolFailed."""
    if flags.max_in_flight <= 0:
        raise WrongUsage("--max-in-flight must be > 0")
    server = PubSub(sources(flags, local=run.is_subcommand), consumer_options(flags, NAME))
    try:
        listener = listen_tcp(flags.http_address)
    except ListenFailed as error:
        raise ToolFailed(str(error)) from None
    http = HTTPServer(server.answer)
    listening = await listener.serve(http.protocol)
    run.note(f"listening for HTTP clients on {listener.shown}")
    async with progress(flags.progress, lambda: server.delivered):
        await run.stop.wait()
    listening.close()
    await server.close()
    await http.close()
    return 0


main = Tool(
    NAME,
    "pubsub",
    PubSubFlags,
    pubsub,
    "Stream the messages of channels to HTTP clients, one per line.",
    examples=[
        ("nsq pubsub", "serve on port 8080"),
        ("nsq pubsub --http-address 127.0.0.1:9000", "on another port, of this machine only"),
    ],
)
