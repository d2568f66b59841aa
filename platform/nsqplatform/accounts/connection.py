"""An ASGI connection: its types, and its headers as text."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NotRequired

import asgiref.typing
from asgiref.typing import (
    ASGIReceiveCallable,
    ASGISendCallable,
    ASGISendEvent,
    HTTPResponseBodyEvent,
    HTTPResponseStartEvent,
)
from django.conf import settings

from nsqplatform.accounts.models import User
from nsqplatform.accounts.tokens import bearer_token


class HTTPScope(asgiref.typing.HTTPScope):
    """A request's scope with the platform's keys."""

    peer: NotRequired[str]
    """The IP address of the connection itself; ``client`` is that of the client behind trusted proxies."""
    caller: NotRequired[User]
    """The account of the request, which nsqadmin's endpoints set."""


class WebSocketScope(asgiref.typing.WebSocketScope):
    """A websocket's scope with the platform's keys."""

    peer: NotRequired[str]


Scope = HTTPScope | WebSocketScope
Receive = ASGIReceiveCallable
Send = ASGISendCallable
SendEvent = ASGISendEvent
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
HTTPApplication = Callable[[HTTPScope, Receive, Send], Awaitable[None]]


def header(scope: Scope, name: bytes) -> str:
    """The first value of a header, which is named in lower case; empty without one."""
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")


def bearer(scope: Scope) -> str | None:
    """The connection's bearer token. A browser never sends one by itself."""
    return bearer_token(header(scope, b"authorization"))


async def read_body(receive: Receive) -> bytes | None:
    """The body of a request; None if it is longer than DATA_UPLOAD_MAX_MEMORY_SIZE. It is read to its end."""
    pieces: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            break
        more = message.get("more_body", False)
        size += len(message.get("body", b""))
        if size <= settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
            pieces.append(message.get("body", b""))
        else:
            pieces.clear()
    return b"".join(pieces) if size <= settings.DATA_UPLOAD_MAX_MEMORY_SIZE else None


async def send_response(send: Send, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
    """Answer a request."""
    await send(HTTPResponseStartEvent(type="http.response.start", status=status, headers=headers, trailers=False))
    await send(HTTPResponseBodyEvent(type="http.response.body", body=body, more_body=False))
