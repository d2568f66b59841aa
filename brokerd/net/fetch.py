"""Asking another HTTP server for JSON, without the half second that importing a full HTTP client costs at start."""

from __future__ import annotations

import asyncio
from typing import Any

import httptools

from nsqwire.decoding import decode_json

MAX_BODY_SIZE = 16 * 1024 * 1024


class FetchFailed(Exception):
    """The server could not be reached, or answered with something other than 200 and JSON."""


class _Answer:
    """httptools' callbacks for one response."""

    def __init__(self) -> None:
        self.body = bytearray()
        self.complete = False

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.complete = True


async def get_json(host: str, port: int, target: str, *, connect_timeout: float, request_timeout: float) -> Any:
    """GET ``http://host:port`` + ``target`` and return the JSON value. Timeouts are in seconds; raises FetchFailed."""
    try:
        async with asyncio.timeout(request_timeout):
            async with asyncio.timeout(connect_timeout):
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
            # The end of the stream is also how an answer without a length ends.
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
