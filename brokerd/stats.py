"""The response of ``/stats``.

The keys, their order, and the omission of some when empty are nsqd's, because monitoring and nsqadmin read them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from brokerd.latency import LatencyStats, RecentLatencies
from brokerd.memory import MemoryStats
from nsqwire.counted import counted
from nsqwire.errors import DRAINED
from nsqwire.histogram import HistogramJSON
from nsqwire.units import Seconds, WholeSeconds

if TYPE_CHECKING:
    from brokerd.broker import Broker
    from brokerd.channel import Channel
    from brokerd.client import Client
    from brokerd.topic import Topic


class PubCount(TypedDict):
    """Messages that a connection has published to one topic."""

    topic: str
    count: int


class ClientStats(TypedDict):
    """One TCP connection, as a consumer of a channel or as a producer. ``connect_ts`` is in Unix seconds.

    A consumer has the last two keys, only with ``include_histograms``."""

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
    authed: NotRequired[bool]
    auth_identity: NotRequired[str]
    auth_identity_url: NotRequired[str]
    topology_zone: str
    topology_region: str
    pub_counts: NotRequired[list[PubCount]]
    tls: bool
    tls_cipher_suite: str
    tls_version: str
    tls_negotiated_protocol: str
    tls_negotiated_protocol_is_mutual: bool
    timeout_count: NotRequired[int]
    oldest_in_flight_age_ns: NotRequired[int | None]


class _Consuming(TypedDict, total=False):
    timeout_count: int
    oldest_in_flight_age_ns: int | None


class _PubCounts(TypedDict, total=False):
    pub_counts: list[PubCount]


class _Authed(TypedDict, total=False):
    authed: bool
    auth_identity: str
    auth_identity_url: str


class AppliedPolicy(TypedDict):
    """The policy that applies to a channel: its patterns and keys."""

    pattern: str
    channel: str
    policy: dict[str, Any]


class ChannelStats(TypedDict):
    """One channel; from ``oldest_unfinished_age_ns`` on, the keys are present only with ``include_histograms``."""

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
    emptied_count: NotRequired[int]
    rewound_count: NotRequired[int]
    dead_count: NotRequired[int]
    died_count: NotRequired[int]
    dead_by_reason: NotRequired[dict[str, int]]
    dropped_count: NotRequired[int]
    dropped_by_reason: NotRequired[dict[str, int]]
    policy: NotRequired[AppliedPolicy | None]
    latency_histogram: NotRequired[HistogramJSON]


class TopicStats(TypedDict):
    """One topic; from ``oldest_unfinished_age_ns`` on, the keys are present only with ``include_histograms``."""

    topic_name: str
    channels: list[ChannelStats]
    depth: int
    backend_depth: int
    message_count: int
    message_bytes: int
    paused: bool
    e2e_processing_latency: LatencyStats
    oldest_unfinished_age_ns: NotRequired[int | None]
    emptied_count: NotRequired[int]
    lost_message_count: NotRequired[int]
    sample_lives: NotRequired[int]


class Stats(TypedDict):
    """The figures of the node, in the text response and in the file of a process's last figures.

    The keys from ``node_id`` on are in the file only. The JSON response has more, and is built in brokerd/net/http.py.
    ``start_time`` is Unix seconds, ``uptime_ns`` the age of the process by the monotonic clock.
    """

    version: str
    health: str
    start_time: WholeSeconds
    topics: list[TopicStats] | None
    memory: NotRequired[MemoryStats]
    producers: list[ClientStats] | None
    node_id: NotRequired[int]
    boot_id: NotRequired[str]
    uptime_ns: NotRequired[int]
    lost_message_count: NotRequired[int]


@dataclass(frozen=True, kw_only=True)
class StatsQuery:
    """The query's parameters. ``topic`` and ``channel`` are exact names; empty selects all."""

    topic: str = ""
    channel: str = ""
    include_clients: bool = True
    include_histograms: bool = False


def health_of(broker: Broker) -> str:
    """``OK``, or ``NOK - `` with the error of the disk, the messages that a drain has left, or both."""
    errors = [broker.storage.disk_error]
    if broker.drain.draining is not None:
        errors.append(f"{DRAINED}: {counted(broker.drain.left, 'message is', 'messages are')} left")
    found = "; ".join(error for error in errors if error is not None)
    return f"NOK - {found}" if found else "OK"


def chosen_topics(broker: Broker, query: StatsQuery) -> list[Topic] | None:
    """The selected topics, sorted by name; topics without the requested channel are left out.

    None if the requested topic does not exist: nsqd then answers ``null``. A broker without topics answers ``[]``.
    """
    if query.topic and query.topic not in broker.topics:
        return None
    names = [query.topic] if query.topic else sorted(broker.topics)
    topics = [broker.topics[name] for name in names]
    return [topic for topic in topics if query.channel in topic.channels] if query.channel else topics


def producer_stats(broker: Broker, query: StatsQuery) -> list[ClientStats] | None:
    """The connections that have published to any topic.

    None if there are none, if clients are not requested, or if the requested topic does not exist.
    """
    if not query.include_clients or (query.topic and query.topic not in broker.topics):
        return None
    return [_client_stats(client, query.topic, {}) for client in broker.clients if client.pub_counts] or None


def topic_stats(topic: Topic, query: StatsQuery, latencies: RecentLatencies) -> TopicStats:
    """The present figures of one topic and its channels."""
    names = sorted(topic.channels)
    if query.channel:
        names = [name for name in names if name == query.channel]
    stats: TopicStats = {
        "topic_name": topic.name,
        "channels": [_channel_stats(topic.channels[name], query, latencies) for name in names],
        "depth": topic.depth,
        "backend_depth": topic.backend_depth,
        "message_count": topic.message_count,
        "message_bytes": topic.message_bytes,
        "paused": topic.paused,
        "e2e_processing_latency": latencies.of_channels(topic.channels.values()),
    }
    if query.include_histograms:
        stats["oldest_unfinished_age_ns"] = topic.oldest_unfinished_age_ns(time.time_ns())
        stats["emptied_count"] = topic.emptied_count
        stats["lost_message_count"] = topic.lost_message_count
        stats["sample_lives"] = topic.lives.every
    return stats


def _channel_stats(channel: Channel, query: StatsQuery, latencies: RecentLatencies) -> ChannelStats:
    clients: list[ClientStats] | None = [] if query.include_clients else None
    if clients is not None and channel.clients:
        clients = _consumer_stats(channel, query)
    depth = channel.depth
    stats: ChannelStats = {
        "channel_name": channel.name,
        "depth": depth,
        "backend_depth": channel.beyond_memory(depth) if depth else 0,
        "in_flight_count": channel.in_flight_count,
        "deferred_count": channel.deferred_count,
        "message_count": channel.message_count,
        "zone_local_msg_count": channel.delivery.zone_local_msg_count,
        "region_local_msg_count": channel.delivery.region_local_msg_count,
        "global_msg_count": channel.delivery.global_msg_count,
        "requeue_count": channel.requeue_count,
        "timeout_count": channel.timeout_count,
        "client_count": len(channel.clients),
        "clients": clients,
        "paused": channel.paused,
        "e2e_processing_latency": latencies.of_channels((channel,)),
    }
    if not channel.delivery.zone_local_msg_count:
        del stats["zone_local_msg_count"]
    if not channel.delivery.region_local_msg_count:
        del stats["region_local_msg_count"]
    if not channel.delivery.global_msg_count:
        del stats["global_msg_count"]
    if query.include_histograms:
        stats["oldest_unfinished_age_ns"] = channel.oldest_unfinished_age_ns(time.time_ns())
        stats["emptied_count"] = channel.emptied_count
        stats["rewound_count"] = channel.rewound_count
        stats["dead_count"] = len(channel.dead)
        stats["died_count"] = channel.redelivery.died.total()
        stats["policy"] = applied_policy(channel)
        stats["dead_by_reason"] = {reason.value: count for reason, count in channel.dead.counts.items() if count}
        stats["dropped_count"] = channel.limits.dropped.total()
        stats["dropped_by_reason"] = {reason.value: count for reason, count in channel.limits.dropped.items()}
        stats["latency_histogram"] = channel.histogram.to_json()
    return stats


def applied_policy(channel: Channel) -> AppliedPolicy | None:
    """The most specific policy for the channel; None if only the node's settings apply."""
    rule = channel.policy_rule
    return None if rule is None else {"pattern": rule.topic, "channel": rule.channel, "policy": rule.values}


def _consumer_stats(channel: Channel, query: StatsQuery) -> list[ClientStats]:
    """The clients of a channel; with histograms, also their timeouts and their oldest messages in flight."""
    clients = channel.clients.values()
    if not query.include_histograms:
        return [_client_stats(client, query.topic, {}) for client in clients]
    now, oldest = time.monotonic(), channel.in_flight.oldest_sent_at()
    return [
        _client_stats(client, query.topic, _consuming(client, oldest.get(client.number), now)) for client in clients
    ]


def _consuming(client: Client, sent_at: Seconds | None, now: Seconds) -> _Consuming:
    """A consumer's timeouts and the age of its oldest message in flight, which was sent at ``sent_at``."""
    age_ns = None if sent_at is None else max(0, int((now - sent_at) * 1e9))
    return {"timeout_count": client.timeout_count, "oldest_in_flight_age_ns": age_ns}


def _client_stats(client: Client, pub_topic: str, consuming: _Consuming) -> ClientStats:
    tls = client.tls
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
        "deflate": client.deflate,
        "snappy": client.snappy,
        "user_agent": client.user_agent,
        **_authed(client),
        "topology_zone": client.topology_zone,
        "topology_region": client.topology_region,
        **_pub_counts(client.pub_counts, pub_topic),
        "tls": tls is not None,
        "tls_cipher_suite": tls.cipher_suite if tls else "",
        "tls_version": tls.version if tls else "",
        "tls_negotiated_protocol": "",
        "tls_negotiated_protocol_is_mutual": tls is not None,
        **consuming,
    }


def _authed(client: Client) -> _Authed:
    """The identity that the auth server returned for the client, if any."""
    identity: _Authed = {}
    if client.grant is not None and client.is_authed:
        identity["authed"] = True
        if client.grant.identity:
            identity["auth_identity"] = client.grant.identity
        if client.grant.identity_url:
            identity["auth_identity_url"] = client.grant.identity_url
    return identity


def _pub_counts(counts: dict[str, int], pub_topic: str) -> _PubCounts:
    """At most one topic, as in nsqd: the requested one, else the one with most publishes."""
    if pub_topic:
        count = counts.get(pub_topic)
        return {"pub_counts": [{"topic": pub_topic, "count": count}]} if count else {}
    if not counts:
        return {}
    topic = max(counts, key=lambda name: counts[name])
    return {"pub_counts": [{"topic": topic, "count": counts[topic]}]}
