"""A small HTTP client for JSON, because importing a full one takes half a second at startup."""

from __future__ import annotations

import asyncio
from typing import Any

import httptools

from nsqwire.gojson import decode_json

MAX_BODY_SIZE = 16 * 1024 * 1024


class FetchFailed(Exception):
    """The server could not be reached, or its response does not have status 200 and a JSON body."""


class _Answer:
    """The callbacks of httptools for one response."""

    def __init__(self) -> None:
        self.body = bytearray()
        self.complete = False

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.complete = True


async def get_json(host: str, port: int, target: str, *, connect_timeout_s: float, request_timeout_s: float) -> Any:
    """GET ``http://host:port`` + ``target`` and return the JSON value. Raises FetchFailed.

    A timeout of 0 is no limit.
    """
    try:
        async with asyncio.timeout(request_timeout_s or None):
            async with asyncio.timeout(connect_timeout_s or None):
                reader, writer = await asyncio.open_connection(host, port)
            try:
                authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
                head = f"GET {target} HTTP/1.1\r\nHost: {authority}\r\nAccept: application/vnd.nsq; version=1.0\r\n"
                writer.write(f"{head}Connection: close\r\n\r\n".encode())
                return await _read_answer(reader)
            finally:
                writer.close()
    except TimeoutError:
        raise FetchFailed("no answer in time") from None
    except (OSError, httptools.HttpParserError) as error:
        raise FetchFailed(str(error)) from error


async def _read_answer(reader: asyncio.StreamReader) -> Any:
    answer = _Answer()
    parser = httptools.HttpResponseParser(answer)
    while not answer.complete:
        data = await reader.read(65536)
        if not data:
            # an answer without a length ends with the stream
            break
        parser.feed_data(data)
        if len(answer.body) > MAX_BODY_SIZE:
            raise FetchFailed(f"answer of more than {MAX_BODY_SIZE} bytes")
    status = parser.get_status_code() if answer.complete or answer.body else 0
    if status != 200:
        raise FetchFailed(f"got status {status}" if status else "connection closed without an answer")
    try:
        return decode_json(bytes(answer.body))
    except (ValueError, RecursionError) as error:
        raise FetchFailed(f"answer is not JSON: {error}") from error
