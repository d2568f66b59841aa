"""HTTPS: an asyncio protocol that decrypts input for an HTTP protocol, and encrypts its output."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from brokerd.net.layers import HANDSHAKE_SECONDS
from nsqdaemon.http import Request, Response
from nsqdaemon.http.messages import JSON_HEADER, NSQ_HEADER
from nsqwire.addresses import address_text
from nsqwire.codec import StreamBroken

if TYPE_CHECKING:
    from brokerd.net.tls import NewTLS, TLSConversation

PLAIN_HTTP: Final = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"
_METHODS: Final = (b"GET /", b"HEAD ", b"POST ", b"PUT /", b"OPTIO", b"DELET", b"PATCH")

logger = logging.getLogger("brokerd")


def refuse_plain(https_port: int) -> Callable[[Request], Response]:
    """Return the handler of plain HTTP requests if TLS is required. The port is 0 if HTTPS is disabled."""
    body = b'{"message": "TLS_REQUIRED", "https_port": %d}' % https_port
    response = Response(403, body, (JSON_HEADER, NSQ_HEADER))

    def answer(request: Request) -> Response:
        request.quiet = True
        return response

    return answer


class HTTPSProtocol(asyncio.Protocol):
    """One connection. ``new_http`` creates the protocol that receives decrypted input, after the handshake."""

    def __init__(self, new_tls: NewTLS, new_http: Callable[[], asyncio.Protocol]) -> None:
        self._tls = new_tls()
        self._new_http = new_http
        self._http: asyncio.Protocol | None = None
        self._encrypting: _Encrypting | None = None
        self._heard = False
        self._transport: asyncio.Transport
        self._deadline: asyncio.TimerHandle

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._deadline = asyncio.get_running_loop().call_later(HANDSHAKE_SECONDS, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        if not self._heard and data.startswith(_METHODS):
            self._transport.write(PLAIN_HTTP)
            self._transport.close()
            return
        self._heard = True
        try:
            self._tls.received(data)
            if self._http is None:
                if not self._tls.handshake():
                    self._send()
                    return
                self._deadline.cancel()
                self._http = self._new_http()
                self._encrypting = _Encrypting(self._transport, self._tls)
                self._http.connection_made(self._encrypting)
            for plain in self._tls.plaintext():
                if plain:
                    self._http.data_received(plain)
                else:
                    self.eof_received()
            self._send()
        except StreamBroken as error:
            peer = address_text(self._transport.get_extra_info("peername"))
            logger.info("HTTPS: TLS error from %s: %s", peer, error)
            self._send()
            self._transport.close()

    def eof_received(self) -> bool:
        if self._http is not None and self._http.eof_received():
            return True
        self._transport.close()
        return False

    def pause_writing(self) -> None:
        if self._http is not None:
            self._http.pause_writing()

    def resume_writing(self) -> None:
        if self._http is not None:
            self._http.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        if self._http is not None:
            self._http.connection_lost(exc)

    def _send(self) -> None:
        if self._transport.is_closing() or (self._encrypting is not None and self._encrypting.has_ended):
            return
        if output := self._tls.take_output():
            self._transport.write(output)


class _Encrypting(asyncio.Transport):
    """A transport that encrypts what the HTTP protocol writes. It has only the methods that this protocol uses."""

    def __init__(self, transport: asyncio.Transport, tls: TLSConversation) -> None:
        super().__init__()
        self.has_ended = False
        self._transport = transport
        self._tls = tls

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self.has_ended and not self.is_closing():
            self._tls.write(memoryview(data))
            self._transport.write(self._tls.take_output())

    def can_write_eof(self) -> bool:
        return self._transport.can_write_eof()

    def write_eof(self) -> None:
        self._end()
        self._transport.write_eof()

    def close(self) -> None:
        self._end()
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def _end(self) -> None:
        if not self.has_ended and not self.is_closing():
            self.has_ended = True
            self._tls.close()
            if output := self._tls.take_output():
                self._transport.write(output)
