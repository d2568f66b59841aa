"""HTTP/1.1 as nsqd and nsqlookupd implement it: connections, routing rules, responses.

``connection`` turns bytes into requests and responses into bytes, ``router`` has NSQ's common rules, ``server`` runs
both on an asyncio transport. Handlers are plain functions, Request -> Response:

    router = Router()
    router.add("GET", "/ping", lambda request: PING_OK)
    server = HTTPServer(router.answer)
    await loop.create_server(server.protocol, host, port)
"""

from nsqdaemon.http.connection import Connection, Limits
from nsqdaemon.http.messages import (
    HTTPError,
    PendingResponse,
    Request,
    Response,
    Stream,
    empty,
    error_response,
    json_response,
    text_response,
)
from nsqdaemon.http.router import Answer, Handler, Router, refusal
from nsqdaemon.http.server import HTTPServer

__all__ = [
    "Answer",
    "Connection",
    "HTTPError",
    "HTTPServer",
    "Handler",
    "Limits",
    "PendingResponse",
    "Request",
    "Response",
    "Router",
    "Stream",
    "empty",
    "error_response",
    "json_response",
    "refusal",
    "text_response",
]
