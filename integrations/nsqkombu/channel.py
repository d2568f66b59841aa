"""kombu's channel: queues, exchanges and bindings as topics and channels of NSQ."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from kombu.transport import virtual

from nsqkombu import names
from nsqkombu.inbox import Inbox
from nsqkombu.payload import Payload, encode, time_left
from nsqkombu.qos import QoS
from nsqkombu.reader import Delivery, Reader
from nsqkombu.source import Source
from nsqkombu.window import Window

if TYPE_CHECKING:
    from nsqkombu.transport import Transport

_SHARED_TYPES = ("topic", "fanout")
_tags = itertools.count(1)


@dataclass
class Consumption:
    """A consumer of one queue."""

    queue: str
    take: Callable[[Delivery], object]
    inbox: Inbox
    window: Window | None
    """None if messages need no acknowledgement."""
    readers: dict[str, Reader] = field(default_factory=dict)
    """By topic."""


class Channel(virtual.Channel):
    """A channel of a connection. As in AMQP, its prefetch count and unacknowledged messages are its own."""

    connection: Transport
    QoS = QoS
    supports_fanout = True
    do_restore = False

    def __init__(self, connection: Transport, **options: Any) -> None:
        super().__init__(connection, **options)
        self._consumptions: dict[str, Consumption] = {}
        self._getting: dict[str, Consumption] = {}
        """Subscriptions of :meth:`basic_get`, by queue."""
        self._readers: list[Reader] = []
        self._deliveries: dict[str, Delivery] = {}
        self._window = Window(connection.settings.max_in_flight)

    # --- publishing ---

    def basic_publish(self, message: Payload, exchange: str, routing_key: str, **options: Any) -> None:
        """Publish, and wait for nsqd's answer. A message with an ``eta`` header is deferred until then."""
        self._inplace_augment_message(message, exchange, routing_key)
        left = min(time_left(message), self.connection.settings.max_defer)
        self.connection.publish(self._topic_of(exchange or "", routing_key or ""), encode(message), left)

    def encode_body(self, body: Any, encoding: str | None = None) -> tuple[Any, str | None]:
        """Return the body and its encoding: text is left as it is, bytes become base64."""
        if isinstance(body, bytes | bytearray | memoryview):
            return base64.b64encode(body).decode(), "base64"
        return body, None

    def _topic_of(self, exchange: str, routing_key: str) -> str:
        prefix = self.connection.settings.prefix
        kind = self.state.exchanges.get(exchange, {}).get("type", "direct") if exchange else "direct"
        is_ephemeral = self._is_ephemeral(exchange)
        if kind in _SHARED_TYPES:
            return names.exchange_topic(exchange, is_ephemeral=is_ephemeral, prefix=prefix)
        return names.route_topic(exchange, routing_key, is_ephemeral=is_ephemeral, prefix=prefix)

    def _is_ephemeral(self, exchange: str) -> bool:
        declared = self.state.exchanges.get(exchange)
        if declared is None:
            return False
        is_durable = declared["durable"] and exchange not in self.connection.settings.ephemeral_exchanges
        return not is_durable or declared["type"] == "fanout"

    # --- queues and bindings ---

    def exchange_declare(
        self,
        exchange: str | None = None,
        type: str = "direct",
        durable: bool = False,
        auto_delete: bool = False,
        arguments: Mapping[str, Any] | None = None,
        nowait: bool = False,
        passive: bool = False,
    ) -> None:
        """Declare an exchange. Raises NotImplementedError for headers exchanges."""
        if (type or "direct") not in self.exchange_types:
            raise NotImplementedError(f"exchange type {type!r} is not supported; direct, topic and fanout are")
        super().exchange_declare(exchange, type, durable, auto_delete, arguments, nowait, passive)

    def _new_queue(self, queue: str, **options: Any) -> None:
        self.connection.queue_options[queue] = options

    def _has_queue(self, queue: str, **options: Any) -> bool:
        return True

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str | None, queue: str) -> None:
        """Subscribe now, so that the queue receives messages that are published from now on."""
        bound = self._bound_source(exchange, routing_key, pattern, queue)
        if bound is None:
            return
        (source,) = [each for each in self._sources(queue) if each.topic == bound.topic]
        for consumption in self._consumptions.values():
            if consumption.queue == queue:
                if (reader := consumption.readers.get(source.topic)) is None:
                    self._open(consumption, source)
                else:
                    reader.source = source
                return
        if source.is_shared or source.topic != names.queue_topic(queue, self.connection.settings.prefix):
            self.connection.bind(source)

    def _bound_source(self, exchange: str, routing_key: str, pattern: str | None, queue: str) -> Source | None:
        declared = self.state.exchanges.get(exchange)
        if not exchange or declared is None:
            return None
        topic = self._topic_of(exchange, routing_key or "")
        channel = self._channel_of(queue)
        if declared["type"] == "topic" and pattern is not None:
            return Source(queue, topic, channel, ((exchange, pattern),), is_shared=True)
        return Source(queue, topic, channel, is_shared=declared["type"] in _SHARED_TYPES)

    def _channel_of(self, queue: str) -> str:
        return names.nsq_name(queue, is_ephemeral=self._is_temporary(queue))

    def _is_temporary(self, queue: str) -> bool:
        options = self.connection.queue_options.get(queue, {})
        return bool(options.get("auto_delete") or options.get("exclusive")) or names.is_generated(queue)

    def _sources(self, queue: str) -> list[Source]:
        """Return the subscriptions of a queue. A temporary queue with bindings receives through its bindings only."""
        own = Source(queue, names.queue_topic(queue, self.connection.settings.prefix), self._channel_of(queue))
        sources: dict[str, Source] = {}
        for exchange, routing_key, arguments in self.state.queue_bindings(queue):
            meta = self.typeof(exchange).prepare_bind(queue, exchange, routing_key, arguments)
            if (source := self._bound_source(exchange, *meta)) is not None:
                known = sources.get(source.topic)
                sources[source.topic] = source if known is None else known.joined(source)
        if not sources or not self._is_temporary(queue):
            sources[own.topic] = own.joined(sources[own.topic]) if own.topic in sources else own
        return list(sources.values())

    def queue_unbind(
        self, queue: str, exchange: str | None = None, routing_key: str = "", arguments: Any = None, **options: Any
    ) -> None:
        """Remove a binding. A running consumer keeps its subscriptions until it is cancelled."""
        super().queue_unbind(queue, exchange, routing_key, arguments, **options)

    def _size(self, queue: str) -> int:
        return self.connection.depth(self._sources(queue))

    def _purge(self, queue: str) -> int:
        return self.connection.purge(self._sources(queue))

    def queue_delete(self, queue: str, if_unused: bool = False, if_empty: bool = False, **options: Any) -> None:
        """Delete a queue's channels at the nsqds in ``nsqd_http_addresses``; without these, remove its bindings only.

        The ephemeral channels of a temporary queue end with their subscriptions.
        """
        if if_empty and self._size(queue):
            return
        if not self._is_temporary(queue):
            self.connection.delete(self._sources(queue))
        self.connection.unbind(queue)
        self.state.queue_bindings_delete(queue)

    # --- consuming ---

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Callable[[Any], object], consumer_tag: str, **options: Any
    ) -> None:
        """Consume a queue. With ``no_ack``, a message is finished before ``callback`` is called."""
        if no_ack:
            take, window = partial(self._pass_finished, callback), None
        else:
            take, window = partial(self._pass, callback), self._window
        consumption = Consumption(queue, take, self.connection.inbox, window)
        self._consumptions[consumer_tag] = consumption
        self._tag_to_queue[consumer_tag] = queue
        self._consumers.add(consumer_tag)
        self._active_queues.append(queue)
        try:
            for source in self._sources(queue):
                self._open(consumption, source)
        except BaseException:
            self.basic_cancel(consumer_tag)
            raise

    def basic_cancel(self, consumer_tag: str) -> None:
        """Receive no more messages. Those that were delivered can still be acknowledged; the others are requeued."""
        consumption = self._consumptions.pop(consumer_tag, None)
        if consumption is None:
            return
        self._consumers.discard(consumer_tag)
        queue = self._tag_to_queue.pop(consumer_tag, None)
        if queue in self._active_queues:
            self._active_queues.remove(queue)
        self.connection.call(self._begin_stop, list(consumption.readers.values()))

    @staticmethod
    def _begin_stop(readers: list[Reader]) -> None:
        for reader in readers:
            reader.begin_stop()

    def _open(self, consumption: Consumption, source: Source) -> None:
        reader = self.connection.open_reader(source, consumption.take, consumption.window, consumption.inbox)
        consumption.readers[source.topic] = reader
        self._readers.append(reader)

    def _pass(self, callback: Callable[[Any], object], delivery: Delivery) -> None:
        callback(self._message(delivery))

    def _pass_finished(self, callback: Callable[[Any], object], delivery: Delivery) -> None:
        self.connection.call(delivery.reader.finish, delivery)
        callback(self._message(delivery, is_kept=False))

    def _message(self, delivery: Delivery, *, is_kept: bool = True) -> virtual.Message:
        tag = str(next(_tags))
        delivery.payload["properties"]["delivery_tag"] = tag
        message = self.Message(delivery.payload, channel=self)
        if is_kept:
            self._deliveries[tag] = delivery
            self.qos.append(message, tag)
        return message

    def basic_get(self, queue: str, no_ack: bool = False, **options: Any) -> virtual.Message | None:
        """Return a message of the queue, or None if none arrives within the option ``get_timeout``.

        The subscription stays open until the channel closes. At most one of its messages has not been returned.
        """
        getting = self._getting.get(queue)
        if getting is None:
            window = Window(self.connection.settings.max_in_flight)
            window.set_limit(1)  # before the subscription begins, or it would receive max_in_flight messages
            getting = self._getting[queue] = Consumption(queue, self._message, Inbox(), window)
            for source in self._sources(queue):
                self._open(getting, source)
        assert getting.window is not None
        self.connection.call(getting.window.admit_one)
        deadline = monotonic() + self.connection.settings.get_timeout_s
        while (delivery := getting.inbox.take()) is None:
            left = deadline - monotonic()
            if left <= 0:
                return None
            getting.inbox.wait(left)
        delivery.is_taken = True
        if no_ack:
            self.connection.call(delivery.reader.finish, delivery)
        return self._message(delivery, is_kept=not no_ack)

    def basic_qos(self, prefetch_size: int = 0, prefetch_count: int = 0, apply_global: bool = False) -> None:
        """Set how many messages of the channel may be unacknowledged, over all its consumers; 0: ``max_in_flight``."""
        self.qos.prefetch_count = prefetch_count
        self.connection.call(self._window.set_limit, prefetch_count)

    # --- answers ---

    def finish(self, delivery_tag: str) -> None:
        """Finish a message; see :class:`QoS`."""
        delivery = self._deliveries.pop(delivery_tag, None)
        if delivery is not None:
            self.connection.call(delivery.reader.finish, delivery)

    def requeue(self, delivery_tag: str, delay: timedelta | None = None) -> None:
        """Requeue a message; see :class:`QoS`."""
        delivery = self._deliveries.pop(delivery_tag, None)
        if delivery is not None:
            delay = self.connection.settings.requeue_delay if delay is None else delay
            self.connection.call(delivery.reader.requeue, delivery, delay)

    def close(self) -> None:
        """Cancel the consumers and requeue unacknowledged messages; waits at most CLOSE_SECONDS."""
        if self.closed:
            return
        self.closed = True
        for tag in list(self._consumptions):
            self.basic_cancel(tag)
        for tag in list(self._deliveries):
            self.requeue(tag, timedelta(0))
        if self.connection is not None:
            transport = self.connection
            transport.close_readers(self._readers)
            for getting in self._getting.values():
                getting.inbox.close()
            transport.close_channel(self)
