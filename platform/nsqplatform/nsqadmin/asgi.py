"""nsqadmin's endpoints in front of Django, without middleware and threads, so that answers from snapshots are fast."""

from __future__ import annotations

import gzip
import json
import logging
import time
import zlib
from collections.abc import Awaitable
from functools import lru_cache
from typing import cast

from asgiref.sync import sync_to_async
from django.conf import settings

from nsqdaemon.http import Response, error_response
from nsqplatform.accounts import audit
from nsqplatform.accounts.connection import (
    Application,
    HTTPApplication,
    HTTPScope,
    Receive,
    Scope,
    Send,
    header,
    send_response,
)
from nsqplatform.accounts.forwarded import client_of_scope
from nsqplatform.nsqadmin.api import MAX_BODY_BYTES, Endpoints, ScopedRequest
from nsqwire.addresses import address_text

logger = logging.getLogger("nsqadmin")

OURS = frozenset({"api", "config", "ping", "render"})
"""First segments of nsqadmin's paths other than pages; ``api/v1`` is the platform's own."""


class NsqadminFirst:
    """Answers nsqadmin's paths and passes the rest to ``django``, below the base path if there is one."""

    def __init__(self, django: HTTPApplication) -> None:
        self.django = django
        self.endpoints = Endpoints()

    async def __call__(self, scope: HTTPScope, receive: Receive, send: Send) -> None:
        base = settings.NSQADMIN.base
        path = scope["path"]
        if base:
            if path != base and not path.startswith(base + "/"):
                await respond(send, error_response(404, "NOT_FOUND"), scope)
                return
            path = path[len(base) :] or "/"
        if not is_ours(path):
            # Django has no empty path; the base path is the first page.
            await self.django({**scope, "root_path": base, "path": base + path} if base else scope, receive, send)
            return
        started = time.perf_counter()
        raw: bytes = scope.get("raw_path") or path.encode()
        request = ScopedRequest(
            scope["method"],
            raw[len(base) :] + (b"?" + scope["query_string"] if scope["query_string"] else b""),
            list(scope["headers"]),
            b"",
            address_text(tuple(scope.get("client") or ())),
        )
        request.scope = scope
        if scope["method"] != "GET":
            await read_body(request, receive)
        answer = self.endpoints.router.answer(request)
        response = answer if isinstance(answer, Response) else await cast(Awaitable[Response], answer)
        if base and (300 <= response.status < 400):
            response = below(base, response)
        await respond(send, response, scope)
        if response.status in (401, 403):
            await sync_to_async(audit.refused)(
                user=scope.get("caller"),
                subject=f"{request.method} {path}",
                detail=json.loads(response.body)["message"],
                remote_address=client_of_scope(scope),
                attempted=request.method != "GET" or bool(header(scope, b"authorization")),
            )
        # No log line for each poll of a script.
        level = logging.INFO if scope["method"] != "GET" or response.status >= 400 else logging.DEBUG
        if logger.isEnabledFor(level):
            elapsed_ms = (time.perf_counter() - started) * 1000
            logger.log(
                level,
                "request",
                extra={
                    "status": response.status,
                    "method": request.method,
                    "uri": request.target.decode("latin-1"),
                    "peer": request.remote_address,
                    "ms": round(elapsed_ms, 1),
                },
            )


def unbased(websockets: Application) -> Application:
    """Return ``websockets`` behind a step that removes the base path from paths."""

    async def route(scope: Scope, receive: Receive, send: Send) -> None:
        below_base = scope.copy()
        below_base["path"] = scope["path"].removeprefix(settings.NSQADMIN.base)
        await websockets(below_base, receive, send)

    return route


def is_ours(path: str) -> bool:
    segments = path.lower().split("/", 3)
    head = segments[1] if len(segments) > 1 else ""
    return head in OURS and not (head == "api" and segments[2:3] == ["v1"])


async def read_body(request: ScopedRequest, receive: Receive) -> None:
    pieces: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            return
        more = message.get("more_body", False)
        size += len(message.get("body", b""))
        if size > MAX_BODY_BYTES:
            request.oversized = True
            pieces.clear()
        else:
            pieces.append(message.get("body", b""))
    request.body = b"".join(pieces)


def below(base: str, response: Response) -> Response:
    """Add the base path to a redirect of the router."""
    old = next(line for line in response.head.split(b"\r\n") if line.startswith(b"Location: "))
    location = base.encode() + old.removeprefix(b"Location: ")
    return Response(response.status, b"", ((b"Location", location),))


@lru_cache(maxsize=64)
def header_list(head: bytes) -> list[tuple[bytes, bytes]]:
    pairs = (line.partition(b": ") for line in head.split(b"\r\n")[1:] if line)
    return [(name, value) for name, _, value in pairs]


@lru_cache(maxsize=8)
def packed(body: bytes, how: str) -> bytes:
    """Compress ``body`` as ``gzip``, or as ``deflate`` without the zlib header, as nsqadmin does. The cache compresses
    a snapshot's answer once."""
    if how == "gzip":
        return gzip.compress(body, 1)
    squeezer = zlib.compressobj(1, wbits=-15)
    return squeezer.compress(body) + squeezer.flush()


def wanted_packing(scope: HTTPScope) -> str:
    """The first of ``gzip`` and ``deflate`` in ``Accept-Encoding``; empty if it has neither."""
    codings = (part.partition(";")[0].strip().lower() for part in header(scope, b"accept-encoding").split(","))
    return next((coding for coding in codings if coding in ("gzip", "deflate")), "")


async def respond(send: Send, response: Response, scope: HTTPScope) -> None:
    headers = header_list(response.head)
    body = response.body
    how = wanted_packing(scope) if body else ""
    if how:
        body = packed(body, how)
        headers = [pair for pair in headers if pair[0] != b"Content-Length"]
        headers += [
            (b"Content-Encoding", how.encode()),
            (b"Vary", b"Accept-Encoding"),
            (b"Content-Length", b"%d" % len(body)),
        ]
    headers = [*headers, (b"X-Content-Type-Options", b"nosniff")]
    if response.status == 401:
        headers = [*headers, (b"WWW-Authenticate", b"Bearer")]
    await send_response(send, response.status, headers, body)
