"""``GET /metrics`` for Prometheus, and its counters of requests."""

from __future__ import annotations

import time
from typing import cast

from django.conf import settings
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from redis.exceptions import RedisError

from nsqdaemon.http import HTTPError, Response, error_response
from nsqplatform.accounts.connection import HTTPApplication, HTTPScope, Receive, Send, SendEvent
from nsqplatform.accounts.roles import Permission
from nsqplatform.cluster import metrics, store
from nsqplatform.nsqadmin.access import Access
from nsqplatform.nsqadmin.asgi import record_refusal, respond

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
"""Methods used as labels; others are counted as ``other``, so that clients cannot create labels."""


class RequestMetrics:
    """Counts the responses of ``application``, and serves ``/metrics`` to permitted clients."""

    def __init__(self, application: HTTPApplication) -> None:
        self.application = application
        self.access = Access()

    async def __call__(self, scope: HTTPScope, receive: Receive, send: Send) -> None:
        status = 0

        async def counted(message: SendEvent) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        began = time.perf_counter()
        try:
            if scope["path"] == f"{settings.NSQADMIN.base}/metrics":
                await respond(counted, await self._answer(scope), scope)
            else:
                await self.application(scope, receive, counted)
        finally:
            method = scope["method"] if scope["method"] in METHODS else "other"
            metrics.requests.labels(method, str(status or 500)).inc()
            metrics.request_seconds.observe(time.perf_counter() - began)

    async def _answer(self, scope: HTTPScope) -> Response:
        if scope["method"] not in ("GET", "HEAD"):
            return error_response(405, "METHOD_NOT_ALLOWED")
        try:
            await self.access.require(scope, Permission.VIEW)
        except HTTPError as error:
            await record_refusal(scope, "/metrics", b"", error.code)
            return error_response(error.status, error.code)
        text = metrics.web_text() + await self._collectors()
        return Response(200, text, ((b"Content-Type", CONTENT_TYPE_PLAIN_0_0_4.encode()),))

    @staticmethod
    async def _collectors() -> bytes:
        """The collector's metrics as of its last poll; empty if the collector or Redis is down."""
        try:
            async with store.connect_async() as redis:
                return cast(bytes, await redis.get(store.COLLECTOR_METRICS()) or b"")
        except (RedisError, OSError):
            return b""
