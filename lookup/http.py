"""The registry's HTTP face."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Final, TypeVar

from lookup.producer import Peer
from lookup.registry import EVERY, Registry
from nsqwire.http import HTTPError, Request, Response, Router, empty, encode, json_response, text_response
from nsqwire.http.messages import JSON_HEADER, NSQ_HEADER
from nsqwire.http.profiling import add_profiling
from nsqwire.names import is_valid_name
from nsqwire.version import NSQ_VERSION

Clock = Callable[[], int]
T = TypeVar("T")

_PING: Final = text_response(b"OK", nsq=False)
_INFO: Final = json_response({"version": NSQ_VERSION})
_TURN_S: Final = 0.002  # a long answer is made in pieces of this, so that it delays nobody
_NEVER_TOMBSTONED_NS: Final = -6_795_364_578_871_345_152  # Go's zero time in nanoseconds, overflow included


def make_router(registry: Registry, clock: Clock) -> Router:
    """The routes over one registry; ``clock`` gives unix nanoseconds."""
    handlers = _Handlers(registry, clock)
    router = Router()
    router.add("GET", "/ping", lambda request: _PING)
    router.add("GET", "/info", lambda request: _INFO)
    router.add("GET", "/metrics", handlers.metrics, quiet=True)
    router.add("GET", "/debug", handlers.debug)
    add_profiling(router, index="/debug/pprof")
    router.add("GET", "/lookup", handlers.lookup)
    router.add("GET", "/topics", handlers.topics)
    router.add("GET", "/channels", handlers.channels)
    router.add("GET", "/nodes", handlers.nodes)
    router.add("POST", "/topic/create", handlers.create_topic)
    router.add("POST", "/topic/delete", handlers.delete_topic)
    router.add("POST", "/topic/tombstone", handlers.tombstone)
    router.add("POST", "/channel/create", handlers.create_channel)
    router.add("POST", "/channel/delete", handlers.delete_channel)
    return router


class _Handlers:
    def __init__(self, registry: Registry, clock: Clock) -> None:
        self._registry = registry
        self._clock = clock

    def lookup(self, request: Request) -> Response:
        topic = request.required("topic", "MISSING_ARG_TOPIC")
        if not self._registry.has_topic(topic):
            raise HTTPError(404, "TOPIC_NOT_FOUND")
        producers = b",".join([peer.wire for peer in self._registry.producers(topic, self._clock())])
        channels = encode(self._registry.channels(topic))
        return _json(b'{"channels":%b,"producers":[%b]}' % (channels, producers))

    def topics(self, request: Request) -> Response:
        return json_response({"topics": self._registry.topics()})

    def channels(self, request: Request) -> Response:
        topic = request.required("topic", "MISSING_ARG_TOPIC")
        return json_response({"channels": self._registry.channels(topic)})

    async def nodes(self, request: Request) -> Response:
        now_ns, nodes = self._clock(), []
        async for peer in _in_turns(self._registry.nodes(now_ns)):
            nodes.append(b"%b,%b}" % (peer.wire[:-1], self._topics_of(peer, now_ns)))
        return _json(b'{"producers":[%b]}' % b",".join(nodes))

    def _topics_of(self, peer: Peer, now_ns: int) -> bytes:
        if peer.topics_wire is not None:
            return peer.topics_wire
        topics = self._registry.node_topics(peer, now_ns)
        wire = b'"tombstones":%b,"topics":%b' % (encode(list(topics.values())), encode(list(topics)))
        if not any(topics.values()):  # a tombstone ends by itself
            peer.topics_wire = wire
        return wire

    async def metrics(self, request: Request) -> Response:
        """For Prometheus. The library is loaded by the first scrape, not by the start."""
        from lookup.metrics import registry_metrics
        from nsqwire.http.metrics import metrics_response, process_metrics

        return await metrics_response(
            [*registry_metrics(self._registry, self._clock()), *process_metrics("nsqlookupd")]
        )

    async def debug(self, request: Request) -> Response:
        entries: list[tuple[str, bytes]] = []
        plain: dict[Peer, bytes] = {}
        """Peers as they are where they have no tombstone: the same in each of their entries."""
        async for entry in _in_turns(self._registry.entries()):
            peers = []
            for peer in sorted(entry.peers, key=lambda peer: peer.id):
                if peer in entry.tombstones:
                    peers.append(_producer(peer, entry.tombstones[peer]))
                else:
                    peers.append(plain.get(peer) or plain.setdefault(peer, _producer(peer, None)))
            if peers:
                entries.append((":".join(entry.registration), b",".join(peers)))
        entries.sort()
        return _json(b"{%b}" % b",".join([b"%b:[%b]" % (encode(name), peers) for name, peers in entries]))

    def create_topic(self, request: Request) -> Response:
        self._registry.create_topic(_name(request, "topic"))
        return empty()

    def delete_topic(self, request: Request) -> Response:
        self._registry.delete_topic(_one_topic(request))
        return empty()

    def tombstone(self, request: Request) -> Response:
        topic = _one_topic(request)
        node = request.required("node", "MISSING_ARG_NODE")
        self._registry.tombstone(topic, node, self._clock())
        return empty()

    def create_channel(self, request: Request) -> Response:
        self._registry.create_channel(_name(request, "topic"), _name(request, "channel"))
        return empty()

    def delete_channel(self, request: Request) -> Response:
        if not self._registry.delete_channel(_name(request, "topic"), _name(request, "channel")):
            raise HTTPError(404, "CHANNEL_NOT_FOUND")
        return empty()


def _name(request: Request, parameter: str) -> str:
    name = request.required(parameter, f"MISSING_ARG_{parameter.upper()}")
    if not is_valid_name(name):
        raise HTTPError(400, f"INVALID_ARG_{parameter.upper()}")
    return name


def _one_topic(request: Request) -> str:
    """A topic that need not be a valid name, as nsqlookupd has it; but ``*``, which there takes every topic, is
    refused."""
    topic = request.required("topic", "MISSING_ARG_TOPIC")
    if topic == EVERY:
        raise HTTPError(400, "INVALID_ARG_TOPIC")
    return topic


def _json(body: bytes) -> Response:
    return Response(200, body, (JSON_HEADER, NSQ_HEADER))


async def _in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """The items, with a turn for everybody else whenever handling them has taken a while."""
    began = time.monotonic()
    for item in items:
        yield item
        if time.monotonic() - began > _TURN_S:
            await asyncio.sleep(0)
            began = time.monotonic()


def _producer(peer: Peer, marked_ns: int | None) -> bytes:
    return encode(
        {
            "broadcast_address": peer.broadcast_address,
            "hostname": peer.hostname,
            "http_port": peer.http_port,
            "id": peer.id,
            "last_update": peer.last_update_ns,
            "tcp_port": peer.tcp_port,
            "tombstoned": marked_ns is not None,
            "tombstoned_at": _NEVER_TOMBSTONED_NS if marked_ns is None else marked_ns,
            "topology_region": peer.topology_region,
            "topology_zone": peer.topology_zone,
            "version": peer.version,
        }
    )
