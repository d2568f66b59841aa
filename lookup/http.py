"""The registry's HTTP face."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from lookup.producer import Peer, Producer
from lookup.registration import Registration
from lookup.registry import EVERY, Registry
from nsqwire.http import HTTPError, Request, Response, Router, empty, json_response, text_response
from nsqwire.http.profiling import add_profiling
from nsqwire.names import is_valid_name
from nsqwire.version import NSQ_VERSION

Clock = Callable[[], int]

_PING: Final = text_response(b"OK", nsq=False)
_INFO: Final = json_response({"version": NSQ_VERSION})
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
        producers = [_peer(peer) for peer in self._registry.producers(topic, self._clock())]
        return json_response({"channels": self._registry.channels(topic), "producers": producers})

    def topics(self, request: Request) -> Response:
        return json_response({"topics": self._registry.topics()})

    def channels(self, request: Request) -> Response:
        topic = request.required("topic", "MISSING_ARG_TOPIC")
        return json_response({"channels": self._registry.channels(topic)})

    def nodes(self, request: Request) -> Response:
        nodes = []
        for peer, topics in self._registry.nodes(self._clock()):
            tombstones = [each.tombstoned for each in topics]
            nodes.append({**_peer(peer), "tombstones": tombstones, "topics": [each.topic for each in topics]})
        return json_response({"producers": nodes})

    async def metrics(self, request: Request) -> Response:
        """For Prometheus. The library is loaded by the first scrape, not by the start."""
        from lookup.metrics import registry_metrics
        from nsqwire.http.metrics import metrics_response, process_metrics

        return await metrics_response(
            [*registry_metrics(self._registry, self._clock()), *process_metrics("nsqlookupd")]
        )

    def debug(self, request: Request) -> Response:
        entries = {_entry_name(r): [_producer(p) for p in producers] for r, producers in self._registry.entries()}
        return json_response(dict(sorted(entries.items())))

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


def _peer(peer: Peer) -> dict[str, Any]:
    return {
        "remote_address": peer.id,
        "hostname": peer.hostname,
        "broadcast_address": peer.broadcast_address,
        "tcp_port": peer.tcp_port,
        "http_port": peer.http_port,
        "version": peer.version,
        "topology_zone": peer.topology_zone,
        "topology_region": peer.topology_region,
    }


def _entry_name(registration: Registration) -> str:
    return ":".join(registration)


def _producer(producer: Producer) -> dict[str, Any]:
    peer, marked_ns = producer.peer, producer.tombstoned_at_ns
    return {
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
