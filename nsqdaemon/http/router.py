"""Routes requests to handlers, and answers those without a handler as NSQ does.

The rules are those of the router that nsqd uses: 404 and 405 with nsqd's error body, OPTIONS answered with the methods
of the path, and a redirect to the registered path if only a trailing slash, a doubled slash or the case is wrong.
"""

from __future__ import annotations

import html
import logging
import posixpath
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from nsqdaemon.http.messages import (
    HTML_HEADER,
    JSON_HEADER,
    NSQ_HEADER,
    TEXT_HEADER,
    HTTPError,
    PendingResponse,
    Request,
    Response,
    error_response,
)
from nsqwire.errors import REPLIES, NSQError

log = logging.getLogger(__name__)

Answer = Response | PendingResponse | Awaitable[Response]
Handler = Callable[[Request], Answer]
_NOT_AWAITED: Final = (Response, PendingResponse)

_BAD_PATH: Final = Response(400, b"400 Bad Request", (TEXT_HEADER,), closes=True)
_SERVER_OPTIONS: Final = Response(200)
_BROKEN_ESCAPE: Final = re.compile(rb"%(?![0-9a-fA-F]{2})")


@dataclass(frozen=True, kw_only=True, slots=True)
class Route:
    """``too_big`` is the code of the 413 response to a body above the connection's limit; ``quiet`` routes are not
    logged."""

    handler: Handler
    too_big: str
    quiet: bool
    max_body_size: int | None


class Router:
    """A table (method, path) -> handler. A path may end in one or more ``/:name``, each a non-empty segment without a
    slash; ``request.path_value`` has all of them, with the slashes between them."""

    def __init__(self) -> None:
        self._exact: dict[bytes, dict[str, Route]] = {}
        # "/config/" for "/config/:opt", by the number of variable segments, 1 or 2.
        self._open: dict[int, dict[bytes, dict[str, Route]]] = {}

    def add(
        self,
        method: str,
        path: str,
        handler: Handler,
        *,
        too_big: str = "BODY_TOO_BIG",
        quiet: bool = False,
        max_body_size: int | None = None,
    ) -> None:
        """Register a handler. It returns the response, a PendingResponse or an awaitable.

        It may raise HTTPError, or an NSQError that has an HTTP reply; other exceptions are logged and answered with 500
        INTERNAL_ERROR. A request with a Content-Length above ``max_body_size`` gets 413 with ``too_big`` at once.
        """
        prefix = path.partition(":")[0]
        segments = path.count(":")
        table = self._open.setdefault(segments, {}) if segments else self._exact
        route = Route(handler=handler, too_big=too_big, quiet=quiet, max_body_size=max_body_size)
        table.setdefault(prefix.encode(), {})[method] = route

    def routes(self) -> Iterator[tuple[str, str]]:
        """Yield each method and path, with variable segments as ``:1``, ``:1/:2``."""
        tables = {0: self._exact, **self._open}
        for segments, table in tables.items():
            for prefix, methods in table.items():
                path = prefix.decode() + "/".join(f":{number + 1}" for number in range(segments))
                yield from ((method, path) for method in methods)

    def body_limit(self, method: str, target: bytes) -> int | None:
        """The largest body of a request, in bytes; None without a route, or if the route has no limit."""
        path = target.partition(b"?")[0]
        route = (self._exact.get(path) or self._lookup(path)[0]).get(method)
        return None if route is None else route.max_body_size

    def answer(self, request: Request) -> Answer:
        """Answer one request; never raises."""
        routes = self._exact.get(request.path)
        if routes is None:
            found = self._find_slowly(request)
            if isinstance(found, Response):
                return found
            routes = found
        route = routes.get(request.method)
        if route is None:
            return _other_method(request, routes)
        request.quiet = route.quiet
        try:
            if request.oversized:
                return error_response(413, route.too_big)
            answer = route.handler(request)
        except Exception as error:
            return refusal(request, error)
        return answer if isinstance(answer, _NOT_AWAITED) else _awaited(request, answer)

    def _find_slowly(self, request: Request) -> dict[str, Route] | Response:
        """The routes of a path that is not in the table exactly as sent."""
        raw = request.path
        if raw == b"*":
            return _SERVER_OPTIONS
        if not raw.startswith(b"/"):  # a whole URL, as to a proxy
            _, separator, rest = raw.partition(b"://")
            slash = rest.find(b"/")
            raw = rest[slash:] if slash >= 0 else b"/"
            if not separator:
                return _BAD_PATH
        if _BROKEN_ESCAPE.search(raw):
            return _BAD_PATH
        path = unquote_to_bytes(raw)
        routes, request.path_value = self._lookup(path)
        if routes:
            return routes
        fixed = self._fixed(path, request.method)
        return _redirect(request, fixed) if fixed else error_response(404, "NOT_FOUND")

    def _lookup(self, path: bytes) -> tuple[dict[str, Route], str]:
        routes = self._exact.get(path)
        if routes is not None:
            return routes, ""
        for segments, table in self._open.items():
            prefix, value = _split(path, segments)
            if value and (routes := table.get(prefix)):
                return routes, value.decode("utf-8", "surrogateescape")
        return {}, ""

    def _fixed(self, path: bytes, method: str) -> bytes | None:
        """The registered path that ``path`` was probably meant to be, if it has a route for ``method``."""
        if method == "CONNECT" or path == b"/":
            return None
        clean = b"/" + posixpath.normpath(path).lstrip(b"/")
        for candidate in (path.removesuffix(b"/"), path + b"/", clean, clean + b"/"):
            if method in self._lookup(candidate)[0]:
                return candidate
        folded = clean.lower()
        for known, routes in self._exact.items():
            if method in routes and known.lower() in (folded, folded + b"/"):
                return known
        for segments, table in self._open.items():
            prefix, value = _split(clean, segments)
            for known, routes in table.items():
                if method in routes and value and known.lower() == prefix.lower():
                    return known + value
        return None


def _split(path: bytes, segments: int) -> tuple[bytes, bytes]:
    """Split before the last ``segments`` segments; the first part ends with a slash. Empty if a segment is empty."""
    values = path.rsplit(b"/", segments)[1:]
    if len(values) < segments or not all(values):
        return path, b""
    return path[: len(path) - len(b"/".join(values))], b"/".join(values)


def _other_method(request: Request, routes: dict[str, Route]) -> Response:
    allow = ", ".join(sorted({*routes, "OPTIONS"})).encode()
    if request.method == "OPTIONS":
        return Response(200, b"", ((b"Allow", allow),))
    body = b'{"message":"METHOD_NOT_ALLOWED"}'
    return Response(405, body, ((b"Allow", allow), JSON_HEADER, NSQ_HEADER))


def _redirect(request: Request, path: bytes) -> Response:
    location = quote(path, safe="/:@!$&'()*+,;=~-._")
    if request.query:
        location += "?" + quote(request.query, safe="/?:@!$&'()*+,;=~-._%")
    header = (b"Location", location.encode())
    if request.method != "GET":
        return Response(307, b"", (header,))
    body = f'<a href="{html.escape(location)}">Moved Permanently</a>.\n\n'
    return Response(301, body.encode(), (HTML_HEADER, header))


async def _awaited(request: Request, answer: Awaitable[Response]) -> Response:
    try:
        return await answer
    except Exception as error:
        return refusal(request, error)


def refusal(request: Request, error: Exception) -> Response:
    """The response if a handler raised ``error``."""
    return error_response(*refusal_code(request, error))


def refusal_code(request: Request, error: Exception) -> tuple[int, str]:
    """Status and code of the response if a handler raised ``error``. Logs errors that are not the client's."""
    if isinstance(error, HTTPError):
        return error.status, error.code
    if isinstance(error, NSQError) and (reply := REPLIES[type(error)].http) is not None:
        return reply
    if isinstance(error, OSError):
        log.error("%s %s: %s", request.method, request.target.decode("latin-1"), error)
        return 503, "STORAGE_FAILED"
    log.error("handler of %s %s failed", request.method, request.target.decode("latin-1"), exc_info=error)
    return 500, "INTERNAL_ERROR"
