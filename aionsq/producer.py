"""Publishing to one nsqd over one connection, with any number of publishes under way."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import Self

from aionsq.connection import Connection, split_address
from aionsq.errors import ConnectFailed, ConnectionLost, ProducerClosed, ProducerFull, PublishTimedOut, Refused
from aionsq.options import ProducerOptions
from aionsq.reconnect import Reconnect
from nsqwire import command, frame
from nsqwire.errors import BadBody, BadMessage, BadTopic, Invalid, NSQError
from nsqwire.names import is_valid_name

log = logging.getLogger(__name__)

Body = bytes | bytearray | memoryview

_MS = timedelta(milliseconds=1)
_KNOWN_TOPICS = 4096


class _Publish:
    """A command and its answer."""

    __slots__ = ("answer", "data", "may_be_stored", "timer")

    def __init__(self, data: bytes, answer: asyncio.Future[None]) -> None:
        self.data = data
        self.answer = answer
        self.may_be_stored = False
        self.timer: asyncio.TimerHandle | None = None

    def done(self, error: Exception | None = None) -> None:
        if self.timer is not None:
            self.timer.cancel()
        if self.answer.done():  # timed out, or its caller was cancelled
            return
        if error is None:
            self.answer.set_result(None)
        else:
            self.answer.set_exception(error)


class Producer:
    """Publishes to the nsqd at ``host:port``.

        async with Producer("127.0.0.1:4150") as producer:
            await producer.pub("orders", b"hello")

    ``pub``, ``mpub`` and ``dpub`` send at once and return a future: await it, or keep many and await them together. It
    ends with ``None`` when nsqd has stored the message, or with

    - nsqwire's ``BadTopic``, ``BadMessage``, ``BadBody`` or ``Invalid``: not sent, others are not disturbed
    - :class:`Refused`: nsqd's error frame. nsqd closes the connection over it; publishes behind are sent again, since
      nsqd did not read them
    - :class:`ConnectionLost`, :class:`PublishTimedOut`: it may or may not have been stored
    - :class:`ProducerFull`, :class:`ProducerClosed`: not stored

    A lost connection is opened again at once, then after growing, jittered pauses; meanwhile publishes wait.
    """

    def __init__(self, nsqd_tcp_address: str, options: ProducerOptions | None = None) -> None:
        """Raises ValueError for an address that is not ``host:port``."""
        split_address(nsqd_tcp_address)
        self.address = nsqd_tcp_address
        self._options = options or ProducerOptions()
        self._timeout = self._options.publish_timeout.total_seconds()
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._opening = asyncio.Lock()
        self._pauses = Reconnect(self._options.max_reconnect_delay)
        self._connected_at = 0.0
        self._waiting: deque[_Publish] = deque()
        self._waiting_bytes = 0
        self._sent: deque[_Publish] = deque()
        self._known_topics: set[str] = set()
        self._last_error: Exception | None = None
        self._idle: asyncio.Event = asyncio.Event()
        self._closed = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close(timedelta(0) if kind else None)

    async def start(self) -> None:
        """Connect. Raises ConnectFailed. Without it, the first publish connects and goes on trying."""
        if self._closed:
            raise ProducerClosed("the producer was closed")
        await self._open()

    async def close(self, grace: timedelta | None = None) -> None:
        """Wait up to ``grace`` (None: the publish timeout) for what is under way, then close.

        What is then unanswered ends with ProducerClosed if it was never sent, with ConnectionLost otherwise.
        """
        self._closed = True
        seconds = self._timeout if grace is None else grace.total_seconds()
        self._idle.clear()
        self._forget_done()
        if seconds > 0:
            try:
                await asyncio.wait_for(self._idle.wait(), seconds)
            except TimeoutError:
                log.warning("%s: closing with %d publishes unanswered", self.address, len(self._sent))
        if self._connecting is not None:
            self._connecting.cancel()
        if self._connection is not None:
            connection = self._connection
            connection.close("the producer was closed")
            await connection.closed.wait()
        for publish in (*self._waiting, *self._sent):
            lost = ConnectionLost(self.address, "the producer was closed")
            publish.done(lost if publish.may_be_stored else ProducerClosed("the producer was closed; not stored"))
        self._waiting.clear()
        self._sent.clear()

    def pub(self, topic: str, body: Body, *, timeout: timedelta | None = None) -> asyncio.Future[None]:
        """Publish a message of 1 to ``max_msg_size`` bytes."""
        try:
            self._check_topic(topic)
            self._check_body(body)
        except NSQError as error:
            return self._failed(error)
        return self._publish(command.pub(topic, bytes(body)), timeout)

    def mpub(self, topic: str, bodies: Sequence[Body], *, timeout: timedelta | None = None) -> asyncio.Future[None]:
        """Publish several messages with one answer: all are stored, or none."""
        try:
            self._check_topic(topic)
            if not bodies:
                raise BadBody("MPUB of no message")
            for body in bodies:
                self._check_body(body)
            data = command.mpub(topic, [bytes(body) for body in bodies])
            if len(data) - len(topic) - 10 > self._options.max_body_size:  # 10: "MPUB ", newline and the length
                raise BadBody(f"MPUB of {len(data)} bytes is larger than {self._options.max_body_size}")
        except NSQError as error:
            return self._failed(error)
        return self._publish(data, timeout)

    def dpub(
        self, topic: str, delay: timedelta, body: Body, *, timeout: timedelta | None = None
    ) -> asyncio.Future[None]:
        """Publish a message that is delivered no sooner than after ``delay``, 0 to ``max_req_timeout``."""
        try:
            self._check_topic(topic)
            self._check_body(body)
            if not timedelta(0) <= delay <= self._options.max_req_timeout:
                raise Invalid(f"delay {delay} is not within 0..{self._options.max_req_timeout}")
        except NSQError as error:
            return self._failed(error)
        return self._publish(command.dpub(topic, delay // _MS, bytes(body)), timeout)

    # what the connection reports

    def frames_received(self, frames: Sequence[tuple[int, bytes]]) -> None:
        for frame_type, data in frames:
            if frame_type == frame.RESPONSE and self._sent:
                self._sent.popleft().done()
                continue
            text = data[:200].decode(errors="replace")
            if frame_type == frame.ERROR and self._sent:
                self._sent.popleft().done(Refused(text))
                self._unsend(may_be_stored=False)  # nsqd reads nothing behind what it refuses
            else:
                log.warning("nsqd %s: unexpected frame of type %d: %s", self.address, frame_type, text)
            if self._connection is not None:
                self._connection.abort(text)
                self._lost(text)
            break
        if not self._sent and not self._waiting:
            self._idle.set()

    def writable(self) -> None:
        self._pump()

    def connection_closed(self, connection: Connection, reason: str) -> None:
        if connection is self._connection:
            self._lost(reason)

    # inside

    def _check_topic(self, topic: str) -> None:
        if topic in self._known_topics:
            return
        if not is_valid_name(topic):
            raise BadTopic(f"topic name {topic!r} is not valid")
        if len(self._known_topics) >= _KNOWN_TOPICS:
            self._known_topics.clear()
        self._known_topics.add(topic)

    def _check_body(self, body: Body) -> None:
        size = body.nbytes if isinstance(body, memoryview) else len(body)
        if size == 0:
            raise BadMessage("a message body cannot be empty")
        if size > self._options.max_msg_size:
            raise BadMessage(f"message of {size} bytes is larger than {self._options.max_msg_size}")

    def _failed(self, error: Exception) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.set_exception(error)
        return future

    def _publish(self, data: bytes, timeout: timedelta | None) -> asyncio.Future[None]:
        if self._closed:
            return self._failed(ProducerClosed("the producer was closed; not stored"))
        loop = asyncio.get_running_loop()
        publish = _Publish(data, loop.create_future())
        connection = self._connection
        if connection is not None and not self._waiting and not connection.paused and not connection.is_closed:
            self._send(connection, publish)
        elif self._waiting_bytes + len(data) > self._options.max_waiting_bytes:
            return self._failed(ProducerFull(f"{self._waiting_bytes} bytes wait for nsqd {self.address}; not stored"))
        else:
            self._waiting.append(publish)
            self._waiting_bytes += len(data)
            if connection is None:
                self._reconnect()
        seconds = self._timeout if timeout is None else timeout.total_seconds()
        publish.timer = loop.call_later(seconds, self._time_out, publish, seconds)
        return publish.answer

    def _send(self, connection: Connection, publish: _Publish) -> None:
        publish.may_be_stored = True
        self._sent.append(publish)
        connection.send(publish.data)

    def _pump(self) -> None:
        """Send what waits, as far as the connection takes it."""
        while self._waiting and self._connection is not None and not self._connection.paused:
            publish = self._waiting.popleft()
            self._waiting_bytes -= len(publish.data)
            if not publish.answer.done():
                self._send(self._connection, publish)

    def _unsend(self, *, may_be_stored: bool) -> None:
        """Put what was sent and not answered back in front of what waits."""
        while self._sent:
            publish = self._sent.pop()
            publish.may_be_stored = may_be_stored
            self._waiting.appendleft(publish)
            self._waiting_bytes += len(publish.data)

    def _time_out(self, publish: _Publish, seconds: float) -> None:
        if publish.may_be_stored:
            text = f"nsqd {self.address} did not answer within {seconds:g}s; the message may or may not be stored"
        else:
            why = f": {self._last_error}" if self._last_error else ""
            text = f"not sent to nsqd {self.address} within {seconds:g}s, so not stored{why}"
        publish.done(PublishTimedOut(text))
        self._forget_done()

    def _forget_done(self) -> None:
        """Let go of what timed out, or was cancelled, before it could be sent."""
        while self._waiting and self._waiting[0].answer.done():
            self._waiting_bytes -= len(self._waiting.popleft().data)
        if not self._sent and not self._waiting:
            self._idle.set()

    def _lost(self, reason: str) -> None:
        self._connection = None
        self._pauses.held(asyncio.get_running_loop().time() - self._connected_at)
        self._last_error = ConnectionLost(self.address, reason)
        if self._options.resend:
            self._unsend(may_be_stored=True)
        while self._sent:
            self._sent.popleft().done(ConnectionLost(self.address, reason))
        if self._closed and not self._waiting:
            self._idle.set()
        else:
            log.info("nsqd %s: connection lost: %s", self.address, reason)
            self._reconnect()

    async def _open(self) -> None:
        async with self._opening:
            if self._connection is not None:
                return
            self._connection, _ = await Connection.open(self.address, self._options, self)
            self._connected_at = asyncio.get_running_loop().time()
            self._last_error = None
            self._pump()

    def _reconnect(self) -> None:
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.get_running_loop().create_task(self._keep_connecting())

    async def _keep_connecting(self) -> None:
        while self._connection is None and (self._waiting or not self._closed):
            await asyncio.sleep(self._pauses.next_delay())
            try:
                await self._open()
            except ConnectFailed as error:
                if self._last_error is None or str(error) != str(self._last_error):
                    log.warning("%s; trying again", error)
                self._last_error = error
