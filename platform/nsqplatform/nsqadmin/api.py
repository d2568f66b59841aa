"""nsqadmin's routes: permissions, handlers, and error responses."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping

from django.conf import settings
from django.core.exceptions import PermissionDenied
from redis.exceptions import RedisError

from nsqcluster import Client
from nsqcluster.discovery import NobodyAnswered
from nsqdaemon.http import HTTPError, Request, Response, Router, json_response, text_response
from nsqplatform.accounts.connection import HTTPScope
from nsqplatform.accounts.forwarded import client_of_scope
from nsqplatform.accounts.models import User
from nsqplatform.accounts.networks import within
from nsqplatform.accounts.roles import Permission
from nsqplatform.cluster import node_client
from nsqplatform.cluster.actions.notification import Origin
from nsqplatform.clusters import current
from nsqplatform.clusters.current import PerCluster
from nsqplatform.nsqadmin import configuration, sources
from nsqplatform.nsqadmin.access import Access
from nsqplatform.nsqadmin.failures import UpstreamFailed, nobody_answered
from nsqplatform.nsqadmin.graphite import Graphite
from nsqplatform.nsqadmin.reads import Reads
from nsqplatform.nsqadmin.snapshot_answers import SnapshotAnswers
from nsqplatform.nsqadmin.writes import AllFailed, Writes
from nsqplatform.redis_errors import redis_failure

logger = logging.getLogger("nsqadmin")

AsyncHandler = Callable[[Request], Awaitable[Response]]
Body = Mapping[str, object]
"""A JSON object: one of the TypedDicts of the reads and writes."""


class ScopedRequest(Request):
    """A request through ASGI; ``scope`` is the connection's."""

    scope: HTTPScope


class Endpoints:
    """The table of routes, and the shared state of its handlers."""

    def __init__(self) -> None:
        self.access = Access()
        self.answers = PerCluster(SnapshotAnswers)
        self.router = Router()
        self._clients = PerCluster(node_client.client)
        self.router.add("GET", "/ping", lambda request: text_response("OK", nsq=False))
        add = self._add
        add("GET", "/api/topics", self._topics)
        add("GET", "/api/topics/:topic", self._read(lambda reads, request: reads.topic(request.path_value)))
        add("GET", "/api/topics/:topic/:channel", self._read(lambda reads, request: reads.channel(*names(request))))
        add("GET", "/api/nodes", self._read(lambda reads, _: reads.nodes()))
        add("GET", "/api/nodes/:node", self._read(lambda reads, request: reads.node(request.path_value)))
        add("GET", "/api/counter", self._counter)
        add("GET", "/api/graphite", self._graphite)
        add("POST", "/api/topics", self._write(lambda writes, request: writes.create(request.body)))
        for path in ("/api/topics/:topic", "/api/topics/:topic/:channel"):
            add("POST", path, self._write(lambda writes, request: writes.act(request.body, *topic_and(request))))
            add("DELETE", path, self._write(lambda writes, request: writes.delete(*topic_and(request))))
        add("DELETE", "/api/nodes/:node", self._write(self._tombstone))
        add("GET", "/config/:opt", self._config)
        add("PUT", "/config/:opt", self._change_config, too_big="INVALID_VALUE")
        if settings.NSQADMIN.proxy_graphite:
            add("GET", "/render", self._render)

    def _add(self, method: str, path: str, handler: AsyncHandler, too_big: str = "BODY_TOO_BIG") -> None:
        """Register a handler. Where it needs a Redis that fails, the response is 503 with the reason."""

        async def answer(request: Request) -> Response:
            try:
                return await handler(request)
            except RedisError as error:
                message = redis_failure(error)
                logger.error("a request needs Redis", extra={"error": message})
                raise HTTPError(503, message) from None

        self.router.add(method, path, answer, too_big=too_big)

    @property
    def client(self) -> Client:
        """The client of all requests to the current cluster, so that connections to nodes stay open."""
        return self._clients()

    # ---- reads

    async def _topics(self, request: Request) -> Response:
        await self._viewer(request)
        if request.params.get("inactive") == "true":
            return await self._asked(Reads.inactive_topics)
        return await self.answers().topics() or await self._asked(Reads.topics)

    async def _counter(self, request: Request) -> Response:
        await self._viewer(request)
        return await self.answers().counter() or await self._asked(Reads.counter)

    def _read(self, question: Callable[[Reads, Request], Awaitable[Body]]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            await self._viewer(request)
            return await self._asked(lambda reads: question(reads, request))

        return answer

    async def _asked(self, question: Callable[[Reads], Awaitable[Body]]) -> Response:
        try:
            return json_response(await question(Reads(self.client, await sources.cluster())))
        except (UpstreamFailed, NobodyAnswered) as error:
            return upstream_error(error)

    async def _graphite(self, request: Request) -> Response:
        await self._viewer(request)
        return json_response({"rate": await Graphite(settings.NSQADMIN).rate(request.params)})

    async def _render(self, request: Request) -> Response:
        await self._viewer(request)
        query = request.query.decode("latin-1")
        return await Graphite(settings.NSQADMIN).proxied(query, client_of_scope(scope_of(request)))

    async def _viewer(self, request: Request) -> User:
        return await self.access.require(scope_of(request), Permission.VIEW)

    # ---- writes

    def _write(self, act: Callable[[Writes, Request], Awaitable[Body]]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            user = await self.access.require(scope_of(request), Permission.ACT)
            try:
                return json_response(await act(Writes(user, origin(request, user)), request))
            except PermissionDenied:  # outside the user's topic patterns
                raise HTTPError(403, "FORBIDDEN") from None
            except AllFailed as error:
                return json_response(error.body, 502)
            except (UpstreamFailed, NobodyAnswered) as error:
                return upstream_error(error)
            finally:
                self.answers().acted()

        return answer

    async def _tombstone(self, writes: Writes, request: Request) -> Body:
        return await writes.tombstone(request.body, request.path_value, Reads(self.client, await sources.cluster()))

    # ---- configuration

    async def _config(self, request: Request) -> Response:
        self._within_cidr(request)
        await self._viewer(request)
        return await configuration.value(settings.NSQADMIN, request.path_value)

    async def _change_config(self, request: Request) -> Response:
        self._within_cidr(request)
        await self.access.require(scope_of(request), Permission.ADMINISTER)
        try:
            return await configuration.change(settings.NSQADMIN, request.path_value, request.body)
        finally:
            self.answers().acted()

    def _within_cidr(self, request: Request) -> None:
        allowed = settings.NSQADMIN.config_networks
        if allowed is not None and not within(client_of_scope(scope_of(request)), allowed):
            raise HTTPError(403, "FORBIDDEN")


def upstream_error(error: UpstreamFailed | NobodyAnswered) -> Response:
    failed = nobody_answered(error) if isinstance(error, NobodyAnswered) else error
    return json_response({"message": f"UPSTREAM_ERROR: {failed}"}, 502)


def scope_of(request: Request) -> HTTPScope:
    assert isinstance(request, ScopedRequest)
    return request.scope


def names(request: Request) -> tuple[str, str]:
    topic, _, channel = request.path_value.partition("/")
    return topic, channel


def topic_and(request: Request) -> tuple[str, str | None]:
    topic, channel = names(request)
    return topic, channel or None


def origin(request: Request, user: User) -> Origin:
    headers = {name.decode("latin-1").title(): value.decode("latin-1") for name, value in request.headers}
    scope = scope_of(request)
    url = f"{scope.get('scheme', 'http')}://{headers.get('Host', '')}{current.path()}{request.target.decode('latin-1')}"
    return Origin.of(user=user, peer=request.remote_address, url=url, headers=headers)
