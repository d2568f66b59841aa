"""Publishing to one or several nsqds, with any number of outstanding publishes."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from types import TracebackType
from typing import Self

from aionsq.addresses import address_list, check_address
from aionsq.arguments import (
    body_bytes,
    check_bodies,
    check_delay,
    check_headers,
    check_headers_of_each,
    check_name,
    check_options,
    check_timeout,
    check_type,
)
from aionsq.errors import (
    ConnectFailed,
    ConnectionLost,
    HeadersNotSupported,
    InvalidArgument,
    ProducerClosed,
    ProducerFull,
    PublishTimedOut,
)
from aionsq.options import ProducerOptions
from aionsq.outlet import Outlet
from aionsq.publish import HeaderPublish, Ids, Publish, failed
from aionsq.tracing import PublishTrace, Tracing, default_tracing
from nsqdaemon.declaration import shown_value
from nsqwire import encoding
from nsqwire.counted import counted
from nsqwire.errors import BadBody, BadHeaders, BadMessage, BadTopic, Invalid, NSQError
from nsqwire.headers import encode_headers
from nsqwire.names import is_valid_name
from nsqwire.units import Seconds

log = logging.getLogger(__name__)

Body = bytes | bytearray | memoryview
Headers = Mapping[str, str]
"""Names and values: nsqwire/headers.py."""

_MS = timedelta(milliseconds=1)
_KNOWN_TOPICS = 4096
_NEVER = float("inf")
_length = struct.Struct(">i").pack


class Producer:
    """Publishes to one of the given nsqds.

        async with Producer("127.0.0.1:4150") as producer:
            await producer.pub("orders", b"hello")

    ``pub``, ``mpub`` and ``dpub`` return a future and do not block; the command is written in the event loop's next
    iteration. Await the future, or collect several and await them together. Its result comes when nsqd has stored the
    messages: their ids, in order, if the option ``publish_ids`` is set and the node is a brokerd, else an empty tuple.
    Its exception is one of

    - nsqwire's ``BadTopic``, ``BadMessage``, ``BadBody``, ``BadHeaders``, ``Invalid``: the message was not sent; other
      publishes are not affected
    - :class:`HeadersNotSupported`: the message has headers, and nsqd does not take them; it was not sent. The option
      ``headers_fallback`` sends it in another way
    - :class:`Refused`: nsqd answered with an error frame and closed the connection; it did not read later publishes,
      which are sent again. What a node refuses because it is being drained is sent again, too, to another node if
      there is one
    - :class:`ConnectionLost`, :class:`PublishTimedOut`: the message may or may not have been stored
    - :class:`ProducerFull`, :class:`ProducerClosed`: the message was not stored

    Publishes to one topic in one iteration of the event loop are combined into MPUBs, which nsqd processes much faster;
    each future has its own result.

    A lost connection is reopened at once. If that fails, it is tried again after growing, randomized pauses; meanwhile
    publishes go to the other nsqds, or wait. The connected nsqds that answer receive publishes in turn. With
    ``nsqd_choice="failover"``, the first of them receives all.
    """

    def __init__(
        self,
        nsqd_tcp_addresses: str | Sequence[str],
        options: ProducerOptions | None = None,
        *,
        tracing: Tracing | None = None,
    ) -> None:
        """``tracing``, such as :class:`aionsq.otel.Tracing`, implies the option ``headers``.

        Raises InvalidArgument if there is no address, if one is neither ``host:port`` nor a Unix socket's path, and
        if a file of the options for TLS cannot be used. Raises WrongType for arguments of other types.
        """
        check_options(options, ProducerOptions)
        check_type("tracing", tracing, Tracing | None)
        addresses = address_list(nsqd_tcp_addresses, "nsqd_tcp_addresses")
        if not addresses:
            raise InvalidArgument("a producer needs the address of an nsqd")
        for address in addresses:
            check_address(address)
        self._tracing = tracing or default_tracing()
        self._options = options or ProducerOptions()
        if self._tracing is not None:
            self._options = replace(self._options, headers=True)
        if self._options.tls_v1:
            self._options.ssl_context()  # raises InvalidArgument now, not when it connects
        self._timeout_s = self._options.publish_timeout.total_seconds()
        self._stalled_after_s = self._options.stalled_after.total_seconds()
        self._in_turn = self._options.nsqd_choice == "round_robin"
        self._max_msg_size = self._options.max_msg_size or _NEVER
        self._outlets = [Outlet(address, self._options, self) for address in addresses]
        self._next = 0
        self._waiting: deque[Publish] = deque()
        self._waiting_bytes = 0
        self._pub_lines: dict[str, bytes] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = _NEVER
        self._idle = asyncio.Event()
        self._started = False
        self._closed = False

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except asyncio.CancelledError:
            await self.close(timedelta(0))
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close(timedelta(0) if kind else None)

    @property
    def connections(self) -> list[str]:
        """Addresses of the nsqds that the producer is connected to."""
        return [outlet.address for outlet in self._outlets if outlet.connection is not None]

    async def start(self) -> None:
        """Connect. Raises ConnectFailed if no nsqd can be reached, or each that can is being drained; otherwise the
        others are retried.

        Calling it is optional: otherwise the first publish starts connecting, with retries. Raises ProducerClosed after
        :meth:`close`.
        """
        if self._closed:
            raise ProducerClosed("the producer was closed")
        failures = await asyncio.gather(*(_failure_of(outlet) for outlet in self._outlets))
        unreached = [failure for failure in failures if failure is not None]
        if len(unreached) == len(self._outlets):
            raise unreached[0]
        for error in unreached:
            log.warning("%s; retrying", error)
        self._connect_all()

    async def close(self, grace: timedelta | None = None) -> None:
        """Wait up to ``grace`` (None: the publish timeout) for outstanding publishes, then close.

        Publishes that are still unanswered end with ProducerClosed if they were never sent, otherwise ConnectionLost.
        """
        check_type("grace", grace, timedelta | None)
        self._closed = True
        seconds = self._timeout_s if grace is None else grace.total_seconds()
        self.answered()
        if seconds > 0:
            try:
                async with asyncio.timeout(seconds):
                    await self._idle.wait()
            except TimeoutError:
                left = len(self._waiting) + sum(len(outlet.sent) for outlet in self._outlets)
                log.warning("closing with %d unanswered publishes", left)
        await asyncio.gather(*(outlet.close() for outlet in self._outlets))
        for publish in (*self._waiting, *(publish for outlet in self._outlets for publish in outlet.sent)):
            if publish.sent_to:
                publish.end(ConnectionLost(publish.sent_to, "the producer was closed"))
            else:
                publish.end(ProducerClosed("the producer was closed; not stored"))
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()

    def pub(
        self, topic: str, body: Body, *, headers: Headers | None = None, timeout: timedelta | None = None
    ) -> asyncio.Future[Ids]:
        """Publish a message of 1 to ``max_msg_size`` bytes. Raises WrongType if the body is not bytes."""
        line = self._pub_lines.get(topic) if type(topic) is str else None
        if type(body) is not bytes:
            body = body_bytes(body)
        if headers or self._tracing is not None:
            check_headers(headers)
            return self._publish_with_headers("PUB", topic, [body], [headers or {}], timeout)
        size = len(body)
        if line is None or not 0 < size <= self._max_msg_size:
            try:
                line = self._pub_line(topic)
                self._check_size(size)
            except NSQError as error:
                return failed(error)
        return self._publish(line, _length(size) + body, timeout)

    def mpub(
        self,
        topic: str,
        bodies: Sequence[Body],
        *,
        headers: Headers | Sequence[Headers] | None = None,
        timeout: timedelta | None = None,
    ) -> asyncio.Future[Ids]:
        """Publish several messages atomically: all are stored, or none.

        ``headers`` are those of every message, or a sequence with those of each. Raises WrongType if a body is not
        bytes, and InvalidArgument if the sequence has another length than ``bodies``.
        """
        check_bodies(bodies)
        given = [body if type(body) is bytes else body_bytes(body) for body in bodies]
        if headers or self._tracing is not None:
            return self._publish_with_headers("MPUB", topic, given, _of_each(headers or {}, len(given)), timeout)
        sizes = list(map(len, given))
        try:
            line = self._pub_line(topic)
            if not given:
                raise BadBody("MPUB without messages")
            self._check_size(min(sizes))
            self._check_size(max(sizes))
            total = 4 + 4 * len(sizes) + sum(sizes)
            if 0 < self._options.max_body_size < total:
                raise BadBody(f"MPUB of {total} bytes is larger than {self._options.max_body_size}")
        except NSQError as error:
            return failed(error)
        parts = [b"M", line, _length(total), _length(len(given))]
        for pair in zip(map(_length, sizes), given, strict=True):
            parts += pair
        return self._publish(b"", b"".join(parts), timeout)

    def dpub(
        self,
        topic: str,
        delay: timedelta,
        body: Body,
        *,
        headers: Headers | None = None,
        timeout: timedelta | None = None,
    ) -> asyncio.Future[Ids]:
        """Publish a message that is delivered after ``delay`` (0 to ``max_req_timeout``) at the earliest.

        Raises WrongType if the delay is not a timedelta, or the body is not bytes.
        """
        check_delay(delay)
        body = body_bytes(body)
        if headers or self._tracing is not None:
            check_headers(headers)
            return self._publish_with_headers("DPUB", topic, [body], [headers or {}], timeout, delay)
        try:
            self._pub_line(topic)
            self._check_size(len(body))
            self._check_delay(delay)
        except NSQError as error:
            return failed(error)
        return self._publish(b"", encoding.dpub(topic, delay // _MS, body), timeout)

    # --- called by the outlets ---

    def wanted(self) -> bool:
        """Return whether the outlets should stay connected: the producer is open, or has publishes to send."""
        return bool(self._waiting) or not self._closed

    def writable(self) -> None:
        """Send waiting publishes while a connection accepts them."""
        now = asyncio.get_running_loop().time()
        while self._waiting and (outlet := self._choose(now, self._waiting[0])) is not None:
            publish = self._waiting.popleft()
            self._waiting_bytes -= len(publish.data)
            if not publish.done():
                outlet.send(publish, now)

    def returned(self, publishes: deque[Publish]) -> None:
        """Take back publishes that a lost connection did not send, before all that wait."""
        self._waiting.extendleft(reversed(publishes))
        self._waiting_bytes += sum(len(publish.data) for publish in publishes)
        self.writable()

    def answered(self) -> None:
        """Note that an outlet received responses; a closing producer ends once all publishes have theirs."""
        if self._closed:
            while self._waiting and self._waiting[0].done():
                self._waiting_bytes -= len(self._waiting.popleft().data)
            if not self._waiting and not any(outlet.sent for outlet in self._outlets):
                self._idle.set()

    # --- inside ---

    def _pub_line(self, topic: str) -> bytes:
        """Return ``PUB <topic>\\n``, cached. Raises BadTopic, WrongType."""
        check_name(topic, "topic")
        line = self._pub_lines.get(topic)
        if line is None:
            if not is_valid_name(topic):
                raise BadTopic(f"topic name {topic!r} is not valid")
            if len(self._pub_lines) >= _KNOWN_TOPICS:
                self._pub_lines.clear()
            line = self._pub_lines[topic] = f"PUB {topic}\n".encode()
        return line

    def _check_size(self, size: int) -> None:
        if size == 0:
            raise BadMessage("a message body cannot be empty")
        if size > self._max_msg_size:
            raise BadMessage(f"message of {size} bytes is larger than {self._options.max_msg_size}")

    def _check_delay(self, delay: timedelta) -> None:
        if not timedelta(0) <= delay <= self._options.max_req_timeout:
            longest = shown_value(self._options.max_req_timeout)
            raise Invalid(f"delay {shown_value(delay)} is not within 0s..{longest}")

    def _publish_with_headers(
        self,
        verb: str,
        topic: str,
        bodies: Sequence[bytes],
        headers: Sequence[Headers],
        timeout: timedelta | None,
        delay: timedelta = timedelta(0),
    ) -> asyncio.Future[Ids]:
        """Publish with the headers of each message, and those that the tracing adds."""
        trace: PublishTrace | None = None
        if self._tracing is not None:
            trace = self._tracing.publish(topic, bodies, headers, batch=verb == "MPUB")
        try:
            publish = self._header_publish(verb, topic, bodies, headers, delay, trace)
        except NSQError as error:
            if trace:
                trace.ended(error, (), "")
            return failed(error)
        return self._publish(publish.line, publish.data, timeout, publish)

    def _header_publish(
        self,
        verb: str,
        topic: str,
        bodies: Sequence[bytes],
        headers: Sequence[Headers],
        delay: timedelta,
        trace: PublishTrace | None,
    ) -> HeaderPublish:
        """Return the publish. Raises NSQError."""
        if self._closed:
            raise ProducerClosed("the producer was closed; not stored")
        self._pub_line(topic)
        if not bodies:
            raise BadBody("MPUB without messages")
        self._check_size(min(map(len, bodies)))
        self._check_size(max(map(len, bodies)))
        self._check_delay(delay)
        command = f"{verb} {topic}" + (f" {delay // _MS}" if verb == "DPUB" else "")
        added = trace.headers if trace else [{}] * len(bodies)
        blocks = [_block(own, extra) for own, extra in zip(headers, added, strict=True)]
        fallback = self._options.headers_fallback
        if not any(headers) and fallback == "error":
            fallback = "drop"  # a node that takes no headers does not refuse what is traced
        if not self._options.headers and fallback == "error":
            raise HeadersNotSupported("headers need ProducerOptions(headers=True); not stored")
        loop = asyncio.get_running_loop()
        publish = HeaderPublish(
            loop=loop,
            command=command,
            messages=list(zip(blocks, bodies, strict=True)),
            fallback=fallback,
            limits=(self._max_msg_size, self._options.max_body_size or _NEVER),
            trace=trace,
        )
        publish.encode("", takes_headers=self._options.headers)  # checks sizes, and is what waits for a connection
        return publish

    def _publish(
        self, line: bytes, data: bytes, timeout: timedelta | None, publish: Publish | None = None
    ) -> asyncio.Future[Ids]:
        if self._closed:
            return failed(ProducerClosed("the producer was closed; not stored"))
        if timeout is not None:
            check_timeout(timeout)
        loop = asyncio.get_running_loop()
        now = loop.time()
        if publish is None:
            publish = Publish(loop=loop)
        publish.line = line
        publish.data = data
        publish.sent_to = ""
        publish.deadline = now + (self._timeout_s if timeout is None else timeout.total_seconds())
        outlet = None if self._waiting else self._choose(now, publish)
        if outlet is not None:
            outlet.send(publish, now)
        elif self._waiting_bytes + len(data) > self._options.max_waiting_bytes:
            publish.end(ProducerFull(f"{self._waiting_bytes} bytes wait for {self._names()}; not stored"))
            return publish
        else:
            self._waiting.append(publish)
            self._waiting_bytes += len(data)
            if not self._started:
                self._connect_all()
        if publish.deadline < self._timer_at:
            self._set_timer(publish.deadline)
        return publish

    def _choose(self, now: Seconds, publish: Publish) -> Outlet | None:
        """Return the outlet for the next publish; None if no outlet is ready. A stalled one is the last resort.

        A publish with headers goes to a node that takes them, if one is connected.
        """
        outlets = self._outlets
        if len(outlets) == 1:
            return outlets[0] if outlets[0].is_ready else None
        if self._in_turn:
            self._next = (self._next + 1) % len(outlets)
            outlets = outlets[self._next :] + outlets[: self._next]
        if publish.__class__ is not Publish:
            outlets = [each for each in outlets if each.takes_headers and each.is_ready] or outlets
        stalled = None
        for outlet in outlets:
            if outlet.is_ready:
                if not outlet.is_stalled(now, self._stalled_after_s):
                    return outlet
                stalled = stalled or outlet
        return stalled

    def _connect_all(self) -> None:
        self._started = True
        for outlet in self._outlets:
            outlet.keep_connecting()

    def _set_timer(self, at: Seconds) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = asyncio.get_running_loop().call_at(at, self._time_out)

    def _time_out(self) -> None:
        """End overdue publishes. One timer serves all publishes, because few ever time out."""
        now = asyncio.get_running_loop().time()
        self._timer, self._timer_at = None, _NEVER
        for queue in (self._waiting, *(outlet.sent for outlet in self._outlets)):
            for publish in queue:
                if publish.done():
                    continue
                if publish.deadline <= now:
                    publish.set_exception(self._timed_out(publish))
                else:
                    self._timer_at = min(self._timer_at, publish.deadline)
        while self._waiting and self._waiting[0].done():
            self._waiting_bytes -= len(self._waiting.popleft().data)
        if self._timer_at < _NEVER:
            self._set_timer(self._timer_at)
        self.answered()

    def _timed_out(self, publish: Publish) -> PublishTimedOut:
        if publish.sent_to:
            return PublishTimedOut(
                f"nsqd {publish.sent_to} did not answer in time; the message may or may not be stored"
            )
        reasons = "; ".join(dict.fromkeys(str(each.last_error) for each in self._outlets if each.last_error))
        why = f": {reasons}" if reasons else ""
        return PublishTimedOut(f"not sent to {self._names()} in time, so not stored{why}")

    def _names(self) -> str:
        return f"nsqd {' or '.join(outlet.address for outlet in self._outlets)}"


async def _failure_of(outlet: Outlet) -> ConnectFailed | None:
    try:
        await outlet.open()
    except ConnectFailed as error:
        return error
    return None


def _of_each(headers: Headers | Sequence[Headers], count: int) -> Sequence[Headers]:
    """Return the headers of each of ``count`` messages.

    Raises InvalidArgument if a sequence has another length, WrongType for anything else than mappings.
    """
    if isinstance(headers, Mapping):
        return [headers] * count
    check_headers_of_each(headers)
    if len(headers) != count:
        raise InvalidArgument(f"headers are given for {counted(len(headers), 'message')}, and bodies for {count}")
    return [each or {} for each in headers]


def _block(own: Headers, added: Headers) -> bytes:
    """Return the header block of a message: the caller's headers, with those that tracing adds if there is room.

    Raises BadHeaders, for the caller's only.
    """
    block = encode_headers(own) if own else b""
    headers = {name.lower(): value for name, value in own.items()}
    for name, value in added.items():
        if name not in headers:
            try:
                block = encode_headers({**headers, name: value})
            except BadHeaders as error:
                log.info("a message is published without a header of its trace: %s", error)
            else:
                headers[name] = value
    return block
