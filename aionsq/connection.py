"""One TCP conversation with an nsqd: bytes from and to the socket, heartbeats, liveness."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import zlib
from collections.abc import Sequence
from typing import Protocol, cast

from aionsq.errors import ConnectFailed
from aionsq.handshake import Handshake, HandshakeFailed, Negotiated, Ready, Send, Step, Upgrade
from aionsq.options import ConnectionOptions
from nsqwire import command, frame

READ_BUFFER_BYTES = 256 * 1024
CLOSE_SECONDS = 1.0
"""How long a closing connection may take to write what was sent."""


class Owner(Protocol):
    """Whoever the conversation is held for."""

    def frames_received(self, frames: Sequence[tuple[int, bytes]]) -> None:
        """Frames that arrived together, ``(type, data)``, without heartbeats."""

    def writable(self) -> None:
        """The peer reads again; ``Connection.paused`` is false."""

    def connection_closed(self, connection: Connection, reason: str) -> None:
        """The conversation is over. Called once, only after ``open`` had returned."""


def split_address(address: str) -> tuple[str, int]:
    """``host:port`` or ``[v6]:port`` to its parts. Raises ValueError naming the address."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{address!r} is not host:port")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


def reason_of(error: BaseException) -> str:
    """An operating system error in a few words, without Python's decoration."""
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, socket.gaierror):
        return str(error.strerror)
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate does not hold: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).lower().replace("_", " ")
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno).lower()
    return str(error) or type(error).__name__


class Connection(asyncio.BufferedProtocol):
    """Made by :meth:`open`. ``send`` never waits: what one turn of the event loop sends goes out in one write."""

    def __init__(self, address: str, options: ConnectionOptions, owner: Owner, handshake: Handshake) -> None:
        self.address = address
        self.paused = False
        """True while the peer does not read what was already written."""
        self.closed = asyncio.Event()
        self._options = options
        self._owner = owner
        self._handshake: Handshake | None = handshake
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[Negotiated] = self._loop.create_future()
        self._transport: asyncio.Transport | None = None
        self._frames = frame.FrameReader()
        self._buffer = memoryview(bytearray(READ_BUFFER_BYTES))
        self._output: list[bytes] = []
        self._deflate: zlib._Compress | None = None
        self._inflate: zlib._Decompress | None = None
        self._inflating = False
        self._tls_start: asyncio.Task[None] | None = None
        self._last_read_at = self._loop.time()
        self._watch: asyncio.TimerHandle | None = None
        self._closing: asyncio.TimerHandle | None = None
        self._reason = ""

    @classmethod
    async def open(
        cls,
        address: str,
        options: ConnectionOptions,
        owner: Owner,
        topic: str | None = None,
        channel: str | None = None,
    ) -> tuple[Connection, Negotiated]:
        """Connect, identify and, with a topic and a channel, subscribe. Raises ConnectFailed, ValueError (address)."""
        host, port = split_address(address)
        self = cls(address, options, owner, Handshake(options, topic, channel))
        try:
            async with asyncio.timeout(options.dial_timeout.total_seconds()):
                await self._loop.create_connection(lambda: self, host, port)
            async with asyncio.timeout(options.read_timeout.total_seconds()):
                return self, await self._ready
        except (OSError, HandshakeFailed) as error:
            self.abort("not brought up")
            raise ConnectFailed(address, reason_of(error)) from error
        except asyncio.CancelledError:
            self.abort("not brought up")
            raise

    @property
    def is_closed(self) -> bool:
        """True once closing has begun, from either side."""
        return self._transport is None or self._transport.is_closing()

    def send(self, data: bytes) -> None:
        """Write at the end of this turn of the event loop. Dropped when the connection is closed."""
        if not self._output:
            self._loop.call_soon(self._flush)
        self._output.append(data)

    def close(self, reason: str) -> None:
        """Write what was sent, then close."""
        self._flush()
        self._reason = self._reason or reason
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()
            self._closing = self._loop.call_later(CLOSE_SECONDS, self._transport.abort)

    def abort(self, reason: str) -> None:
        """Close at once."""
        self._reason = self._reason or reason
        if self._transport is not None:
            self._transport.abort()

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        first = self._transport is None
        self._transport = cast(asyncio.Transport, transport)
        if first and self._handshake is not None:
            self._watch_silence()
            self._take(self._handshake.begin())

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._last_read_at = self._loop.time()
        data: bytes | memoryview = self._buffer[:nbytes]
        try:
            self._frames.feed(self._inflate.decompress(data) if self._inflate else data)
            frames = self._read_frames()
        except (frame.FrameError, zlib.error, HandshakeFailed) as error:
            self._reason = str(error)
            if not self._ready.done():
                self._ready.set_exception(HandshakeFailed(str(error)))
            self.abort(str(error))
            return
        if frames:
            self._owner.frames_received(frames)

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        self._owner.writable()

    def eof_received(self) -> None:
        self._reason = self._reason or "nsqd closed it"

    def connection_lost(self, error: Exception | None) -> None:
        self.closed.set()
        self._output.clear()
        for timer in (self._watch, self._closing):
            if timer is not None:
                timer.cancel()
        if self._tls_start is not None:
            self._tls_start.cancel()
        reason = self._reason or (reason_of(error) if error else "nsqd closed it")
        if not self._ready.done():
            self._ready.set_exception(HandshakeFailed(reason))
        elif self._handshake is None:
            self._owner.connection_closed(self, reason)

    def _read_frames(self) -> list[tuple[int, bytes]]:
        """The frames that have arrived and are for the owner."""
        while self._handshake is not None and (received := next(iter(self._frames), None)) is not None:
            self._take(self._handshake.received(*received))
            if self._inflate is not None and not self._inflating:
                # What came together with the answer to IDENTIFY is compressed already.
                self._inflating = True
                self._frames.feed(self._inflate.decompress(self._frames.take_rest()))
        frames: list[tuple[int, bytes]] = []
        if self._handshake is None:
            for frame_type, data in self._frames:
                if frame_type == frame.RESPONSE and data == frame.HEARTBEAT:
                    self.send(command.NOP)
                else:
                    frames.append((frame_type, data))
        return frames

    def _take(self, steps: Sequence[Step]) -> None:
        for step in steps:
            if isinstance(step, Send):
                self.send(step.data)
            elif isinstance(step, Ready):
                self._handshake = None
                if not self._ready.done():
                    self._ready.set_result(step.negotiated)
            elif step is Upgrade.TLS:
                self._tls_start = self._loop.create_task(self._start_tls())
            else:
                level = self._handshake.negotiated.deflate_level if self._handshake else zlib.Z_DEFAULT_COMPRESSION
                self._deflate = zlib.compressobj(level, wbits=-zlib.MAX_WBITS)
                self._inflate = zlib.decompressobj(wbits=-zlib.MAX_WBITS)

    async def _start_tls(self) -> None:
        assert self._transport is not None
        try:
            self._transport = await self._loop.start_tls(
                self._transport, self, self._options.ssl_context(), server_hostname=split_address(self.address)[0]
            )
        except OSError as error:  # SSLError is one
            if not self._ready.done():
                self._ready.set_exception(HandshakeFailed(f"TLS: {reason_of(error)}"))
            self.abort(f"TLS: {reason_of(error)}")

    def _flush(self) -> None:
        if not self._output:
            return
        data = b"".join(self._output)
        self._output.clear()
        if self._transport is None or self._transport.is_closing():
            return
        if self._deflate is not None:
            data = self._deflate.compress(data) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        self._transport.write(data)

    def _watch_silence(self) -> None:
        """Close when nothing has arrived for ``read_timeout``: heartbeats should have."""
        limit = self._options.read_timeout.total_seconds()
        left = self._last_read_at + limit - self._loop.time()
        if left <= 0:
            self.abort(f"heard nothing for {limit:g}s")
        else:
            self._watch = self._loop.call_later(left, self._watch_silence)
