"""A consumer's subscription at one nsqd: its messages in flight and their answers."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Protocol

from aionsq.backoff import Outcome
from aionsq.connection import Connection
from aionsq.message import Message
from aionsq.options import ConsumerOptions
from aionsq.ready import Slot
from nsqwire import encoding, frame
from nsqwire.envelope import from_envelope
from nsqwire.frame import decode_message, decode_message_with_headers

log = logging.getLogger(__name__)

TOUCHES_PER_TIMEOUT = 3
_MS = timedelta(milliseconds=1)


class Inbox(Protocol):
    """The consumer's interface for its subscriptions."""

    trial: int | None
    """Number of the running backoff test, with which messages delivered now are marked; None outside a test."""

    def delivered(self, messages: list[Message]) -> None:
        """Messages arrived."""
        ...

    def answered(self, message: Message, outcome: Outcome) -> None:
        """Called before the answer to a message is sent, so that RDY changes by backoff are sent first."""

    def released(self) -> None:
        """A message from an nsqd with RDY 0 was answered, so another nsqd may have one more message in flight."""

    def progressed(self) -> None:
        """Called when the subscription will deliver nothing more, and when it has closed."""


class Subscription:
    """A subscription, created by :meth:`open`. :attr:`closed` is set when it has ended."""

    def __init__(self, address: str, inbox: Inbox, options: ConsumerOptions) -> None:
        self.address = address
        self.in_flight: set[Message] = set()
        self.slot = Slot(0)
        """Replaced by the slot in the consumer's distribution."""
        self.is_open = False
        """False before the subscription is established and once answers can no longer be sent."""
        self.closed = asyncio.Event()
        self.close_reason = ""
        self.closed_here = False
        """Whether this consumer has closed the connection."""
        self.close_waiting = False
        """Whether nsqd has answered CLS, after which it sends no more messages."""
        self._inbox = inbox
        self._options = options
        self._connection: Connection | None = None
        self._takes_headers = options.headers
        self._touching: asyncio.TimerHandle | None = None
        self._now = asyncio.get_running_loop().time

    @classmethod
    async def open(
        cls, address: str, topic: str, channel: str, inbox: Inbox, options: ConsumerOptions
    ) -> tuple[Subscription, int]:
        """Connect and subscribe; also return nsqd's largest RDY count.

        Raises ConnectFailed and, for the address, InvalidArgument.
        """
        self = cls(address, inbox, options)
        self._connection, negotiated = await Connection.open(address, options, self, topic, channel)
        self.is_open = not self._connection.is_closed
        if options.auto_touch:
            self._touch_in_time(negotiated.msg_timeout_ms / 1000 / TOUCHES_PER_TIMEOUT)
        return self, negotiated.max_rdy_count

    def send_ready(self, count: int) -> None:
        """Send RDY: how many messages nsqd may have in flight on this connection."""
        self._send(encoding.rdy(count))

    def begin_close(self) -> None:
        """Send CLS. The connection is closed when nsqd has confirmed CLS and every message is answered."""
        self._send(encoding.CLS)

    def close(self, reason: str) -> None:
        """Close now, after writing the remaining output."""
        if self.is_open:
            self.closed_here = True
        self.is_open = False
        if self._connection is not None:
            self._connection.close(reason)

    # --- called by messages ---

    def answer(self, message: Message, outcome: Outcome, delay: timedelta | None) -> None:
        self.in_flight.discard(message)
        self.slot.in_flight_count -= 1
        self._inbox.answered(message, outcome)
        if outcome is Outcome.FINISHED or outcome is Outcome.GIVEN_UP:
            self._send(encoding.fin(message.id))
        else:
            if delay is None:
                wait = self._options.default_requeue_delay * message.attempts
                delay = min(wait, self._options.max_requeue_delay)
            self._send(encoding.req(message.id, delay // _MS))
        if not self.slot.ready_count:
            self._inbox.released()
        if self.close_waiting and not self.in_flight:
            self.close("closed by this consumer")

    def touch(self, message: Message) -> None:
        self._send(encoding.touch(message.id))

    # --- called by the connection ---

    def frames_received(self, data: bytes, frames: list[frame.Span]) -> None:
        messages: list[Message] = []
        trial = self._inbox.trial
        for frame_type, start, end in frames:
            if frame_type == frame.MESSAGE:
                messages.append(Message(*decode_message(data, start, end), self, trial))
            elif frame_type == frame.MESSAGE_WITH_HEADERS and self._takes_headers:
                messages.append(Message(*decode_message_with_headers(data, start, end), self, trial))
            elif frame_type == frame.ERROR:
                # After a failed FIN, REQ or TOUCH nsqd continues; after any other error it closes the connection.
                log.warning("nsqd %s: %s", self.address, data[start:end].decode(errors="replace"))
            elif data[start:end] == b"CLOSE_WAIT":
                self.close_waiting = True
        if self._options.open_envelopes:
            for message in messages:
                opened = from_envelope(message.body)
                if opened is not None:
                    message.set_contents(*opened)
        if messages:
            self.in_flight.update(messages)
            self.slot.in_flight_count += len(messages)
            self.slot.last_message_at = self._now()
            self._inbox.delivered(messages)
        if self.close_waiting:
            if not self.in_flight:
                self.close("closed by this consumer")
            self._inbox.progressed()

    def writable(self) -> None:
        """Nothing to do: the number of answers is limited by the messages in flight."""

    def connection_closed(self, connection: Connection, reason: str) -> None:
        self.close_reason = reason
        self.is_open = False
        if self._touching is not None:
            self._touching.cancel()
        self.closed.set()
        self._inbox.progressed()

    def _touch_in_time(self, seconds: float) -> None:
        for message in self.in_flight:
            self.touch(message)
        self._touching = asyncio.get_running_loop().call_later(seconds, self._touch_in_time, seconds)

    def _send(self, data: bytes) -> None:
        if self._connection is not None:
            self._connection.send(data)
