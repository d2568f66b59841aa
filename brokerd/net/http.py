"""nsqd's HTTP interface: the routes, and the endpoints that only read."""

from __future__ import annotations

import asyncio
import gc
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from brokerd.last_stats import previous_stats
from brokerd.latency import RecentLatencies
from brokerd.memory import CollectorPauses, memory_stats
from brokerd.net.http_changes import changes_kept_by
from brokerd.net.http_config import Config
from brokerd.net.http_drain import DrainVerbs
from brokerd.net.http_lives import LifeEndpoint
from brokerd.net.http_messages import MessageVerbs
from brokerd.net.http_mirror import MirrorVerbs
from brokerd.net.http_names import ManyChannels, ManyTopics
from brokerd.net.http_policies import PolicyVerbs
from brokerd.net.http_publish import Publishing
from brokerd.net.http_topics import ChannelVerbs, TopicVerbs
from brokerd.net.portions import in_portions
from brokerd.stats import Stats, StatsQuery, TopicStats, chosen_topics, health_of, producer_stats, topic_stats
from brokerd.stats_text import stats_text
from nsqdaemon.http import Request, Response, Router, empty, json_response, text_response
from nsqdaemon.http.messages import FLAG_WORDS, JSON_HEADER, NSQ_HEADER
from nsqdaemon.http.profiling import add_profiling
from nsqwire.durations import nanoseconds
from nsqwire.gojson import encode, encode_without_floats
from nsqwire.version import NSQ_VERSION, product_version, version_text

if TYPE_CHECKING:
    from brokerd.broker import Broker
    from brokerd.net.peers import LookupPeers
    from brokerd.topic import Topic

PING_OK: Final = text_response("OK", nsq=False)

_TOPICS_AT_ONCE: Final = 50
_GO_INT: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Ports:
    """The listening ports: -1 for a Unix socket, 0 for none."""

    tcp: int
    http: int


class StatusEndpoints:
    """``/ping``, ``/info``, ``/stats`` and the debug endpoints."""

    def __init__(
        self, broker: Broker, latencies: RecentLatencies, ports: Ports, hostname: str, pauses: CollectorPauses
    ) -> None:
        self._broker = broker
        self._latencies = latencies
        self._ports = ports
        self._hostname = hostname
        self._pauses = pauses
        self._release = ""

    def ping(self, request: Request) -> Response:
        """``OK`` if messages and changes can be stored; otherwise, or if the node is being drained, status 500."""
        if self._broker.storage.disk_error is None and self._broker.drain.draining is None:
            figures = self._broker.mirror_figures
            if figures is not None and figures()["under_replicated"]:
                return text_response("OK - under_replicated", nsq=False)
            return PING_OK
        return text_response(health_of(self._broker), 500, nsq=False)

    def info(self, request: Request) -> Response:
        """The node's version, addresses and limits. Durations are nanoseconds."""
        settings = self._broker.settings
        return json_response(
            {
                "version": NSQ_VERSION,
                "broadcast_address": settings.broadcast_address,
                "hostname": self._hostname,
                "http_port": self._ports.http,
                "tcp_port": self._ports.tcp,
                "start_time": int(self._broker.start_time),
                "max_heartbeat_interval": nanoseconds(settings.max_heartbeat_interval),
                "max_output_buffer_size": settings.max_output_buffer_size,
                "max_output_buffer_timeout": nanoseconds(settings.max_output_buffer_timeout),
                "max_deflate_level": settings.max_deflate_level,
                "topology_zone": settings.topology_zone,
                "topology_region": settings.topology_region,
            }
        )

    async def stats(self, request: Request) -> Response:
        """The broker's state, as JSON or text."""
        params = request.params
        as_json = params.get("format") == "json"
        include_memory = FLAG_WORDS.get(params.get("include_mem", ""), True)
        query = StatsQuery(
            topic=params.get("topic", ""),
            channel=params.get("channel", ""),
            include_clients=FLAG_WORDS.get(params.get("include_clients", ""), True),
            include_histograms=as_json and FLAG_WORDS.get(params.get("include_histograms", ""), False),
        )
        topics = chosen_topics(self._broker, query)
        if as_json:
            previous: bytes | None = None
            if query.include_histograms and FLAG_WORDS.get(params.get("previous_boot", ""), False):
                previous = await asyncio.to_thread(previous_stats, self._broker.data_path)  # the disk may not answer
            if query.include_histograms and not self._release:
                self._release = await asyncio.to_thread(product_version)  # reads the disk, the first time
            parts = await self._topics_json(topics, query)
            return self._stats_json(query, parts, include_memory, previous)
        stats: Stats = {
            "version": NSQ_VERSION,
            "health": health_of(self._broker),
            "start_time": int(self._broker.start_time),
            "topics": [row async for rows in self._rows(topics or [], query) for row in rows],
            "producers": producer_stats(self._broker, query),
        }
        if include_memory:
            stats["memory"] = memory_stats(self._pauses)
        product = version_text("nsqd")
        return text_response(stats_text(stats, product=product, now=time.time(), uptime_ns=self._uptime_ns))

    @property
    def _uptime_ns(self) -> int:
        return time.monotonic_ns() - self._broker.started_ns

    async def _rows(self, topics: list[Topic], query: StatsQuery) -> AsyncIterator[list[TopicStats]]:
        async for portion in self._alive(topics):
            yield [topic_stats(topic, query, self._latencies) for topic in portion]

    async def _alive(self, topics: list[Topic]) -> AsyncIterator[list[Topic]]:
        """Yield the topics in portions, without those that were deleted meanwhile."""
        async for portion in in_portions(topics, _TOPICS_AT_ONCE):
            yield [topic for topic in portion if self._broker.topics.get(topic.name) is topic]

    async def _topics_json(self, topics: list[Topic] | None, query: StatsQuery) -> list[bytes]:
        """The topics as JSON, in parts that are not joined, because thousands of topics take megabytes."""
        if topics is None:
            return [b"null"]
        # The only floats are the quantiles of latency percentiles.
        encode_rows = encode if self._broker.settings.e2e_processing_latency_percentile else encode_without_floats
        parts = [b"["]
        async for rows in self._rows(topics, query):
            if rows:
                parts += [encode_rows(rows)[1:-1], b","]
        return [*parts[:-1], b"]"] if len(parts) > 1 else [b"[]"]

    def _stats_json(
        self, query: StatsQuery, topics: list[bytes], include_memory: bool, previous: bytes | None
    ) -> Response:
        """The response with ``topics`` and the ``previous`` process's figures, which are already encoded."""
        head: dict[str, object] = {
            "version": NSQ_VERSION,
            "health": health_of(self._broker),
            "start_time": int(self._broker.start_time),
        }
        tail: dict[str, object] = {}
        if include_memory:
            tail["memory"] = memory_stats(self._pauses)
        tail["producers"] = producer_stats(self._broker, query)
        if query.include_histograms:
            broker = self._broker
            tail.update(node_id=broker.node_id, boot_id=broker.boot_id, uptime_ns=self._uptime_ns)
            tail["release"] = self._release
            tail["lost_message_count"] = broker.storage.lost_message_count
            tail["lives_end"] = broker.runtime.lives.end
            tail["drain"] = broker.drain.to_json()
            if broker.mirror_figures is not None:
                tail["mirror"] = broker.mirror_figures()
        end = encode(tail)[1:]
        if previous is not None:
            end = end[:-1] + b',"previous_boot":' + previous + b"}"
        parts = [encode(head)[:-1] + b',"topics":', *topics, b"," + end]
        return Response(200, parts if len(topics) > 3 else b"".join(parts), (JSON_HEADER, NSQ_HEADER))

    async def metrics(self, request: Request) -> Response:
        """Prometheus metrics. The first scrape imports the library, because the import would slow down the start."""
        from brokerd.metrics import BrokerMetrics
        from nsqdaemon.http.metrics import metrics_response, process_metrics

        metrics = BrokerMetrics()
        metrics.add_node(self._broker)
        async for portion in self._alive(list(self._broker.topics.values())):
            for topic in portion:
                metrics.add_topic(topic)
        return await metrics_response([*metrics.families, *process_metrics("nsqd")])

    def free_memory(self, request: Request) -> Response:
        """Collect garbage. nsqd does the same, but answers 500 by mistake."""
        gc.collect()
        return empty()

    def set_block_rate(self, request: Request) -> Response:
        """Check the rate as nsqd does. It has no effect, because Python has no block profiler."""
        rate = request.params.get("rate", "")
        if not _GO_INT.fullmatch(rate):
            quoted = rate.replace("\\", "\\\\").replace('"', '\\"')
            reason = f'invalid block rate : strconv.Atoi: parsing "{quoted}": invalid syntax'
            return text_response(reason.encode("utf-8", "replace"), 400)
        return empty()


def broker_router(
    broker: Broker,
    peers: LookupPeers,
    latencies: RecentLatencies,
    *,
    ports: Ports,
    http_port: int,
    hostname: str,
    pauses: CollectorPauses,
) -> Router:
    """Return the router with all endpoints. ``http_port`` is the port announced to nsqlookupd."""
    status = StatusEndpoints(broker, latencies, ports, hostname, pauses)
    publishing = Publishing(broker, asyncio.get_running_loop().call_soon)
    topics = TopicVerbs(broker)
    channels = ChannelVerbs(broker)
    messages = MessageVerbs(broker)
    policies = PolicyVerbs(broker)
    drain = DrainVerbs(broker)
    mirror = MirrorVerbs(broker)
    config = Config(broker.settings, peers, http_port=http_port)
    kept = changes_kept_by(broker.storage.syncer)

    max_msg_size, max_body_size = broker.settings.max_msg_size, broker.settings.max_body_size
    router = Router()
    router.add("GET", "/ping", status.ping)
    router.add("GET", "/info", status.info)
    router.add("GET", "/stats", status.stats)
    router.add("GET", "/metrics", status.metrics, quiet=True)
    # The paths before NSQ 1.0, for old scripts.
    for path in ("/pub", "/put"):
        router.add("POST", path, publishing.pub, too_big="MSG_TOO_BIG", quiet=True, max_body_size=max_msg_size)
    for path in ("/mpub", "/mput"):
        router.add("POST", path, publishing.mpub, too_big="BODY_TOO_BIG", quiet=True, max_body_size=max_body_size)
    for path, handler in topics.routes().items():
        router.add("POST", f"/topic/{path}", kept(handler))
    router.add("GET", "/topic/scan", topics.scan)
    for path, handler in channels.routes().items():
        router.add("POST", f"/channel/{path}", kept(handler))
    for path, handler in ManyTopics(broker).routes().items():
        router.add("POST", f"/topics/{path}", kept(handler))
    for path, handler in ManyChannels(broker).routes().items():
        router.add("POST", f"/channels/{path}", kept(handler))
    router.add("POST", "/channel/rewind", kept(channels.rewind))
    router.add("GET", "/channel/rewind", channels.rewind_preview)
    router.add("POST", "/channel/finish", kept(channels.finish))
    router.add("POST", "/channel/requeue", kept(channels.requeue))
    router.add("POST", "/channel/bury", kept(channels.bury))
    router.add("GET", "/channel/peek", channels.peek)
    router.add("GET", "/channel/scan", channels.scan)
    router.add("GET", "/channel/message", channels.message)
    router.add("GET", "/channel/message/body", channels.body)
    for path, handler in messages.routes().items():
        router.add("POST", f"/message/{path}", kept(handler))
    router.add("GET", "/policies", policies.list)
    router.add("POST", "/policy", kept(policies.set))
    router.add("POST", "/policy/delete", kept(policies.delete))
    router.add("GET", "/lives", LifeEndpoint(broker).lives)
    router.add("GET", "/drain", drain.get)
    router.add("POST", "/drain", drain.begin)
    router.add("POST", "/drain/cancel", drain.cancel)
    router.add("GET", "/mirror", mirror.get)
    router.add("POST", "/mirror/handover", mirror.hand_over)
    router.add("GET", "/config/:opt", config.get)
    router.add("PUT", "/config/:opt", config.put, too_big="INVALID_VALUE", max_body_size=max_msg_size)
    add_profiling(router, index="/debug/pprof/")
    router.add("POST", "/debug/freememory", status.free_memory)
    router.add("PUT", "/debug/setblockrate", status.set_block_rate)
    return router
