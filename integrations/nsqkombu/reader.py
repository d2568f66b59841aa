"""A subscription: passes messages to kombu, and kombu's answers to nsqd. All of it runs in the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from aionsq import ClientError, Consumer, Message, Producer
from nsqkombu.event_loop import CLOSE_SECONDS
from nsqkombu.payload import Payload, decode, is_marker, new_marker, time_left
from nsqkombu.settings import Settings
from nsqkombu.source import Source
from nsqkombu.window import Member, Window

log = logging.getLogger(__name__)

EARLY = timedelta(seconds=1)
"""A message that is due within this time is delivered; Celery waits for the rest with a timer."""
MARKED_WINDOW = 100
"""Most messages in flight while messages published before the subscription are skipped."""
MARKER_SECONDS = 10.0
LATE_ANSWERS = 1000
LATE_ANSWER_SECONDS = 900.0
"""For how long a finished message whose connection was lost is recognised when nsqd delivers it again."""
STOP_GRACE = timedelta(days=30)
"""A cancelled subscription ends after the last answer to its messages, or when its kombu channel is closed."""

_NOW = timedelta(0)


class Delivery:
    """A message that was or will be passed to kombu, and that kombu has not answered."""

    __slots__ = ("is_purged", "is_taken", "message", "payload", "reader")

    def __init__(self, reader: Reader, message: Message, payload: Payload) -> None:
        self.reader = reader
        self.message = message
        """Replaced when nsqd delivers the message again after a lost connection."""
        self.payload = payload
        self.is_taken = False
        """Whether it was passed to kombu."""
        self.is_purged = False
        """Whether it was finished by a purge of its queue, so that it is not passed to kombu."""


class Reader(Member):
    """A subscription, from :meth:`start` until :meth:`close`."""

    def __init__(self, source: Source, settings: Settings) -> None:
        self.source = source
        self.is_stopping = False
        self.take: Callable[[Delivery], object] | None = None
        """Called for each delivery, by the thread that drains the connection."""
        self._settings = settings
        self._deliver: Callable[[Delivery], None] | None = None
        """Passes a delivery to that thread. None before kombu consumes; messages then wait in the subscription."""
        self._window: Window | None = None
        self._outstanding: dict[tuple[str, bytes], Delivery] = {}
        self._finished_late: OrderedDict[tuple[str, bytes], float] = OrderedDict()
        self._share = 0
        self._markers: dict[str, bytes] = {}
        self._waiting: list[Message] = []
        self._stopping: asyncio.Task[object] | None = None
        self._pumping: asyncio.Task[None] | None = None
        self._consumer = Consumer(
            source.topic,
            source.channel,
            nsqd_tcp_addresses=settings.nsqd_tcp_addresses,
            lookupd_http_addresses=settings.lookupd_http_addresses,
            options=replace(settings.consumer_options, max_in_flight=0),
        )

    @property
    def outstanding_count(self) -> int:  # type: ignore[override]
        """Number of messages that kombu has not answered."""
        return len(self._outstanding)

    @property
    def in_flight_count(self) -> int:  # type: ignore[override]
        """Number of these messages that nsqd counts as in flight on this subscription."""
        return sum(delivery.message.is_in_flight for delivery in self._outstanding.values())

    @property
    def waiting_count(self) -> int:  # type: ignore[override]
        """Number of messages that kombu has not taken yet."""
        return sum(not delivery.is_taken for delivery in self._outstanding.values())

    # --- start and end ---

    async def start(self) -> None:
        """Subscribe. Raises ConnectFailed if no nsqd can be reached."""
        await self._consumer.start()
        self._pumping = asyncio.create_task(self._pump())
        if self.source.is_shared and self.source.is_ephemeral:
            await self._mark()

    def activate(
        self, deliver: Callable[[Delivery], None], take: Callable[[Delivery], object], window: Window | None
    ) -> None:
        """Deliver from now on, as many messages at a time as ``window`` permits.

        ``window`` is None for messages that are finished when kombu takes them.
        """
        self.take = take
        self._deliver = deliver
        self._window = window
        if window is None:
            self.set_share(self._settings.max_in_flight)
        else:
            window.members.append(self)
            window.changed()
        waiting, self._waiting = self._waiting, []
        for message in waiting:
            self._receive(message)

    def begin_stop(self) -> None:
        """Receive no more messages. Messages that were passed to kombu can still be answered. Does not wait."""
        if not self.is_stopping:
            self.is_stopping = True
            waiting, self._waiting = self._waiting, []
            for message in waiting:
                message.requeue(_NOW, backoff=False)
            for delivery in [each for each in self._outstanding.values() if not each.is_taken]:
                self.requeue(delivery, _NOW)
            self._stopping = asyncio.create_task(self._consumer.stop(STOP_GRACE))
            if self._window is not None:
                self._window.changed()

    async def close(self) -> None:
        """Requeue the messages that kombu has not answered, and end the subscription."""
        self.begin_stop()
        for delivery in list(self._outstanding.values()):
            self.requeue(delivery, _NOW)
        self._consumer.begin_stop(timedelta(seconds=CLOSE_SECONDS / 2))
        if self._stopping is not None:
            await self._stopping
        if self._window is not None and self in self._window.members:
            self._window.members.remove(self)

    # --- window ---

    def set_share(self, share: int) -> None:
        """Set how many messages may be in flight."""
        self._share = share
        if not self.is_stopping:
            most = max(share, MARKED_WINDOW) if self._markers else share if self._deliver else 0
            if most != self._consumer.max_in_flight:
                self._consumer.change_max_in_flight(most)

    # --- messages ---

    async def _pump(self) -> None:
        while (message := await self._consumer.next_message()) is not None:
            try:
                self._receive(message)
            except Exception:
                log.exception("%s/%s: %r could not be delivered", self.source.topic, self.source.channel, message)
                message.requeue(timedelta(seconds=1), backoff=False)

    def _receive(self, message: Message) -> None:
        if is_marker(message.body):
            if self._markers.get(message.nsqd_address) == message.body:
                del self._markers[message.nsqd_address]
                self.set_share(self._share)
            message.finish()
            return
        if message.nsqd_address in self._markers:  # published before this queue was bound
            message.finish()
            return
        if self.is_stopping:
            message.requeue(_NOW, backoff=False)
            return
        if self._deliver is None:
            self._waiting.append(message)
            return
        key = (message.nsqd_address, message.id)
        if (delivery := self._outstanding.get(key)) is not None:
            delivery.message = message  # kombu still has it: its answer is for this copy
            return
        if self._was_finished_late(key):
            message.finish()
            return
        payload = decode(message.body)
        if not self.source.accepts(payload["properties"]["delivery_info"]):
            message.finish()
            return
        if (left := time_left(payload)) > EARLY:
            message.requeue(min(left, self._settings.max_defer), backoff=False)
            return
        if self._window is not None and self._window.is_full:
            message.requeue(_NOW, backoff=False)
            self._window.changed()
            return
        payload["properties"]["redelivered"] = message.attempts > 1
        payload["properties"]["delivery_info"]["redelivered"] = message.attempts > 1
        delivery = Delivery(self, message, payload)
        self._outstanding[key] = delivery
        if self._window is not None and len(self._window.members) > 1:
            self._window.changed()
        self._deliver(delivery)

    def finish(self, delivery: Delivery) -> None:
        """Finish a message. Does nothing for one that was answered."""
        key = self._key(delivery)
        if self._outstanding.pop(key, None) is None:
            return
        if not delivery.message.is_in_flight:
            # nsqd delivers it again: to this process, which then finishes it, or to another one.
            self._finished_late[key] = asyncio.get_running_loop().time()
            while len(self._finished_late) > LATE_ANSWERS:
                self._finished_late.popitem(last=False)
        delivery.message.finish()
        self._answered()

    def requeue(self, delivery: Delivery, delay: timedelta) -> None:
        """Requeue a message. Does nothing for one that was answered."""
        if self._outstanding.pop(self._key(delivery), None) is not None:
            delivery.message.requeue(delay, backoff=False)
            self._answered()

    def purge(self) -> int:
        """Finish the messages that were received and not passed to kombu, and return their number."""
        waiting, self._waiting = self._waiting, []
        for message in waiting:
            message.finish()
        not_taken = [each for each in self._outstanding.values() if not each.is_taken]
        for delivery in not_taken:
            delivery.is_purged = True
            self.finish(delivery)
        return len(waiting) + len(not_taken)

    def _answered(self) -> None:
        """Update the window. With one member and no lost connection, its share stays the limit."""
        window = self._window
        if window is not None and (len(window.members) > 1 or self._share != window.limit):
            window.changed()

    def _was_finished_late(self, key: tuple[str, bytes]) -> bool:
        at = self._finished_late.pop(key, None)
        return at is not None and asyncio.get_running_loop().time() - at < LATE_ANSWER_SECONDS

    @staticmethod
    def _key(delivery: Delivery) -> tuple[str, bytes]:
        return (delivery.message.nsqd_address, delivery.message.id)

    # --- messages published before the subscription ---

    async def _mark(self) -> None:
        """Skip earlier messages: an ephemeral topic without channels keeps messages for its first channel.

        Otherwise the next worker that starts would execute a command that was broadcast while no worker ran. To be
        independent of clocks, the reader publishes a marker, and skips the messages that it receives before it.
        """
        for address in self._consumer.connections:
            self._markers[address] = new_marker()
        self.set_share(self._share)
        await asyncio.gather(*(self._publish_marker(address) for address in list(self._markers)))
        asyncio.get_running_loop().call_later(MARKER_SECONDS, self._accept_all)

    async def _publish_marker(self, address: str) -> None:
        limit = timedelta(seconds=MARKER_SECONDS / 2)
        try:
            async with Producer(address, self._settings.producer_options) as producer:
                await producer.pub(self.source.topic, self._markers[address], timeout=limit)
        except ClientError as error:
            log.warning("%s: commands published before now are not skipped: %s", self.source.topic, error)
            self._markers.pop(address, None)
            self.set_share(self._share)

    def _accept_all(self) -> None:
        """Stop skipping, in case a marker was lost with its nsqd."""
        if self._markers:
            self._markers.clear()
            self.set_share(self._share)
