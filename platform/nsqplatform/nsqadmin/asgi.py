"""nsqadmin's endpoints in front of Django, without middleware and threads, so that answers from snapshots are fast."""

from __future__ import annotations

import json
import logging
import time
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
    read_body,
    send_response,
)
from nsqplatform.accounts.forwarded import client_of_scope
from nsqplatform.clusters import current
from nsqplatform.compression import coding_of, packed
from nsqplatform.nsqadmin.api import Endpoints, ScopedRequest
from nsqwire.addresses import address_text

logger = logging.getLogger("nsqadmin")

OURS = frozenset({"api", "config", "ping", "render"})
"""First segments of nsqadmin's paths other than pages; ``api/v1`` is the platform's own."""


class NsqadminEndpoints:
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
            body = await read_body(receive)
            request.body, request.oversized = body or b"", body is None
        answer = self.endpoints.router.answer(request)
        response = answer if isinstance(answer, Response) else await cast(Awaitable[Response], answer)
        outside = base + current.path()
        if outside and (300 <= response.status < 400):
            response = below(outside, response)
        await respond(send, response, scope)
        if (detail := refusal_of(response)) is not None:
            await record_refusal(scope, path, request.body, detail)
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


def refusal_of(response: Response) -> str | None:
    """The message of a refusal; None for another response, and for one of graphite."""
    if response.status not in audit.REFUSALS:
        return None
    try:
        return str(json.loads(response.body)["message"])
    except (ValueError, KeyError, TypeError):
        return None


async def record_refusal(scope: HTTPScope, path: str, body: bytes, detail: str) -> None:
    """Record a refused request, as ``audit.RefusalRecorder`` does for Django's."""
    await sync_to_async(audit.refused_request)(
        user=scope.get("caller"),
        method=scope["method"],
        path=path,
        body=body,
        detail=detail,
        remote_address=client_of_scope(scope),
        is_signed=bool(header(scope, b"authorization")),
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


def below(base: str, response: Response) -> Response:
    """Add the base path, with the cluster's, to a redirect of the router."""
    old = next(line for line in response.head.split(b"\r\n") if line.startswith(b"Location: "))
    location = base.encode() + old.removeprefix(b"Location: ")
    return Response(response.status, b"", ((b"Location", location),))


@lru_cache(maxsize=64)
def header_list(head: bytes) -> list[tuple[bytes, bytes]]:
    pairs = (line.partition(b": ") for line in head.split(b"\r\n")[1:] if line)
    return [(name, value) for name, _, value in pairs]


packed_once = lru_cache(maxsize=8)(packed)
"""Compresses a snapshot's answer for the first of many scripts that request it."""


async def respond(send: Send, response: Response, scope: HTTPScope) -> None:
    headers = header_list(response.head)
    body = response.body
    how = coding_of(header(scope, b"accept-encoding")) if body else ""
    if how:
        body = packed_once(body, how)
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
