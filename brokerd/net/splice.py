"""Passes the connections of a follower's clients on to the primary, and the bytes in both directions."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from typing import Final, cast

from brokerd.net.refused_connections import RefusedConnections
from nsqdaemon.descriptors import is_for_passed_on

NO_PRIMARY: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json; charset=utf-8\r\n"
    b'Connection: close\r\nContent-Length: 24\r\n\r\n{"message":"NO_PRIMARY"}'
)
"""The response to an HTTP request while nobody leads."""
TLS_REFUSAL: Final = bytes((0x15, 0x03, 0x03, 0, 2, 2, 80))
"""The fatal alert ``internal_error`` of TLS: without it, a client could not tell a refusal from a broken connection."""
CONNECT_TIMEOUT_S: Final = 5.0

Target = Callable[[], tuple[str, int] | None]
"""Returns the address of the primary; None if there is none."""


class Splicer:
    """The connections that are passed on. ``refusal`` is sent to a client if there is no primary.

    Connections that would take the last descriptors are closed, and counted in ``refused``.
    """

    def __init__(self, target: Target, refusal: bytes = b"", refused: RefusedConnections | None = None) -> None:
        self._target = target
        self._refusal = refusal
        self._refused = RefusedConnections() if refused is None else refused
        self._ends: set[_End] = set()

    def protocol(self) -> asyncio.BaseProtocol:
        """The protocol of a client's connection."""
        return _Client(self)

    def close(self) -> None:
        """Close all connections at once."""
        for end in list(self._ends):
            end.abort()

    def opened(self, end: _End) -> None:
        """Note that a connection is open."""
        self._ends.add(end)

    def closed(self, end: _End) -> None:
        """Note that a connection is closed."""
        self._ends.discard(end)

    async def connect(self, client: _Client) -> _End:
        """Connect to the primary. Raises OSError, also if there is none."""
        target = self._target()
        if target is None:
            raise ConnectionRefusedError("there is no primary")
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            transport, end = await loop.create_connection(lambda: _End(self, client), *target)
        if not self.has_room_for(transport):
            transport.abort()
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return end

    def has_room_for(self, transport: asyncio.BaseTransport) -> bool:
        """Return whether a connection may be kept. If not, it is counted as refused."""
        connected = transport.get_extra_info("socket")
        if connected is None or is_for_passed_on(connected.fileno()):
            return True
        self._refused.add(asyncio.get_running_loop().time())
        return False

    @property
    def refusal(self) -> bytes:
        """What a client is sent if it cannot be passed on."""
        return self._refusal


class _End(asyncio.Protocol):
    """One of two connections. The bytes that it receives are written to the other one."""

    def __init__(self, splicer: Splicer, other: _End | None = None) -> None:
        self.splicer = splicer
        self.other = other
        self.transport: asyncio.Transport | None = None
        self.has_ended = False
        """True once its remote end sends nothing more. When this is so for both, both connections are closed."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.splicer.opened(self)

    def data_received(self, data: bytes) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)

    def eof_received(self) -> bool:
        self.has_ended = True
        if self.other is None or self.other.transport is None:
            return True
        self.other.transport.write_eof()
        return not self.other.has_ended

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None and not self.other.transport.is_closing():
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.splicer.closed(self)
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()

    def abort(self) -> None:
        """Close the connection at once."""
        if self.transport is not None:
            self.transport.abort()


class _Client(_End):
    """A client's connection. Bytes that arrive before there is one to the primary are kept."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._early = list[bytes]()
        self._connecting: asyncio.Future[_End] | None = None
        if not self.splicer.has_room_for(transport):
            self.abort()
            return
        self._connecting = asyncio.ensure_future(self.splicer.connect(self))
        self._connecting.add_done_callback(self._connected)

    def _connected(self, done: asyncio.Future[_End]) -> None:
        assert self.transport is not None
        if done.cancelled() or self.transport.is_closing():
            if not done.cancelled() and done.exception() is None:
                done.result().abort()
            return
        if done.exception() is not None:
            self.transport.write(self.splicer.refusal)
            self.transport.close()
            return
        self.other = done.result()
        for data in self._early:
            self.data_received(data)
        self._early.clear()
        if self.has_ended:
            self.eof_received()
        self.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            super().data_received(data)
        elif self.transport is not None:
            self._early.append(data)
            self.transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
        super().connection_lost(exc)
