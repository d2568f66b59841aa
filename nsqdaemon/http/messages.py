"""Requests and responses. Responses have nsqd's headers, errors the body ``{"message":"CODE"}``."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from nsqdaemon.http.heads import header_fields
from nsqwire import gojson

log = logging.getLogger(__name__)

NSQ_HEADER: Final = (b"X-Nsq-Content-Type", b"nsq; version=1.0")
JSON_HEADER: Final = (b"Content-Type", b"application/json; charset=utf-8")
TEXT_HEADER: Final = (b"Content-Type", b"text/plain; charset=utf-8")
HTML_HEADER: Final = (b"Content-Type", b"text/html; charset=utf-8")


class HTTPError(Exception):
    """Raised by a handler: the client gets this status and ``{"message": code}``."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(status, code)
        self.status = status
        self.code = code


class Request:
    """One complete request: ``target`` as sent, ``path`` and ``query`` its undecoded parts, ``body`` without chunking.

    ``oversized``: the body exceeded the connection's limit; ``body`` is then empty, and the connection closes after
    the response. ``remote_address`` is ``ip:port``, ``@`` on a Unix socket. ``path_value`` is the part of the path that
    matches a route's ``:name``. ``quiet`` keeps the request out of the log.
    """

    # Class attributes as defaults: most requests do not set them.
    oversized = False
    closes = False
    wants_keep_alive_header = False
    path_value = ""
    quiet = False

    def __init__(
        self,
        method: str,
        target: bytes,
        headers: list[tuple[bytes, bytes]] | None,
        body: bytes,
        remote_address: str = "@",
        head: bytes = b"",
    ) -> None:
        """``headers`` may be None with a plain ``head``, from which they are parsed on first access."""
        self.method = method
        self.target = target
        self.path, _, self.query = target.partition(b"?")
        self.body = body
        self.remote_address = remote_address
        self._headers = headers
        self._head = head

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Names and values, as sent and in order."""
        if self._headers is None:
            self._headers = header_fields(self._head)
        return self._headers

    @property
    def params(self) -> Mapping[str, str]:
        """The query's parameters, the first value of each. Raises HTTPError 400 INVALID_REQUEST."""
        query = self.query
        return _parse_cached(query) if len(query) <= _CACHED_QUERY_BYTES else parse_query(query)

    def required(self, name: str, code: str) -> str:
        """A required parameter, which may be empty. Raises HTTPError 400 with ``code``, or INVALID_REQUEST."""
        value = self.params.get(name)
        if value is None:
            raise HTTPError(400, code)
        return value

    def header(self, name: str) -> str | None:
        """The first header of this name, in any case; Latin-1, white space trimmed."""
        wanted = name.lower().encode("latin-1")
        for key, value in self.headers:
            if key.lower() == wanted:
                return value.decode("latin-1").strip()
        return None

    def may_have_headers_below(self, prefix: bytes) -> bool:
        """Return False only if no header's name begins with ``prefix`` (lower case). True may be wrong.

        Much faster than :meth:`headers_below`, because a plain head is not parsed.
        """
        return self._headers is not None or self._head.lower().find(prefix) >= 0  # "in" takes twice the time

    def headers_below(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """The rest of the name, and the value, of the headers whose names begin with ``prefix`` (lower case)."""
        size = len(prefix)
        return [(name[size:], value.strip()) for name, value in self.headers if name[:size].lower() == prefix]

    def __repr__(self) -> str:
        return f"<Request {self.method} {self.target.decode('latin-1')}>"


def parse_query(query: bytes) -> dict[str, str]:
    """Read a query string as Go's ``url.ParseQuery`` does; of a repeated parameter the first value counts.

    Raises HTTPError 400 INVALID_REQUEST for a ``;`` or an escape that is not two hex digits. Bytes that are not UTF-8
    become surrogates, which no NSQ name may contain.
    """
    params: dict[str, str] = {}
    for part in query.split(b"&"):
        if not part:
            continue
        if b";" in part:
            raise HTTPError(400, "INVALID_REQUEST")
        name, _, value = part.partition(b"=")
        params.setdefault(_unescape(name), _unescape(value))
    return params


FLAG_WORDS: Final = {"true": True, "1": True, "false": False, "0": False}
"""The values of a parameter that is true or false."""

_CACHED_QUERY_BYTES: Final = 256
# Publishers repeat the same query. The result is shared and therefore read-only.
_parse_cached: Final = lru_cache(maxsize=1024)(parse_query)


def _unescape(raw: bytes) -> str:
    if b"%" in raw:
        for digits in raw.split(b"%")[1:]:
            if len(digits) < 2 or not all(digit in b"0123456789abcdefABCDEF" for digit in digits[:2]):
                raise HTTPError(400, "INVALID_REQUEST")
        return unquote_to_bytes(raw.replace(b"+", b" ")).decode("utf-8", "surrogateescape")
    return raw.replace(b"+", b" ").decode("utf-8", "surrogateescape")


class Response:
    """A status, headers and a body. Everything except the date is encoded once, so constant responses should be reused.

    A large body should be a list of parts, which are sent without being joined.
    """

    __slots__ = ("_wire", "_wire_end", "body", "closes", "head", "parts", "size", "status")

    def __init__(
        self,
        status: int,
        body: bytes | list[bytes] = b"",
        headers: tuple[tuple[bytes, bytes], ...] = (),
        *,
        closes: bool = False,
    ) -> None:
        self.status = status
        self.parts = body if isinstance(body, list) else None
        self.body = b"" if isinstance(body, list) else body
        self.size = len(self.body) if self.parts is None else sum(map(len, self.parts))
        self.closes = closes
        lines = [b"HTTP/1.1 %d %s" % (status, _reason(status))]
        lines += [b"%s: %s" % header for header in headers]
        lines.append(b"Content-Length: %d\r\n" % self.size)
        self.head = b"\r\n".join(lines)
        self._wire = self._wire_end = b""

    def wire(self, end: bytes) -> bytes:
        """The encoded response. ``end`` is the rest of the head: the Date header and the blank line.

        Returns the same object for the same ``end``.
        """
        if self._wire_end is not end:
            self._wire, self._wire_end = self.head + end + self.body, end
        return self._wire

    def __repr__(self) -> str:
        return f"<Response {self.status}, {self.size} bytes>"


class Stream(Response):
    """A response of unlimited length: a head without Content-Length, after which ``protocol`` uses the connection.

    ``protocol`` receives everything that the client sends from then on. The head has ``Connection: close``, so the
    client sends no further request.
    """

    __slots__ = ("protocol",)

    def __init__(self, protocol: asyncio.Protocol, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        super().__init__(200, b"", headers, closes=True)
        self.head = self.head.rpartition(b"Content-Length")[0]
        self.protocol = protocol


class PendingResponse:
    """A response that is not known yet, with callbacks that wait for it.

    Cheaper than a future, because the callbacks are called directly and not by the event loop.
    """

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[Callable[[Response], None]] = []

    def then(self, call: Callable[[Response], None]) -> None:
        """Call ``call`` with the response once it is known."""
        self._waiting.append(call)

    def resolve(self, response: Response) -> None:
        """Pass the response to all callbacks; to be called once. A callback that raises does not affect the others."""
        for call in self._waiting:
            try:
                call(response)
            except Exception:
                log.exception("a callback for a response failed")


@lru_cache(maxsize=64)
def _reason(status: int) -> bytes:
    try:
        return HTTPStatus(status).phrase.encode()
    except ValueError:
        return b"Status"


def text_response(body: bytes | str, status: int = 200, *, nsq: bool = True) -> Response:
    """Plain text; ``nsq=False`` leaves out the NSQ header, as ``/ping`` does."""
    raw = body.encode(errors="replace") if isinstance(body, str) else body
    return Response(status, raw, (TEXT_HEADER, NSQ_HEADER) if nsq else (TEXT_HEADER,))


def json_response(value: Any, status: int = 200) -> Response:
    """``value`` as JSON, as Go encodes it."""
    return Response(status, gojson.encode(value), (JSON_HEADER, NSQ_HEADER))


def empty() -> Response:
    """Success, without body and Content-Type."""
    return _EMPTY


_EMPTY: Final = Response(200, b"", (NSQ_HEADER,))


@lru_cache(maxsize=256)
def error_response(status: int, code: str) -> Response:
    """``{"message":"CODE"}``."""
    return json_response({"message": code}, status)
