"""One TCP connection to an nsqd: socket I/O, heartbeats and the detection of dead connections."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Sequence
from functools import partial
from typing import Protocol, cast

from aionsq.addresses import check_address, is_unix_path, local_address, split_address
from aionsq.errors import ConnectFailed, InvalidArgument
from aionsq.handshake import Handshake, HandshakeFailed, Negotiated, Ready, Send, Step, Upgrade
from aionsq.options import ConnectionOptions
from nsqwire import encoding, frame
from nsqwire.codec import Codec, Deflate, Snappy, StreamBroken, StreamEnded
from nsqwire.units import Seconds

READ_BUFFER_BYTES = 256 * 1024
_HEARTBEAT_BYTES = len(frame.HEARTBEAT)
LATE_SECONDS = 0.05
"""If the check for silence runs this late, the event loop was blocked, and the check is repeated after this time."""
WRITE_BYTES = 32 * 1024
"""Output of this size is written at once, not in the event loop's next iteration, so that nsqd can start on it."""
CLOSE_SECONDS = 1.0
"""Longest time for which a closing connection writes its remaining output."""


class Owner(Protocol):
    """The object that uses a connection: a producer's outlet or a consumer's subscription."""

    def frames_received(self, data: bytes, frames: list[frame.Span]) -> None:
        """Process frames that arrived together: their spans in ``data``, heartbeats excluded. Raises FrameError."""

    def writable(self) -> None:
        """Called when nsqd reads again; ``Connection.paused`` is False."""

    def connection_closed(self, connection: Connection, reason: str) -> None:
        """Called once when the connection is closed after a successful handshake, possibly before ``open`` returns."""


def reason_of(error: BaseException) -> str:
    """Return the text of an operating system's error, without the error number and the names that Python adds."""
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, socket.gaierror):
        return str(error.strerror)
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verification failed: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).lower().replace("_", " ")
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno).lower()
    return str(error) or type(error).__name__


class Connection(asyncio.BufferedProtocol):
    """A connection, created by :meth:`open`. ``send`` never blocks; the output of one iteration is written together."""

    def __init__(self, address: str, options: ConnectionOptions, owner: Owner, handshake: Handshake) -> None:
        self.address = address
        self.paused = False
        """True while much output is buffered because nsqd does not read."""
        self.closed = asyncio.Event()
        self._options = options
        self._owner = owner
        self._handshake: Handshake | None = handshake
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[Negotiated] = self._loop.create_future()
        self._transport: asyncio.Transport | None = None
        self._frames = frame.FrameReader(options.max_frame_bytes)
        self._buffer = memoryview(bytearray(READ_BUFFER_BYTES))
        self._output: list[bytes] = []
        self._output_bytes = 0
        self._codec: Codec | None = None
        self._decoding = False
        self._tls_start: asyncio.Task[None] | None = None
        self._last_read_at: Seconds = self._loop.time()
        self._watch: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
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
        """Connect, identify and, given a topic and a channel, subscribe.

        Raises ConnectFailed and, for the address, InvalidArgument.
        """
        check_address(address)
        self = cls(address, options, owner, Handshake(options, topic, channel))
        try:
            async with asyncio.timeout(options.dial_timeout.total_seconds()):
                await self._connect()
            async with asyncio.timeout(options.read_timeout.total_seconds()):
                return self, await self._ready
        except (OSError, HandshakeFailed) as error:
            self.abort("the handshake did not complete")
            reason = reason_of(error)
            if isinstance(error, FileNotFoundError) and is_unix_path(address):
                reason += " (an address with a slash is the path of a Unix socket)"
            raise ConnectFailed(address, reason) from error
        except asyncio.CancelledError:
            self.abort("the handshake did not complete")
            raise

    async def _connect(self) -> None:
        if is_unix_path(self.address):
            await self._loop.create_unix_connection(lambda: self, self.address)
        else:
            host, port = split_address(self.address)
            here = local_address(self._options.local_addr)
            await self._loop.create_connection(lambda: self, host, port, local_addr=here)

    @property
    def is_closed(self) -> bool:
        """True as soon as either side has begun to close the connection."""
        return self._transport is None or self._transport.is_closing()

    def send(self, data: bytes) -> None:
        """Write in the event loop's next iteration, or at once if WRITE_BYTES of output have been collected.

        Does nothing on a closed connection.
        """
        if not self._output:
            self._loop.call_soon(self._flush)
        self._output.append(data)
        self._output_bytes += len(data)
        if self._output_bytes >= WRITE_BYTES:
            self._flush()

    def write(self, data: bytes) -> None:
        """Write now, after earlier output. Does nothing on a closed connection."""
        self._output.append(data)
        self._flush()

    def close(self, reason: str) -> None:
        """Write the remaining output, then close."""
        self._flush()
        self._reason = self._reason or reason
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()
            self._closing = self._loop.call_later(CLOSE_SECONDS, self._transport.abort)

    def abort(self, reason: str) -> None:
        """Close at once, without writing the remaining output."""
        self._reason = self._reason or reason
        if self._transport is not None:
            self._transport.abort()

    # --- called by asyncio ---

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
        try:
            data = bytes(self._buffer[:nbytes])
            if self._codec is None:
                self._received(data)
            else:
                self._decode(data)
        except StreamEnded:
            self.abort("nsqd ended the compressed stream")
        except (frame.FrameError, StreamBroken, HandshakeFailed) as error:
            self._reason = str(error)
            if not self._ready.done():
                self._ready.set_exception(HandshakeFailed(str(error)))
            self.abort(str(error))

    def pause_writing(self) -> None:
        self.paused = True
        self._watch_stall(None)

    def resume_writing(self) -> None:
        self.paused = False
        if self._stall is not None:
            self._stall.cancel()
        self._owner.writable()

    def eof_received(self) -> None:
        self._reason = self._reason or "nsqd closed the connection"

    def connection_lost(self, error: Exception | None) -> None:
        self.closed.set()
        self._output.clear()
        for timer in (self._watch, self._stall, self._closing):
            if timer is not None:
                timer.cancel()
        if self._tls_start is not None:
            self._tls_start.cancel()
        reason = self._reason or (reason_of(error) if error else "nsqd closed the connection")
        if not self._ready.done():
            self._ready.set_exception(HandshakeFailed(reason))
        elif self._handshake is None:
            self._owner.connection_closed(self, reason)

    def _received(self, data: bytes) -> None:
        """Process decrypted and decompressed input."""
        if self._handshake is not None:
            self._continue_handshake(data)
            data = b""
            if self._in_handshake():
                return
        data, frames = self._frames.take(data)
        heartbeats = [
            span
            for span in frames
            if span[2] - span[1] == _HEARTBEAT_BYTES and data[span[1] : span[2]] == frame.HEARTBEAT
        ]
        if heartbeats:
            self.send(encoding.NOP * len(heartbeats))
            frames = [span for span in frames if span not in heartbeats]
        if frames:
            self._owner.frames_received(data, frames)

    def _continue_handshake(self, data: bytes) -> None:
        self._frames.feed(data)
        while self._handshake is not None and (received := next(iter(self._frames), None)) is not None:
            self._take(self._handshake.received(*received))
            if self._codec is not None and not self._decoding:
                # Bytes after the response to IDENTIFY are compressed already.
                self._decoding = True
                self._decode(self._frames.take_rest())

    def _in_handshake(self) -> bool:
        return self._handshake is not None

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
            elif step is Upgrade.SNAPPY:
                self._codec = Snappy()
            else:
                assert self._handshake is not None, "layers are added during the handshake only"
                self._codec = Deflate(self._handshake.negotiated.deflate_level)

    def _decode(self, data: bytes) -> None:
        assert self._codec is not None
        for piece in self._codec.decode(data):
            self._received(piece)

    async def _start_tls(self) -> None:
        assert self._transport is not None
        try:
            host = "localhost" if is_unix_path(self.address) else split_address(self.address)[0]
            self._transport = await self._loop.start_tls(
                self._transport, self, self._options.ssl_context(), server_hostname=host
            )
        except (OSError, InvalidArgument) as error:  # SSLError is an OSError; a file that has gone is the other
            if not self._ready.done():
                self._ready.set_exception(HandshakeFailed(f"TLS: {reason_of(error)}"))
            self.abort(f"TLS: {reason_of(error)}")

    def _flush(self) -> None:
        if not self._output:
            return
        data = b"".join(self._output)
        self._output.clear()
        self._output_bytes = 0
        if self._transport is None or self._transport.is_closing():
            return
        if self._codec is not None:
            data = self._codec.encode(data)
        self._transport.write(data)

    def _watch_silence(self, *, again: bool = False) -> None:
        """Close the connection if nothing has arrived for ``read_timeout``; nsqd sends heartbeats more often."""
        if not self._options.has_heartbeats:
            return
        limit = self._options.read_timeout.total_seconds()
        left = self._last_read_at + limit - self._loop.time()
        if left > 0:
            self._watch = self._loop.call_later(left, self._watch_silence)
        elif left < -LATE_SECONDS and not again:
            # The event loop was blocked, and input that arrived meanwhile has not been read yet.
            self._watch = self._loop.call_later(LATE_SECONDS, partial(self._watch_silence, again=True))
        else:
            self.abort(f"received nothing for {limit:g}s")

    def _watch_stall(self, left_before: int | None) -> None:
        """Close the connection if nsqd has read nothing of the buffered output for ``write_timeout``."""
        assert self._transport is not None
        limit = self._options.write_timeout.total_seconds()
        left = self._transport.get_write_buffer_size()
        if left_before is not None and left >= left_before:
            self.abort(f"nsqd read nothing for {limit:g}s")
        else:
            self._stall = self._loop.call_later(limit, self._watch_stall, left)
