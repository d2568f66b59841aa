"""The broker's ``/stats``: one picture, told as JSON or as text.

Keys, their order, and which of them vanish when empty are nsqd's. Monitoring and nsqadmin read them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, NotRequired, TypedDict

from brokerd.memory import MemoryStats
from nsqwire.durations import format_duration
from nsqwire.histogram import HistogramJSON

if TYPE_CHECKING:
    from brokerd.broker import Broker
    from brokerd.channel import Channel
    from brokerd.client import Client
    from brokerd.topic import Topic


class Percentile(TypedDict):
    """``value`` is in ns."""

    quantile: float
    value: float


class LatencyStats(TypedDict):
    """Latency over nsqd's window; ``percentiles`` is None while no percentile is configured."""

    count: int
    percentiles: list[Percentile] | None


class PubCount(TypedDict):
    topic: str
    count: int


class ClientStats(TypedDict):
    """One TCP connection, as a consumer of a channel or as a producer. ``connect_ts`` is in unix seconds."""

    client_id: str
    hostname: str
    version: str
    remote_address: str
    state: int
    ready_count: int
    in_flight_count: int
    message_count: int
    finish_count: int
    requeue_count: int
    connect_ts: int
    sample_rate: int
    deflate: bool
    snappy: bool
    user_agent: str
    topology_zone: str
    topology_region: str
    pub_counts: NotRequired[list[PubCount]]
    tls: bool
    tls_cipher_suite: str
    tls_version: str
    tls_negotiated_protocol: str
    tls_negotiated_protocol_is_mutual: bool


class _PubCounts(TypedDict, total=False):
    pub_counts: list[PubCount]


class _Localities(TypedDict, total=False):
    zone_local_msg_count: int
    region_local_msg_count: int
    global_msg_count: int


class _ChannelLatency(TypedDict, total=False):
    oldest_unfinished_age_ns: int | None
    latency_histogram: HistogramJSON


class ChannelStats(TypedDict):
    """One channel; the last two keys only with ``include_histograms``."""

    channel_name: str
    depth: int
    backend_depth: int
    in_flight_count: int
    deferred_count: int
    message_count: int
    zone_local_msg_count: NotRequired[int]
    region_local_msg_count: NotRequired[int]
    global_msg_count: NotRequired[int]
    requeue_count: int
    timeout_count: int
    client_count: int
    clients: list[ClientStats] | None
    paused: bool
    e2e_processing_latency: LatencyStats
    oldest_unfinished_age_ns: NotRequired[int | None]
    latency_histogram: NotRequired[HistogramJSON]


class TopicStats(TypedDict):
    """One topic; the last key only with ``include_histograms``."""

    topic_name: str
    channels: list[ChannelStats]
    depth: int
    backend_depth: int
    message_count: int
    message_bytes: int
    paused: bool
    e2e_processing_latency: LatencyStats
    oldest_unfinished_age_ns: NotRequired[int | None]


class _Memory(TypedDict, total=False):
    memory: MemoryStats


class _Node(TypedDict, total=False):
    node_id: int
    boot_id: str


class Stats(TypedDict):
    """The whole answer; ``start_time`` is in unix seconds, the last two keys come only with ``include_histograms``."""

    version: str
    health: str
    start_time: int
    topics: list[TopicStats] | None
    memory: NotRequired[MemoryStats]
    producers: list[ClientStats] | None
    node_id: NotRequired[int]
    boot_id: NotRequired[str]


def health_of(broker: Broker) -> str:
    """``OK``, or ``NOK - `` and the last error of the disk."""
    return "OK" if broker.health_error is None else f"NOK - {broker.health_error}"


def collect_stats(
    broker: Broker,
    *,
    version: str,
    topic: str = "",
    channel: str = "",
    include_clients: bool = True,
    include_histograms: bool = False,
    memory: MemoryStats | None = None,
) -> Stats:
    """Take the picture now.

    ``topic`` and ``channel`` narrow it to that name; topics without such a channel are left out. As in nsqd, lists
    that were not asked for and lists behind an unknown topic are None, where an empty broker's ``topics`` is ``[]``.
    """
    known = not topic or topic in broker.topics
    topics: list[TopicStats] | None = None
    if known:
        now_ns = time.time_ns()
        chosen = [broker.topics[topic]] if topic else [broker.topics[name] for name in sorted(broker.topics)]
        topics = [
            _topic_stats(each, channel, topic, include_clients, now_ns if include_histograms else None)
            for each in chosen
            if not channel or channel in each.channels
        ]
    producers = None
    if include_clients and known:
        producers = [_client_stats(client, topic) for client in broker.clients if client.pub_counts] or None
    memory_part: _Memory = {} if memory is None else {"memory": memory}
    node: _Node = {"node_id": broker.node_id, "boot_id": broker.boot_id} if include_histograms else {}
    return {
        "version": version,
        "health": health_of(broker),
        "start_time": int(broker.start_time),
        "topics": topics,
        **memory_part,
        "producers": producers,
        **node,
    }


def _topic_stats(topic: Topic, only: str, pub_topic: str, include_clients: bool, now_ns: int | None) -> TopicStats:
    names = [only] if only else sorted(topic.channels)
    stats: TopicStats = {
        "topic_name": topic.name,
        "channels": [_channel_stats(topic.channels[name], pub_topic, include_clients, now_ns) for name in names],
        "depth": topic.depth,
        "backend_depth": topic.backend_depth,
        "message_count": topic.message_count,
        "message_bytes": topic.message_bytes,
        "paused": topic.paused,
        "e2e_processing_latency": {"count": 0, "percentiles": None},
    }
    if now_ns is not None:
        stats["oldest_unfinished_age_ns"] = topic.oldest_unfinished_age_ns(now_ns)
    return stats


def _channel_stats(channel: Channel, pub_topic: str, include_clients: bool, now_ns: int | None) -> ChannelStats:
    clients = [_client_stats(client, pub_topic) for client in channel.clients.values()] if include_clients else None
    latency: _ChannelLatency = {}
    if now_ns is not None:
        latency["oldest_unfinished_age_ns"] = channel.oldest_unfinished_age_ns(now_ns)
        latency["latency_histogram"] = channel.histogram.to_json()
    return {
        "channel_name": channel.name,
        "depth": channel.depth,
        "backend_depth": channel.backend_depth,
        "in_flight_count": channel.in_flight_count,
        "deferred_count": channel.deferred_count,
        "message_count": channel.message_count,
        **_localities(channel),
        "requeue_count": channel.requeue_count,
        "timeout_count": channel.timeout_count,
        "client_count": len(channel.clients),
        "clients": clients,
        "paused": channel.paused,
        "e2e_processing_latency": {"count": 0, "percentiles": None},
        **latency,
    }


def _localities(channel: Channel) -> _Localities:
    """The counters by locality that are not zero."""
    counts: _Localities = {}
    if channel.zone_local_msg_count:
        counts["zone_local_msg_count"] = channel.zone_local_msg_count
    if channel.region_local_msg_count:
        counts["region_local_msg_count"] = channel.region_local_msg_count
    if channel.global_msg_count:
        counts["global_msg_count"] = channel.global_msg_count
    return counts


def _client_stats(client: Client, pub_topic: str) -> ClientStats:
    return {
        "client_id": client.client_id,
        "hostname": client.hostname,
        "version": "V2",
        "remote_address": client.remote_address,
        "state": client.state,
        "ready_count": client.ready_count,
        "in_flight_count": client.in_flight_count,
        "message_count": client.message_count,
        "finish_count": client.finish_count,
        "requeue_count": client.requeue_count,
        "connect_ts": int(client.connect_ts),
        "sample_rate": client.sample_rate,
        "deflate": False,
        "snappy": False,
        "user_agent": client.user_agent,
        "topology_zone": client.topology_zone,
        "topology_region": client.topology_region,
        **_pub_counts(client.pub_counts, pub_topic),
        "tls": False,
        "tls_cipher_suite": "",
        "tls_version": "",
        "tls_negotiated_protocol": "",
        "tls_negotiated_protocol_is_mutual": False,
    }


def _pub_counts(counts: dict[str, int], pub_topic: str) -> _PubCounts:
    """At most one topic, as in nsqd: the one asked for, else the one published to most."""
    if pub_topic:
        count = counts.get(pub_topic)
        return {"pub_counts": [{"topic": pub_topic, "count": count}]} if count else {}
    if not counts:
        return {}
    topic = max(counts, key=lambda name: counts[name])
    return {"pub_counts": [{"topic": topic, "count": counts[topic]}]}


def stats_text(stats: Stats, *, product: str, now: float, uptime_ns: int) -> str:
    """The picture for people, laid out as nsqd's; ``now`` is in unix seconds, ``product`` is the first line."""
    return "".join(_text_parts(stats, product=product, now=now, uptime_ns=uptime_ns))


def _text_parts(stats: Stats, *, product: str, now: float, uptime_ns: int) -> Iterable[str]:
    start_time = time.localtime(stats["start_time"])
    yield f"{product}\nstart_time {_rfc3339(start_time)}\nuptime {format_duration(uptime_ns)}\n"
    yield f"\nHealth: {stats['health']}\n"
    if "memory" in stats:
        yield "\nMemory:\n"
        for key, value in stats["memory"].items():
            yield f"   {key:<25}\t{value}\n"
    if stats["topics"]:
        yield "\nTopics:"
        for topic in stats["topics"]:
            yield from _topic_lines(topic, now)
    else:
        yield "\nTopics: None\n"
    if stats["producers"]:
        yield "\nProducers:\n"
        for client in stats["producers"]:
            yield f"   {_client_line(client, now)}\n"
    else:
        yield "\nProducers: None\n"


def _topic_lines(topic: TopicStats, now: float) -> Iterable[str]:
    yield (
        f"\n{'*P ' if topic['paused'] else '   '}[{topic['topic_name']:<15}] depth: {topic['depth']:<5} "
        f"be-depth: {topic['backend_depth']:<5} msgs: {topic['message_count']:<8} "
        f"e2e%: {_latency_text(topic['e2e_processing_latency'])}\n"
    )
    for channel in topic["channels"]:
        yield (
            f"   {'*P ' if channel['paused'] else '   '}[{channel['channel_name']:<25}] depth: {channel['depth']:<5} "
            f"be-depth: {channel['backend_depth']:<5} inflt: {channel['in_flight_count']:<4} "
            f"def: {channel['deferred_count']:<4} re-q: {channel['requeue_count']:<5} "
            f"timeout: {channel['timeout_count']:<5} msgs: {channel['message_count']:<8} "
            f"e2e%: {_latency_text(channel['e2e_processing_latency'])}\n"
        )
        for client in channel["clients"] or ():
            yield f"        {_client_line(client, now)}\n"


def _client_line(client: ClientStats, now: float) -> str:
    """A connection as a producer wherever it has published, else as a consumer."""
    _host, _colon, port = client["remote_address"].rpartition(":")
    name = f"{client['hostname']}:{port if _colon else ''} {client['user_agent']}"
    connected = format_duration(max(0, int(now - client["connect_ts"])) * 1_000_000_000)
    if pub_counts := client.get("pub_counts"):
        total = sum(each["count"] for each in pub_counts)
        topics = ",".join(f"{each['topic']}={each['count']}" for each in pub_counts)
        return f"[V2 {name:<21}] msgs: {total:<8} topics: {topics} connected: {connected}"
    return (
        f"[V2 {name:<21}] state: {client['state']} inflt: {client['in_flight_count']:<4} "
        f"rdy: {client['ready_count']:<4} fin: {client['finish_count']:<8} re-q: {client['requeue_count']:<8} "
        f"msgs: {client['message_count']:<8} connected: {connected}"
    )


def _latency_text(latency: LatencyStats) -> str:
    return ", ".join(_latency_value(each["value"]) for each in latency["percentiles"] or ())


def _latency_value(value_ns: float) -> str:
    for limit, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if value_ns > limit:
            return f"{value_ns / limit:.1f}{unit}"
    return f"{value_ns:.1f}ns"


def _rfc3339(moment: time.struct_time) -> str:
    offset = moment.tm_gmtoff // 60
    zone = "Z" if not offset else f"{'-' if offset < 0 else '+'}{abs(offset) // 60:02}:{abs(offset) % 60:02}"
    return time.strftime("%Y-%m-%dT%H:%M:%S", moment) + zone
