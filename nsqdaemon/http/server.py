"""HTTP connections on asyncio transports. The only file of this package with asyncio's callbacks."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, cast

from nsqdaemon.descriptors import is_for_requests
from nsqdaemon.http.connection import BodyLimit, Connection, Limits
from nsqdaemon.http.heads import PlainHead, plain_head
from nsqdaemon.http.messages import PendingResponse, Request, Response
from nsqdaemon.http.router import Answer
from nsqdaemon.input_budget import LONG_BYTES, InputBudget
from nsqwire.addresses import address_text
from nsqwire.durations import format_duration
from nsqwire.units import Seconds

log = logging.getLogger(__name__)

AnswerRequest = Callable[[Request], Answer]
OnAnswered = Callable[[Request, Response, int], None]

_FLUSH_AT: Final = 64 * 1024
_LINGER_S: Final = 5.0
_PIECE_BYTES: Final = 32 * 1024
"""Bytes of a read that are parsed at a time, before their requests are answered and the clock is checked."""
_SMALL_READ_BYTES: Final = 4 * 1024
"""Reads of up to this size are handled at once, even if the time slice is used up."""
_CHECKED_REQUESTS: Final = 8
"""Number of requests between two reads of the clock."""
_LARGE_BODY_BYTES: Final = 16 * 1024
"""The clock is also read after each request with a larger body."""


class Slices(Protocol):
    """Runs long work in slices of time. A job is called with its deadline, and queues itself again for the rest."""

    def later(self, job: Callable[[float], None]) -> None:
        """Queue ``job``; it is called with the end of its slice, in seconds of ``clock``."""
        ...

    def deadline(self) -> Seconds:
        """Return the end of a slice that begins now, in seconds of ``clock``."""
        ...

    def clock(self) -> Seconds:
        """Return monotonic seconds."""
        ...

    def is_spent(self) -> bool:
        """Return whether the slice of this turn of the event loop is used up."""
        ...


def log_request(request: Request, response: Response, elapsed_ns: int) -> None:
    """nsqd's request line: ``200 GET /ping (127.0.0.1:46054) 1.743µs``."""
    target = request.target.decode("latin-1")
    elapsed = format_duration(elapsed_ns)
    log.info("%d %s %s (%s) %s", response.status, request.method, target, request.remote_address, elapsed)


class HTTPServer:
    """Creates the protocols of one listening socket and closes idle connections.

    ``answer`` (usually ``Router.answer``) must not raise. ``on_answered`` is called for every request that is not
    quiet, with its duration in nanoseconds. A connection without traffic for ``idle_timeout_s`` seconds is closed,
    between requests or within one.
    """

    def __init__(
        self,
        answer: AnswerRequest,
        *,
        limits: Limits | None = None,
        idle_timeout_s: float = 300.0,
        on_answered: OnAnswered | None = log_request,
        budget: InputBudget | None = None,
        slices: Slices | None = None,
        body_limit: BodyLimit | None = None,
        plain_head: PlainHead = plain_head,
    ) -> None:
        """``budget`` limits the memory of unfinished request bodies over all connections, and ``slices`` the time that
        one connection takes in a turn of the event loop; None means no limit. ``body_limit`` (usually
        ``Router.body_limit``) and ``plain_head`` are passed to each Connection."""
        self.answer = answer
        self.limits = limits or Limits()
        self.on_answered = on_answered
        self.budget = budget
        self.slices = slices
        self.new_connection = partial(Connection, self.limits, body_limit=body_limit, plain_head=plain_head)
        self.connections: set[HTTPProtocol] = set()
        self._idle_timeout_s = idle_timeout_s
        self._sweeper: asyncio.TimerHandle | None = None
        self._closing = False
        self._all_gone: asyncio.Event | None = None

    def protocol(self) -> asyncio.Protocol:
        """The factory for ``loop.create_server`` and ``loop.create_unix_server``."""
        if self._sweeper is None and not self._closing:
            self._sweeper = asyncio.get_running_loop().call_later(self._idle_timeout_s / 4, self._sweep)
        return HTTPProtocol(self)

    async def close(self, grace_s: float = 1.0) -> None:
        """Close idle connections now and the others after their next response, or after ``grace_s``."""
        self._closing = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self.connections):
            connection.finish()
        if self.connections:
            self._all_gone = asyncio.Event()
            try:
                async with asyncio.timeout(grace_s):
                    await self._all_gone.wait()
            except TimeoutError:
                for connection in list(self.connections):
                    connection.abort()

    def add(self, connection: HTTPProtocol, descriptor: int) -> None:
        """Add a new connection. If its descriptor is one of the last, close a quarter of those that wait for a request:
        the ones that were quiet for the longest time. The next connections then have lower descriptors."""
        if not is_for_requests(descriptor):
            waiting = [each for each in self.connections if each.waits_for_request]
            waiting.sort(key=lambda each: each.last_traffic)
            log.warning("descriptors run out: %d HTTP connections that wait are closed", -(-len(waiting) // 4))
            for each in waiting[: -(-len(waiting) // 4)]:
                each.abort()
        self.connections.add(connection)

    def forget(self, connection: HTTPProtocol) -> None:
        """Remove a connection that has ended or was taken over."""
        self.connections.discard(connection)
        if self._all_gone is not None and not self.connections:
            self._all_gone.set()

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        quiet_since = loop.time() - self._idle_timeout_s
        for connection in list(self.connections):
            connection.close_if_quiet(quiet_since)
        self._sweeper = loop.call_later(self._idle_timeout_s / 4, self._sweep) if self.connections else None


class HTTPProtocol(asyncio.Protocol):
    """One connection. Requests are answered in order; reading stops while the client does not read the responses."""

    def __init__(self, server: HTTPServer) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self.last_traffic = self._loop.time()
        self._write_paused = False
        self._read_paused = False
        self._waits_for_memory = False
        self._waits_for_slice = False
        self._unparsed = b""  # rest of the last read, while the connection waits for its next time slice
        self._is_counted = False  # in the server's budget
        self._finishing = False
        self._lost = False
        self._pending: Request | None = None  # the last request taken, until it is answered
        self._pending_since_ns = 0
        self._future: asyncio.Future[Response] | None = None  # referenced here because asyncio has weak references only
        self._linger: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport
        self._connection: Connection

    # --- called by asyncio ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._connection = self._server.new_connection(address_text(transport.get_extra_info("peername")))
        connected = transport.get_extra_info("socket")
        self._server.add(self, -1 if connected is None else connected.fileno())

    def data_received(self, data: bytes) -> None:
        self.last_traffic = self._loop.time()
        if self._linger is not None:
            return
        if self._waits_for_slice:  # a lower layer may deliver more after reading was paused
            self._unparsed += data
        elif len(data) <= _SMALL_READ_BYTES:
            self._connection.received(data)
            self._answer_requests()
        elif (slices := self._server.slices) is not None and slices.is_spent():
            self._unparsed = data
            self._continue_later(slices)
        else:
            self._take(data)
        connection = self._connection
        if self._is_counted or (connection.within_message and connection.unfinished_bytes > LONG_BYTES):
            self._count_unfinished()

    def eof_received(self) -> bool:
        # A client may shut down its side and still wait for responses.
        if self._connection.has_unanswered and self._linger is None:
            self._finishing = True
            return True
        return False

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self.last_traffic = self._loop.time()
        self._write_paused = False
        self._answer_requests()

    def connection_lost(self, error: Exception | None) -> None:
        # A handler that is running continues: its action, such as publishing, was requested.
        self._lost = True
        if self._server.budget is not None:
            self._server.budget.forget(self)
        self._connection.drop()
        self._server.forget(self)
        if self._linger is not None:
            self._linger.cancel()

    # --- called by the server ---

    def finish(self) -> None:
        """Close as soon as all received requests are answered."""
        self._finishing = True
        if not self._connection.has_unanswered:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection at once, without sending what is buffered."""
        self._transport.abort()

    @property
    def waits_for_request(self) -> bool:
        """True if no request is being answered, and the connection is not closed."""
        return self._pending is None and not self._waits_for_memory and not self._transport.is_closing()

    def close_if_quiet(self, since: Seconds) -> None:
        """Close the connection if it had no traffic since ``since``, monotonic seconds, and no request is being
        answered."""
        if self.last_traffic < since and self._pending is None and not self._waits_for_memory:
            # abort, because close would wait for a client that does not read
            self._transport.abort()

    # --- called by the budget ---

    def wait_for_memory(self) -> None:
        self._waits_for_memory = True
        self._adjust_reading()

    def memory_is_free(self) -> None:
        if self._waits_for_memory:
            self._waits_for_memory = False
            self.last_traffic = self._loop.time()
            self._adjust_reading()

    def out_of_memory(self) -> None:
        size = self._connection.unfinished_bytes
        log.error("closed: %d bytes of an unfinished request from %s kept other clients waiting", size, self._peer)
        self._transport.abort()

    def _count_unfinished(self) -> None:
        if self._server.budget is None or self._lost:
            return
        held = self._connection.unfinished_bytes
        self._is_counted = held > LONG_BYTES and not self._transport.is_closing()
        self._server.budget.update(self, held if self._is_counted else 0, is_new=self._connection.is_new_unfinished)

    @property
    def _peer(self) -> str:
        return self._connection.remote_address

    # --- inside ---

    def _take(self, data: bytes, deadline: Seconds = 0.0) -> None:
        """Parse input and answer its requests until the deadline; 0 means the deadline of a new slice."""
        if len(data) <= _PIECE_BYTES:
            self._connection.received(data)
            self._answer_requests(deadline)
            return
        slices = self._server.slices
        if slices is not None and not deadline:
            deadline = slices.deadline()
        for start in range(0, len(data), _PIECE_BYTES):
            if self._waits_for_slice:
                self._unparsed = data[start:]
                return
            self._connection.received(data[start : start + _PIECE_BYTES])
            self._answer_requests(deadline)
            if slices is not None and not self._waits_for_slice and slices.clock() >= deadline:
                self._continue_later(slices)

    def _continue_later(self, slices: Slices) -> None:
        self._waits_for_slice = True
        self._adjust_reading()
        slices.later(self._continue)

    def _continue(self, deadline: Seconds) -> None:
        self._waits_for_slice = False
        if self._lost or self._linger is not None:
            return
        self.last_traffic = self._loop.time()
        self._answer_requests(deadline)
        if self._unparsed and not self._waits_for_slice:
            data, self._unparsed = self._unparsed, b""
            self._take(data, deadline)
        if not self._waits_for_slice:
            self._adjust_reading()

    def _answer_requests(self, deadline: Seconds = 0.0) -> None:
        connection, server = self._connection, self._server
        slices = server.slices
        unsent = 0
        unchecked = _CHECKED_REQUESTS
        while self._pending is None and not self._write_paused and not self._waits_for_slice:
            request = connection.next_request()
            if request is None:
                break
            started_ns = time.perf_counter_ns()
            answer = server.answer(request)
            if not isinstance(answer, Response):
                self._pending, self._pending_since_ns = request, started_ns
                if isinstance(answer, PendingResponse):
                    answer.then(self._respond_pending)
                else:
                    self._future = asyncio.ensure_future(answer)
                    self._future.add_done_callback(self._respond_from_future)
                break
            self._respond(answer, request, started_ns)
            unsent += answer.size
            if unsent > _FLUSH_AT:
                self._send()  # may call pause_writing
                unsent = 0
            unchecked -= 1
            if (
                (not unchecked or len(request.body) > _LARGE_BODY_BYTES)
                and slices is not None
                and connection.has_unanswered
            ):
                unchecked = _CHECKED_REQUESTS
                if not deadline:
                    deadline = slices.deadline()
                elif slices.clock() >= deadline:
                    self._continue_later(slices)
        if connection.output:
            self._send()
        if connection.closed or (self._finishing and not connection.has_unanswered):
            self._close_gently()
        elif self._write_paused or self._read_paused or (connection.waiting and connection.full):
            self._adjust_reading()

    def _respond_from_future(self, future: asyncio.Future[Response]) -> None:
        self._future = None
        self._respond_pending(future.result())

    def _respond_pending(self, response: Response) -> None:
        request, self._pending = self._pending, None
        if self._lost or request is None:
            return
        self._respond(response, request, self._pending_since_ns)
        if self._finishing or self._read_paused or self._connection.has_unanswered or self._connection.closed:
            self._answer_requests()
        else:
            self._send()

    def _send(self) -> None:
        if self._connection.has_large_output:
            for part in self._connection.take_parts():
                self._transport.write(part)
        else:
            self._transport.write(self._connection.take_output())

    def _respond(self, response: Response, request: Request, started_ns: int) -> None:
        self._connection.respond(response)
        if not request.quiet and self._server.on_answered is not None:
            self._server.on_answered(request, response, time.perf_counter_ns() - started_ns)

    def _adjust_reading(self) -> None:
        pause = self._write_paused or self._waits_for_memory or self._waits_for_slice or self._connection.full
        if pause != self._read_paused and not self._transport.is_closing():
            self._read_paused = pause
            if pause:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _close_gently(self) -> None:
        """Send the end of the stream, then read for a moment. Closing with unread bytes would reset the connection, and
        the client could lose the response that has the reason."""
        if self._linger is not None or self._transport.is_closing():
            return
        if self._connection.stream is not None:
            self._hand_over(self._connection.stream.protocol)
            return
        if self._transport.can_write_eof():
            self._transport.write_eof()
            if self._read_paused:
                self._transport.resume_reading()
            self._linger = self._loop.call_later(_LINGER_S, self._transport.close)
        else:
            self._transport.close()

    def _hand_over(self, protocol: asyncio.Protocol) -> None:
        """Give the connection to ``protocol``, which closes it."""
        self._server.forget(self)
        if self._read_paused:
            self._transport.resume_reading()
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
