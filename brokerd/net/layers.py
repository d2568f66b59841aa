"""TLS and compression between a socket and a Connection.

If IDENTIFY has granted either, Layers replaces the Connection as the protocol of the transport. It passes the decrypted
and decompressed input to the Connection. Other connections do not use this module.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from nsqwire.codec import Codec, Deflate, Snappy, StreamBroken, StreamEnded
from nsqwire.errors import IdentifyFailed
from nsqwire.identify import Terms
from nsqwire.session import OK
from nsqwire.units import Seconds

if TYPE_CHECKING:
    from brokerd.net.tcp import Connection
    from brokerd.net.tls import TLSConversation

SMALL_READ_BYTES: Final = 512
"""Reads of up to this size are handled at once, even late in a turn: they decompress to a few pieces at most."""
HANDSHAKE_SECONDS: Final = 5.0

logger = logging.getLogger("brokerd")


class Layers(asyncio.BufferedProtocol):
    """TLS on the side of the socket, and a compression within it; either may be missing.

    ``scratch`` is the sessions' shared buffer.
    """

    def __init__(self, connection: Connection, transport: asyncio.Transport, scratch: bytearray) -> None:
        self.in_handshake = False
        """True while only the handshake may be sent."""
        self._connection = connection
        self._transport = transport
        self._scratch = scratch
        self._terms = connection.session.terms
        self._tls: TLSConversation | None = None
        self._codec: Codec | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._pieces: Iterator[bytes] = iter(())

    def add(self, terms: Terms) -> None:
        """Begin the layers of ``terms``. The OK of each layer is sent through it."""
        self._terms = terms
        if terms.tls:
            assert self._connection.tls is not None, "TLS is granted only where there is a certificate"
            self._tls = self._connection.tls()
            self.in_handshake = True
            self._timer = asyncio.get_running_loop().call_later(
                HANDSHAKE_SECONDS, self._handshake_failed, "handshake: i/o timeout"
            )
        else:
            self._compress()

    def write(self, data: bytes | memoryview) -> None:
        """Compress, encrypt and send ``data``. A failure closes the connection; nothing is raised."""
        if self._transport.is_closing():
            return
        if self._codec is not None:
            data = self._codec.encode(data)
        if self._tls is not None:
            try:
                self._tls.write(data)
            except StreamBroken as error:
                logger.error("PROTOCOL(V2): [%s] %s", self._connection.client.remote_address, error)
                self._transport.abort()
                return
            data = self._tls.take_output()
        self._transport.write(data)

    def end(self) -> None:
        """Send the end of the TLS stream."""
        if self._tls is not None:
            self._tls.close()
            self._transport.write(self._tls.take_output())

    def resume(self, deadline: Seconds = 0.0) -> None:
        """Decrypt and decompress the rest of the input, until reading is paused or the deadline passes.

        0 means the deadline of a new slice.
        """
        connection = self._connection
        scheduler = connection.broker.runtime.scheduler
        deadline = deadline or scheduler.deadline()
        try:
            for piece in self._pieces:
                connection.unpacked(piece, deadline)
                if connection.session.closed or connection.read_pauses:
                    return
                if scheduler.clock() >= deadline:
                    connection.continue_later()
                    return
        except StreamEnded:
            connection.eof_received()
        except StreamBroken as error:
            logger.error("PROTOCOL(V2): [%s] %s", connection.client.remote_address, error)
            connection.eof_received()

    # -- asyncio's callbacks --------------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._scratch)

    def buffer_updated(self, nbytes: int) -> None:
        data = bytes(memoryview(self._scratch)[:nbytes])
        if self._tls is not None:
            self._tls.received(data)
            if self.in_handshake and not self._continue_handshake(self._tls):
                return
        self._pieces = self._unpack(data)
        if nbytes > SMALL_READ_BYTES and self._connection.broker.runtime.scheduler.is_spent():
            self._connection.continue_later()
        else:
            self.resume()

    def eof_received(self) -> None:
        if self.in_handshake:
            self._handshake_failed("EOF")
        else:
            self._connection.eof_received()

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._connection.connection_lost(exc)

    # -- inside ---------------------------------------------------------------------------------------------------

    def _unpack(self, data: bytes) -> Iterator[bytes]:
        if self._tls is None:
            yield from self._decode(data)
            return
        for plain in self._tls.plaintext():
            if not plain:
                self._connection.eof_received()
                return
            yield from self._decode(plain)
        if answer := self._tls.take_output():  # such as the response to a key update
            self._transport.write(answer)

    def _decode(self, data: bytes) -> Iterator[bytes]:
        return iter((data,)) if self._codec is None else self._codec.decode(data)

    def _continue_handshake(self, tls: TLSConversation) -> bool:
        """Continue the handshake. True once it is complete."""
        try:
            complete = tls.handshake()
        except StreamBroken as error:
            self._handshake_failed(f"handshake: {error}")
            return False
        if output := tls.take_output():
            self._transport.write(output)
        if not complete:
            return False
        self._end_of_handshake()
        self._connection.client.tls = tls.info()
        self._connection.session.secured()
        self._connection.session.respond(OK)
        self._connection.flush()
        self._compress()
        return True

    def _handshake_failed(self, reason: str) -> None:
        self._end_of_handshake()
        if self._tls is not None and (alert := self._tls.take_output()):
            self._transport.write(alert)
        self._tls = None
        error = IdentifyFailed(f"IDENTIFY failed {reason}")
        logger.error("PROTOCOL(V2): [%s] %s", self._connection.client.remote_address, error)
        self._connection.session.refuse(error)
        self._connection.flush()

    def _end_of_handshake(self) -> None:
        self.in_handshake = False
        if self._timer is not None:
            self._timer.cancel()

    def _compress(self) -> None:
        client = self._connection.client
        if self._terms.deflate:
            self._codec, client.deflate = Deflate(self._terms.deflate_level), True
        elif self._terms.snappy:
            self._codec, client.snappy = Snappy(), True
        else:
            return
        self._connection.session.respond(OK)
        self._connection.flush()
