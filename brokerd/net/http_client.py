"""A small HTTP client for JSON, because importing a full one takes half a second at startup.

Each request has a connection of its own.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple

import httptools

from nsqwire.gojson import decode_json
from nsqwire.units import Seconds

MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
NSQ_V1: Final = "application/vnd.nsq; version=1.0"
"""The format in which nsqlookupd answers without an envelope."""


class Answer(NamedTuple):
    """An answer: its HTTP status and its body."""

    status: int
    body: bytes


class Server(NamedTuple):
    """Where a server listens. ``tls`` is None without TLS."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class NotConnected(OSError):
    """No connection was made, so no request was sent."""


class FetchFailed(Exception):
    """The server could not be reached, or its response does not have status 200 and a JSON body."""


class _Received:
    """The callbacks of httptools for one response."""

    def __init__(self) -> None:
        self.body = bytearray()
        self.complete = False

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.complete = True


async def get_json(server: Server, target: str, *, connect_timeout_s: Seconds, request_timeout_s: Seconds) -> Any:
    """GET ``target`` and return the JSON value. Raises FetchFailed.

    A timeout of 0 is no limit. That of the request includes the connection's.
    """
    try:
        async with asyncio.timeout(request_timeout_s or None):
            answer = await ask(server, "GET", target, headers={"Accept": NSQ_V1}, connect_timeout_s=connect_timeout_s)
    except TimeoutError:
        raise FetchFailed("no answer in time") from None
    except NotConnected as error:
        raise FetchFailed(str(error.__cause__) or "no answer in time") from error
    except (OSError, ValueError) as error:
        raise FetchFailed(str(error)) from error
    if answer.status != HTTPStatus.OK:
        raise FetchFailed(f"got status {answer.status}")
    try:
        return decode_json(answer.body)
    except (ValueError, RecursionError) as error:
        raise FetchFailed(f"answer is not JSON: {error}") from error


async def ask(
    server: Server,
    method: str,
    target: str,
    body: object | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    connect_timeout_s: Seconds = 0.0,
) -> Answer:
    """Send a request, with ``body`` as JSON if there is one, and return the answer, of MAX_ANSWER_BYTES at most.

    A timeout of 0 is no limit. Raises NotConnected, also if there is no connection in time, and OSError or ValueError
    if the answer does not arrive or is not one.
    """
    try:
        async with asyncio.timeout(connect_timeout_s or None):
            reader, writer = await asyncio.open_connection(server.host, server.port, ssl=server.tls)
    except OSError as error:
        raise NotConnected(f"{server}: {str(error) or _reason(error, server)}") from error
    try:
        writer.write(_request(server, method, target, body, headers or {}))
        return await _answer(reader)
    finally:
        writer.close()


def _reason(error: OSError, server: Server) -> str:
    """The reason of an error without a text."""
    if isinstance(error, TimeoutError):
        return "no connection in time"
    return "the connection was closed" if server.tls is None else "the connection was closed during the handshake"


def _request(server: Server, method: str, target: str, body: object | None, headers: Mapping[str, str]) -> bytes:
    data = b"" if body is None else json.dumps(body).encode()
    fields = {"Host": str(server), "Accept": "application/json", "Connection": "close", **headers}
    if body is not None:
        fields |= {"Content-Type": "application/json", "Content-Length": str(len(data))}
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode() + data


async def _answer(reader: asyncio.StreamReader) -> Answer:
    received = _Received()
    parser = httptools.HttpResponseParser(received)
    try:
        # An answer without a length ends with the stream.
        while not received.complete and (data := await reader.read(65536)):
            parser.feed_data(data)
            if len(received.body) > MAX_ANSWER_BYTES:
                raise ValueError(f"an answer of more than {MAX_ANSWER_BYTES} bytes")
    except httptools.HttpParserError as error:
        raise ValueError(str(error)) from error
    if not received.complete and not received.body:
        raise ValueError("the connection was closed without an answer")
    return Answer(parser.get_status_code(), bytes(received.body))
