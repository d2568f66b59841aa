"""A kombu connection to NSQ, with its kombu channels."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from time import monotonic
from typing import Any, TypeVar

from kombu.transport import base, virtual

from aionsq import ConnectFailed, ConnectionLost, Producer, ProducerClosed, ProducerFull, PublishTimedOut
from nsqkombu import queues
from nsqkombu.channel import Channel
from nsqkombu.event_loop import CLOSE_SECONDS, MARGIN_SECONDS, EventLoopThread, NoAnswer, event_loop_thread
from nsqkombu.inbox import Inbox
from nsqkombu.reader import Delivery, Reader
from nsqkombu.settings import DEFAULT_PORT, Settings, settings_of
from nsqkombu.source import Source
from nsqkombu.window import Window

log = logging.getLogger(__name__)

T = TypeVar("T")

Take = Callable[[Delivery], object]

HTTP_SECONDS = 60.0
DRAIN_SECONDS = 3600.0
_SLICE_SECONDS = 1.0
_AT_A_TIME = 50
"""Messages delivered before Celery's event loop serves its other descriptors."""
_CONNECT_SECONDS = 30.0


class Transport(virtual.Transport):
    """A connection to one or several nsqds, which reconnects by itself."""

    Channel: type[virtual.Channel] = Channel
    default_port: Any = DEFAULT_PORT
    driver_type = driver_name = "nsq"
    connection_errors: Any = (
        *base.Transport.connection_errors,
        ConnectFailed,
        ConnectionLost,
        ProducerClosed,
        ProducerFull,
        PublishTimedOut,
        NoAnswer,
    )
    recoverable_connection_errors = connection_errors
    channel_errors = base.Transport.channel_errors
    recoverable_channel_errors = ()
    implements = virtual.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset(["direct", "topic", "fanout"]), heartbeats=False
    )
    uses_tls = False

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        self.settings: Settings = settings_of(client, tls=self.uses_tls)
        self.queue_options: dict[str, dict[str, Any]] = {}
        self.inbox: Inbox = Inbox()
        self._thread: EventLoopThread | None = None
        self._producer: Producer | None = None
        self._bound: dict[tuple[str, str], Reader] = {}
        """Subscriptions to ephemeral channels of queues without a consumer, by topic and channel."""
        self._created: set[tuple[str, str]] = set()
        self._readers: set[Reader] = set()
        self._hub: Any = None

    def driver_version(self) -> str:
        """Return the version of this transport, for ``celery report``."""
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("nsq-client")
        except PackageNotFoundError:
            return "N/A"

    # --- life cycle ---

    def establish_connection(self) -> Transport:
        """Connect the producer. Raises ConnectFailed if no nsqd can be reached."""
        self._thread = event_loop_thread()
        if self.inbox.is_closed:  # kombu connects again with the same object
            self.inbox = Inbox()
        settings = self.settings
        coroutine = self._thread.producer(settings.nsqd_tcp_addresses, settings.producer_options, self)
        limit = settings.producer_options.dial_timeout.total_seconds() + _CONNECT_SECONDS
        self._producer = self._thread.run(coroutine, limit)
        self._thread.at_exit.add(self._close)
        return self

    def verify_connection(self, connection: object) -> bool:
        """Whether the connection is this process's own, and open."""
        return self._thread is not None and self._thread.is_own and self._producer is not None

    def create_channel(self, connection: object) -> virtual.Channel:
        """Return a new channel."""
        channel = self.Channel(self)
        self.channels.append(channel)
        return channel

    def close_connection(self, connection: object) -> None:
        """Close the channels, then the producer if no other connection uses it. Waits at most CLOSE_SECONDS."""
        for channel in list(self.channels):
            channel.close()
        if self._hub is not None:
            self.unregister_from_event_loop(connection, self._hub)
        thread, self._thread = self._thread, None
        if thread is not None and thread.is_own:
            thread.at_exit.discard(self._close)
            with suppress(NoAnswer):
                thread.run(self._close(), CLOSE_SECONDS + MARGIN_SECONDS)
        self._producer = None
        if thread is None or thread.is_own:  # in a forked child, the inbox's lock may stay locked for ever
            self.inbox.close()

    async def _close(self) -> None:
        readers, self._readers = self._readers, set()
        self._bound.clear()
        await _close_all(readers)
        if self._producer is not None:
            self._producer = None
            settings = self.settings
            await event_loop_thread().release_producer(settings.nsqd_tcp_addresses, settings.producer_options, self)

    def close_readers(self, readers: Sequence[Reader]) -> None:
        """End subscriptions; waits at most CLOSE_SECONDS."""
        if readers and self._thread is not None and self._thread.is_own:
            with suppress(NoAnswer):
                self.run(self._close_readers(readers), CLOSE_SECONDS + MARGIN_SECONDS)

    async def _close_readers(self, readers: Sequence[Reader]) -> None:
        self._readers.difference_update(readers)
        await _close_all(readers)

    # --- the event loop ---

    def run(self, coroutine: Coroutine[Any, Any, T], limit_s: float) -> T:
        """Run a coroutine in the event loop. Raises ConnectionLost in a forked child and after a close."""
        if self._thread is None or not self._thread.is_own:
            coroutine.close()
            raise ConnectionLost(
                ", ".join(self.settings.nsqd_tcp_addresses), "it belongs to another process, or is closed"
            )
        return self._thread.run(coroutine, limit_s)

    def call(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function in the event loop, without waiting; does nothing in a forked child and after a close."""
        if self._thread is not None and self._thread.is_own:
            self._thread.call(function, *arguments)

    # --- publishing ---

    def publish(self, topic: str, body: bytes, delay: timedelta) -> None:
        """Publish, and wait for nsqd's answer. Raises aionsq's and nsqwire's errors."""
        self.run(self._publish(topic, body, delay), self.settings.publish_timeout_s + MARGIN_SECONDS)

    async def _publish(self, topic: str, body: bytes, delay: timedelta) -> None:
        producer = self._producer
        if producer is None:
            raise ProducerClosed("the connection was closed; not stored")
        if delay > timedelta(0):
            await producer.dpub(topic, delay, body)
        else:
            await producer.pub(topic, body)

    # --- consuming ---

    def bind(self, source: Source) -> None:
        """Create the channel of a binding; if it is ephemeral, subscribe until the queue is consumed."""
        key = (source.topic, source.channel)
        if (bound := self._bound.get(key)) is not None:
            bound.source = source
        elif source.is_ephemeral:
            self._bound[key] = self.run(self._start(source), self._limit_s)
        elif key not in self._created:
            self.close_readers([self.run(self._start(source), self._limit_s)])
            self._created.add(key)

    def unbind(self, queue: str) -> None:
        """End the subscriptions of a queue without a consumer."""
        mine = [key for key, reader in self._bound.items() if reader.source.queue == queue]
        self.close_readers([self._bound.pop(key) for key in mine])

    def open_reader(self, source: Source, take: Take, window: Window | None, inbox: Inbox) -> Reader:
        """Subscribe, and deliver to ``inbox``. Raises ConnectFailed if no nsqd can be reached."""
        return self.run(self._open(source, take, window, inbox), self._limit_s)

    async def _open(self, source: Source, take: Take, window: Window | None, inbox: Inbox) -> Reader:
        reader = self._bound.pop((source.topic, source.channel), None) or await self._start(source)
        reader.source = source
        reader.activate(inbox.put, take, window)
        return reader

    async def _start(self, source: Source) -> Reader:
        reader = Reader(source, self.settings)
        self._readers.add(reader)
        try:
            await reader.start()
        except BaseException:
            self._readers.discard(reader)
            raise
        return reader

    @property
    def _limit_s(self) -> float:
        return self.settings.consumer_options.dial_timeout.total_seconds() + _CONNECT_SECONDS

    def drain_events(self, connection: object, timeout: float | None = None, **options: Any) -> None:
        """Wait for one message and pass it to its consumer. Raises socket.timeout after ``timeout`` seconds."""
        deadline = None if timeout is None else monotonic() + timeout
        while not self._deliver_one():
            left = _SLICE_SECONDS if deadline is None else min(deadline - monotonic(), _SLICE_SECONDS)
            if left <= 0:
                raise TimeoutError(f"no message within {timeout:g} s")
            self.inbox.wait(left)

    def _deliver_one(self) -> bool:
        """Deliver the oldest message; return False if there is none."""
        while (delivery := self.inbox.take()) is not None:
            delivery.is_taken = True
            if delivery.reader.is_stopping or delivery.reader.take is None:
                self.call(delivery.reader.requeue, delivery, timedelta(0))
                continue
            delivery.reader.take(delivery)
            return True
        return False

    def register_with_event_loop(self, connection: object, loop: Any) -> None:
        """Deliver from Celery's event loop."""
        self._hub = loop
        loop.add_reader(self.inbox.fileno(), self._on_readable)

    def unregister_from_event_loop(self, connection: object, loop: Any) -> None:
        """Stop delivering from Celery's event loop."""
        self._hub = None
        with suppress(OSError, ValueError, KeyError):
            loop.remove(self.inbox.fileno())

    def _on_readable(self, *_: object) -> None:
        for _number in range(_AT_A_TIME):
            if not self._deliver_one():
                return

    # --- queues ---

    def depth(self, sources: Sequence[Source]) -> int:
        """Return the number of waiting messages; 0 without ``nsqd_http_addresses``. Raises HTTPFailed."""
        if not self.settings.nsqd_http_addresses:
            return 0
        return self.run(queues.depth(self.settings, sources), HTTP_SECONDS)

    def purge(self, sources: Sequence[Source]) -> int:
        """Remove the waiting messages, also those that this connection has received and not passed to kombu.

        Returns their number. Raises HTTPFailed, ConnectFailed.
        """
        count = self.run(self._purge_received(sources), HTTP_SECONDS)
        if self.settings.nsqd_http_addresses:
            count += self.depth(sources)
            self.run(queues.act(self.settings, sources, "empty"), HTTP_SECONDS)
        else:
            count += sum(self.run(queues.drain(self.settings, source), DRAIN_SECONDS) for source in sources)
        # A subscription whose messages were finished has received others meanwhile.
        return count + self.run(self._purge_received(sources), HTTP_SECONDS)

    async def _purge_received(self, sources: Sequence[Source]) -> int:
        subscribed = {(source.topic, source.channel) for source in sources}
        return sum(
            reader.purge() for reader in self._readers if (reader.source.topic, reader.source.channel) in subscribed
        )

    def delete(self, sources: Sequence[Source]) -> None:
        """Delete the channels; does nothing without ``nsqd_http_addresses``. Raises HTTPFailed."""
        if self.settings.nsqd_http_addresses:
            self.run(queues.act(self.settings, sources, "delete"), HTTP_SECONDS)


class TLSTransport(Transport):
    """``nsqs://``: the same over TLS."""

    uses_tls = True


async def _close_all(readers: Iterable[Reader]) -> None:
    await asyncio.gather(*(reader.close() for reader in readers), return_exceptions=True)
