"""One nsqd of a producer: the connection to it and the publishes that wait for its answers."""

from __future__ import annotations

import asyncio
import logging
import random
import struct
from collections import deque
from itertools import groupby, islice
from operator import attrgetter
from typing import Protocol

from aionsq.connection import WRITE_BYTES, Connection
from aionsq.errors import ConnectFailed, ConnectionLost, HeadersNotSupported, Refused, TLSRequired
from aionsq.options import ProducerOptions
from aionsq.publish import HeaderPublish, Publish
from aionsq.reconnect import Reconnect
from nsqwire import frame
from nsqwire.errors import DRAINED, NSQError
from nsqwire.units import Seconds

log = logging.getLogger(__name__)

GATHER_FROM = 16
"""Smallest number of publishes to one topic in one iteration of the event loop that are sent as an MPUB."""
_CLOSED = "the producer was closed"
_OF_THEIR_SIZE = ("E_BAD_MESSAGE", "E_BAD_BODY", "E_INVALID")
"""Codes with which nsqd refuses a whole MPUB although some of its messages may be valid. It stores none of them."""
OK_BYTES = 2
DRAINED_PAUSE_S = 1.0
"""Shortest time until the next attempt to connect to a node that is being drained; the longest is twice that."""
_sizes = struct.Struct(">ii").pack
_line = attrgetter("line")


class Source(Protocol):
    """The producer's interface for its outlets."""

    def wanted(self) -> bool:
        """Return whether a lost connection must be reopened."""

    def writable(self) -> None:
        """Called when an outlet accepts publishes again."""

    def returned(self, publishes: deque[Publish]) -> None:
        """Take back publishes, which must be sent again, in order, before all others."""

    def answered(self) -> None:
        """Called when at least one publish has ended."""


class Outlet:
    """Sends publishes to one nsqd, in order, and matches its answers to them."""

    def __init__(self, address: str, options: ProducerOptions, source: Source) -> None:
        self.address = address
        self.sent: deque[Publish] = deque()
        """Publishes sent and not answered, including timed-out and cancelled ones, which nsqd still answers."""
        self.connection: Connection | None = None
        self.last_error: Exception | None = None
        self.takes_headers = False
        """Whether the connected node takes headers of messages."""
        self.heard_at: Seconds = 0.0
        """Loop time of the last answer, or of the first publish sent after all were answered."""
        self._options = options
        self._source = source
        self._gathered: list[Publish] = []
        """The newest publishes of ``sent``, which are not written to the connection yet."""
        self._gathered_bytes = 0
        self._gathers = options.gather
        self._counts: deque[int] = deque()
        """For each outstanding answer, the number of publishes of ``sent`` that it answers."""
        self._opening = asyncio.Lock()
        self._connecting: asyncio.Task[None] | None = None
        self._pauses = Reconnect(options.max_reconnect_delay)
        self._connected_at: Seconds = 0.0
        self._is_drained = False

    @property
    def is_ready(self) -> bool:
        """Whether the outlet accepts publishes now."""
        connection = self.connection
        return connection is not None and not connection.paused and not connection.is_closed

    def is_stalled(self, now: Seconds, limit_s: float) -> bool:
        """Whether answers are outstanding and none has arrived for more than ``limit_s``."""
        return bool(self.sent) and now - self.heard_at > limit_s

    def send(self, publish: Publish, now: Seconds) -> None:
        """Send a publish. The outlet must be ready."""
        assert self.connection is not None
        if publish.__class__ is not Publish and not self._encoded(publish):
            return
        if not self.sent:
            self.heard_at = now
        publish.sent_to = self.address
        self.sent.append(publish)
        if not self._gathered:
            asyncio.get_running_loop().call_soon(self._write)
        self._gathered.append(publish)
        self._gathered_bytes += len(publish.data)
        if self._gathered_bytes >= WRITE_BYTES:
            self._write()

    async def open(self) -> None:
        """Connect, unless there is a connection. Raises ConnectFailed, also for a node that is being drained.

        Such a node may end at any time, and whether it has read a publish that it did not answer is not known.
        """
        async with self._opening:
            if self.connection is not None:
                return
            connection, negotiated = await Connection.open(self.address, self._options, self)
            if connection.is_closed:  # closed before self.connection was set, so connection_closed did nothing
                raise ConnectFailed(self.address, "nsqd closed the connection")
            self._is_drained = negotiated.draining
            if self._is_drained:
                connection.abort(DRAINED)
                raise ConnectFailed(self.address, DRAINED)
            self.connection = connection
            self.takes_headers = negotiated.headers
            self._connected_at = _now()
            self.last_error = None
        self._source.writable()

    def keep_connecting(self) -> None:
        """Connect in the background, with retries until it succeeds."""
        if self.connection is None and (self._connecting is None or self._connecting.done()):
            self._connecting = asyncio.get_running_loop().create_task(self._try_until_connected())

    async def close(self) -> None:
        """Write what was sent, then close the connection."""
        if self._connecting is not None:
            self._connecting.cancel()
        if self.connection is not None:
            connection = self.connection
            self._write()
            connection.close(_CLOSED)
            await connection.closed.wait()

    # --- called by the connection ---

    def frames_received(self, data: bytes, frames: list[frame.Span]) -> None:
        sent = self.sent
        self.heard_at = _now()
        for frame_type, start, end in frames:
            if frame_type == frame.RESPONSE and self._counts:
                count = self._counts.popleft()
                if end - start == OK_BYTES:
                    for _ in range(count):
                        sent.popleft().end()
                    continue
                if self._end_with_ids(count, data[start:end]):
                    continue
            text = data[start : min(end, start + 200)].decode(errors="replace")
            self._broken(frame_type, text)
            break
        self._source.answered()

    def writable(self) -> None:
        self._source.writable()

    def connection_closed(self, connection: Connection, reason: str) -> None:
        if connection is self.connection:
            self._lost(reason)

    # --- inside ---

    def _encoded(self, publish: Publish) -> bool:
        """Encode a publish with headers for the node. Returns False, and ends the publish, if that is not possible."""
        assert isinstance(publish, HeaderPublish)
        try:
            publish.encode(self.address, takes_headers=self.takes_headers)
        except (HeadersNotSupported, NSQError) as error:
            publish.end(error)
            self._source.answered()
            return False
        return True

    def _end_with_ids(self, count: int, answer: bytes) -> bool:
        """End ``count`` publishes with the ids in ``OK <id> <id> …``. Returns False for another answer."""
        ok, *ids = answer.decode(errors="replace").split(" ")
        if ok != "OK" or (count > 1 and len(ids) != count):
            return False
        if count == 1:
            self.sent.popleft().end(ids=tuple(ids))
        else:
            for message_id in ids:
                self.sent.popleft().end(ids=(message_id,))
        return True

    def _write(self) -> None:
        """Write the publishes gathered in this iteration of the event loop."""
        gathered, self._gathered, self._gathered_bytes = self._gathered, [], 0
        if not gathered or self.connection is None:
            return
        parts: list[bytes] = []
        for line, publishes in groupby(gathered, _line):
            datas = [publish.data for publish in publishes]
            size = 4 + sum(map(len, datas))
            if line and self._gathers and len(datas) >= GATHER_FROM and size <= (self._options.max_body_size or size):
                many = (b"M", line) if line.startswith(b"P") else (b"HM", line[1:])  # MPUB, or HMPUB of HPUBs
                parts += (*many, _sizes(size, len(datas)), *datas)
                self._counts.append(len(datas))
            else:
                for data in datas:
                    parts += (line, data)
                self._counts.extend([1] * len(datas))
        self.connection.write(b"".join(parts))

    def _broken(self, frame_type: int, text: str) -> None:
        """Process an error frame or an unexpected frame, and abort the connection."""
        refused = frame_type == frame.ERROR and bool(self._counts)
        if refused:
            count = self._counts.popleft()
            if text.endswith(DRAINED):
                self._is_drained = True  # it has stored none of them, so they are sent to others, or here later
            elif count > 1 and text.startswith(_OF_THEIR_SIZE) and not TLSRequired.is_meant_by(text):
                self._part(count, text)
            else:
                error = TLSRequired(self.address, text) if TLSRequired.is_meant_by(text) else Refused(text)
                for _ in range(count):
                    self.sent.popleft().end(error)
        else:
            log.warning("nsqd %s: unexpected frame of type %d: %s", self.address, frame_type, text)
        if self.connection is not None:
            self.connection.abort(text)
            self._lost(text, unread=refused)

    def _part(self, count: int, text: str) -> None:
        """Mark the publishes of a refused MPUB to be sent one by one, so that nsqd refuses only the invalid ones."""
        log.info("nsqd %s refused an MPUB; sending its %d publishes one by one: %s", self.address, count, text)
        for publish in islice(self.sent, count):
            publish.send_alone()
        if not text.startswith("E_BAD_MESSAGE"):
            self._gathers = False

    def _lost(self, reason: str, *, unread: bool = False) -> None:
        """Handle the loss of the connection. ``unread``: nsqd did not read the unanswered publishes and stored none."""
        self.connection = None
        self._pauses.lasted(_now() - self._connected_at)
        self.last_error = ConnectionLost(self.address, reason)
        if reason != _CLOSED:
            log.info("nsqd %s: connection lost: %s", self.address, reason)
        sent, self.sent = self.sent, deque()
        self._gathered, self._gathered_bytes = [], 0
        self._counts.clear()
        if unread:
            for publish in sent:
                publish.sent_to = ""
        if unread or self._options.resend:
            self._source.returned(sent)
        else:
            for publish in sent:
                publish.end(ConnectionLost(self.address, reason))
        if self._source.wanted():
            self.keep_connecting()
        self._source.answered()

    async def _try_until_connected(self) -> None:
        while self.connection is None and self._source.wanted():
            if self._is_drained:  # and its drain may be cancelled at any time, so the pause does not grow
                delay_s = DRAINED_PAUSE_S * random.uniform(1.0, 2.0)
            else:
                delay_s = self._pauses.next_delay_s()
            await asyncio.sleep(delay_s)
            self._is_drained = False
            try:
                await self.open()
            except ConnectFailed as error:
                if self.last_error is None or str(error) != str(self.last_error):
                    log.warning("%s; retrying", error)
                self.last_error = error


def _now() -> Seconds:
    return asyncio.get_running_loop().time()
