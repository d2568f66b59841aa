"""The registry's HTTP interface."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable, Generator, Iterator
from importlib import import_module
from typing import Final

from nsqdaemon.http import HTTPError, Request, Response, Router, empty, json_response, text_response
from nsqdaemon.http.messages import JSON_HEADER, NSQ_HEADER
from nsqdaemon.http.names import act_on_each, names_of, topic_and_channel
from nsqdaemon.http.profiling import add_profiling
from nsqlookup.peer import Peer
from nsqlookup.registry import EVERY, Registry
from nsqlookup.scheduler import Scheduler, sorted_in_steps
from nsqwire.gojson import encode
from nsqwire.names import is_valid_name
from nsqwire.units import Nanoseconds
from nsqwire.version import NSQ_VERSION

Clock = Callable[[], Nanoseconds]
Answer = Response | Future[Response]
Steps = Generator[None, None, Response]

_PING: Final = text_response(b"OK", nsq=False)
_INFO: Final = json_response({"version": NSQ_VERSION})
_NAMES_AT_ONCE: Final = 2048
_ENTRIES_AT_ONCE: Final = 256
_WHOLE_BYTES: Final = 64 * 1024  # a larger response is sent in pieces
_NEVER_TOMBSTONED_NS: Final = -6_795_364_578_871_345_152  # Go's zero time in nanoseconds, overflow included


def make_router(registry: Registry, clock: Clock, scheduler: Scheduler | None = None) -> Router:
    """Return the routes of one registry. ``clock`` returns Unix nanoseconds. ``scheduler`` runs long responses."""
    handlers = _Handlers(registry, clock, scheduler or Scheduler())
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
    router.add("POST", "/topics/lookup", handlers.lookup_topics)
    router.add("POST", "/topics/delete", handlers.delete_topics)
    router.add("POST", "/topics/tombstone", handlers.tombstone_topics)
    router.add("POST", "/channels/delete", handlers.delete_channels)
    return router


class _Handlers:
    def __init__(self, registry: Registry, clock: Clock, scheduler: Scheduler) -> None:
        self._registry = registry
        self._clock = clock
        self._scheduler = scheduler

    def lookup(self, request: Request) -> Answer:
        topic = request.required("topic", "MISSING_ARG_TOPIC")
        if not self._registry.has_topic(topic):
            raise HTTPError(404, "TOPIC_NOT_FOUND")
        return self._scheduler.answer(self._lookup(topic))

    def _lookup(self, topic: str) -> Steps:
        channels = yield from _names(self._registry.channels(topic))
        # The producers are read last, so that those that disconnected meanwhile are left out.
        producers = b",".join([peer.wire for peer in self._registry.producers(topic, self._clock())])
        return _json([b'{"channels":[', *channels, b'],"producers":[', producers, b"]}"])

    def topics(self, request: Request) -> Answer:
        return self._scheduler.answer(self._list("topics", self._registry.topics()))

    def channels(self, request: Request) -> Answer:
        topic = request.required("topic", "MISSING_ARG_TOPIC")
        return self._scheduler.answer(self._list("channels", self._registry.channels(topic)))

    def _list(self, key: str, names: list[str]) -> Steps:
        written = yield from _names(names)
        return _json([b'{"%b":[' % key.encode(), *written, b"]}"])

    def nodes(self, request: Request) -> Answer:
        return self._scheduler.answer(self._nodes())

    def _nodes(self) -> Steps:
        now_ns = self._clock()
        written: list[tuple[Peer, list[bytes]]] = []
        for peer in self._registry.nodes(now_ns):
            if peer.topics_wire is None:
                written.append((peer, (yield from self._topics_of(peer, now_ns))))
            else:
                written.append((peer, peer.topics_wire))
            yield
        parts: list[bytes] = []
        for peer, topics in written:
            if not peer.is_gone:
                parts += [b"," if parts else b'{"producers":[', peer.wire[:-1], *topics]
        return _json([*(parts or [b'{"producers":[']), b"]}"])

    def _topics_of(self, peer: Peer, now_ns: int) -> Generator[None, None, list[bytes]]:
        """The rest of the peer's JSON object after the members of ``Peer.wire``: tombstones and topics."""
        revision, hidden = peer.revision, dict[str, bool]()
        for found in self._registry.node_topics(peer, now_ns):
            if found is not None:
                hidden[found[0]] = found[1]
            yield
        topics = yield from sorted_in_steps(list(hidden))
        marks = yield from _written(topics, hidden.__getitem__)
        names = yield from _written(topics)
        wire = [b',"tombstones":[', *marks, b'],"topics":[', *names, b"]}"]
        if peer.revision == revision and True not in hidden.values():  # not cached with a tombstone, which expires
            peer.topics_wire = wire
        return wire

    async def metrics(self, request: Request) -> Response:
        """Prometheus metrics. The first scrape imports the library, because the import would slow down the start."""
        await asyncio.to_thread(import_module, "nsqlookup.metrics")  # takes a tenth of a second
        from nsqdaemon.http.metrics import metrics_response, process_metrics
        from nsqlookup.metrics import registry_metrics

        families = self._scheduler.answer(registry_metrics(self._registry, self._clock()))
        found = families if isinstance(families, list) else await families
        return await metrics_response([*found, *process_metrics("nsqlookupd")])

    def debug(self, request: Request) -> Answer:
        return self._scheduler.answer(self._debug())

    def _debug(self) -> Steps:
        entries: dict[str, bytes] = {}
        plain: dict[Peer, bytes] = {}
        """The peers as JSON objects, for entries without a tombstone."""
        for producers in self._registry.producer_sets():
            peers = []
            for peer in sorted((each for each in producers.peers if not each.is_gone), key=lambda peer: peer.id):
                if peer in producers.tombstones:
                    peers.append(_producer(peer, producers.tombstones[peer]))
                else:
                    peers.append(plain.get(peer) or plain.setdefault(peer, _producer(peer, None)))
            if peers:
                entries[":".join(producers.registration)] = b",".join(peers)
            yield
        parts, last = [b"{"], list[bytes]()
        for name in (yield from sorted_in_steps(list(entries))):
            last.append(b"%b:[%b]" % (encode(name), entries.pop(name)))
            if len(last) == _ENTRIES_AT_ONCE:
                parts += [b",".join(last), b","]
                last.clear()
            yield
        parts += [b",".join(last)] if last else []
        if parts[-1] == b",":
            parts.pop()
        return _json([*parts, b"}"])

    def create_topic(self, request: Request) -> Response:
        self._registry.create_topic(_name(request, "topic"))
        return empty()

    def delete_topic(self, request: Request) -> Response:
        self._scheduler.begin(_each(self._registry.delete_topic(_one_topic(request))))
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

    # --- many names in one request, an extension ---

    def lookup_topics(self, request: Request) -> Answer:
        return self._scheduler.answer(self._lookup_topics(names_of(request)))

    def _lookup_topics(self, topics: list[str]) -> Steps:
        """``{"producers": [...], "topics": {"orders": [0]}}``: the numbers of the producers of each topic, in the order
        of ``producers``. A topic that does not exist is left out."""
        numbers = dict[Peer, int]()
        found = dict[str, list[int]]()
        for topic in topics:
            if topic != EVERY and self._registry.has_topic(topic):
                peers = self._registry.producers(topic, self._clock())
                found[topic] = [numbers.setdefault(peer, len(numbers)) for peer in peers]
            yield
        producers = b",".join([peer.wire for peer in numbers])
        return _json([b'{"producers":[', producers, b'],"topics":', encode(found), b"}"])

    def delete_topics(self, request: Request) -> Answer:
        return self._scheduler.answer(act_on_each(request, names_of(request), self._delete_topic))

    def _delete_topic(self, topic: str) -> None:
        self._scheduler.begin(_each(self._registry.delete_topic(_not_every(topic))))

    def tombstone_topics(self, request: Request) -> Answer:
        node, now_ns = request.required("node", "MISSING_ARG_NODE"), self._clock()

        def tombstone(topic: str) -> None:
            self._registry.tombstone(_not_every(topic), node, now_ns)

        return self._scheduler.answer(act_on_each(request, names_of(request), tombstone))

    def delete_channels(self, request: Request) -> Answer:
        return self._scheduler.answer(act_on_each(request, names_of(request), self._delete_channel))

    def _delete_channel(self, name: str) -> None:
        if not self._registry.delete_channel(*topic_and_channel(name)):
            raise HTTPError(404, "CHANNEL_NOT_FOUND")


def _name(request: Request, parameter: str) -> str:
    name = request.required(parameter, f"MISSING_ARG_{parameter.upper()}")
    if not is_valid_name(name):
        raise HTTPError(400, f"INVALID_ARG_{parameter.upper()}")
    return name


def _one_topic(request: Request) -> str:
    """The topic parameter. As in nsqlookupd, it need not be a valid name; ``*``, which means every topic there, is
    refused."""
    return _not_every(request.required("topic", "MISSING_ARG_TOPIC"))


def _not_every(topic: str) -> str:
    if topic == EVERY:
        raise HTTPError(400, "INVALID_ARG_TOPIC")
    return topic


def _json(parts: list[bytes]) -> Response:
    size = sum(map(len, parts))
    return Response(200, parts if size > _WHOLE_BYTES else b"".join(parts), (JSON_HEADER, NSQ_HEADER))


def _names(names: list[str]) -> Generator[None, None, list[bytes]]:
    """Sort the names and encode them as parts of a JSON list, without its brackets."""
    return (yield from _written((yield from sorted_in_steps(names))))


def _written(names: list[str], value: Callable[[str], object] = str) -> Generator[None, None, list[bytes]]:
    """Encode the values of the names as parts of a JSON list, without its brackets."""
    parts: list[bytes] = []
    for start in range(0, len(names), _NAMES_AT_ONCE):
        part = encode([value(name) for name in names[start : start + _NAMES_AT_ONCE]])[1:-1]
        parts.append(b"," + part if parts else part)
        if len(names) > _NAMES_AT_ONCE:
            yield
    return parts


def _each(work: Iterator[object]) -> Iterator[None]:
    for _ in work:
        yield


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
