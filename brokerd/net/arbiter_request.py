"""One HTTP request to an arbiter, on a connection of its own."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping
from typing import Final, NamedTuple

import httptools

MAX_ANSWER_BYTES: Final = 1024 * 1024


class Answer(NamedTuple):
    """``status`` is that of HTTP."""

    status: int
    body: bytes


class Server(NamedTuple):
    """Where an arbiter listens. ``tls`` is None without TLS."""

    host: str
    port: int
    tls: ssl.SSLContext | None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class NotConnected(OSError):
    """No connection was made, so nothing was asked."""


class _Received:
    """The callbacks of httptools for one response."""

    def __init__(self) -> None:
        self.body = bytearray()
        self.complete = False

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.complete = True


async def ask(
    server: Server, method: str, target: str, body: object | None = None, headers: Mapping[str, str] | None = None
) -> Answer:
    """Send a request, with ``body`` as JSON if there is one, and return the answer.

    Raises NotConnected, and OSError or ValueError if the answer does not arrive or is not one.
    """
    try:
        reader, writer = await asyncio.open_connection(server.host, server.port, ssl=server.tls)
    except OSError as error:
        closed = "the connection was closed" if server.tls is None else "the connection was closed during the handshake"
        raise NotConnected(f"{server}: {str(error) or closed}") from error
    try:
        writer.write(_request(server, method, target, body, headers or {}))
        return await _answer(reader)
    finally:
        writer.close()


def _request(server: Server, method: str, target: str, body: object | None, headers: Mapping[str, str]) -> bytes:
    data = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {target} HTTP/1.1", f"Host: {server}", "Accept: application/json", "Connection: close"]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(data)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + data


async def _answer(reader: asyncio.StreamReader) -> Answer:
    received = _Received()
    parser = httptools.HttpResponseParser(received)
    try:
        while not received.complete and (data := await reader.read(65536)):
            parser.feed_data(data)
            if len(received.body) > MAX_ANSWER_BYTES:
                raise ValueError(f"an answer of more than {MAX_ANSWER_BYTES} bytes")
    except httptools.HttpParserError as error:
        raise ValueError(str(error)) from error
    if not received.complete and not received.body:
        raise ValueError("the connection was closed without an answer")
    return Answer(parser.get_status_code(), bytes(received.body))
