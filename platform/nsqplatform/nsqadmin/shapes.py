"""nsqadmin's objects NODE, TOPIC, CHANNEL and CLIENT, for one node and for all. Keys, their order, and the omission of
empty ones are nsqadmin 1.3.0's."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import NotRequired, TypedDict, TypeVar, cast

from nsqcluster import ChannelStats, ClientStats, Node, TopicStats
from nsqcluster.sums import channel_over_nodes, client_count, topic_over_nodes
from nsqplatform.nsqadmin import percentiles
from nsqplatform.nsqadmin.percentiles import LatencyShape

DELIVERIES = ("zone_local_msg_count", "region_local_msg_count", "global_msg_count")


class Tombstone(TypedDict):
    topic: str
    tombstoned: bool


class NodeShape(TypedDict):
    remote_addresses: list[str] | None
    """``<registry>/<address of the node as the registry sees it>`` for each registry that lists it."""
    remote_address: str
    hostname: str
    broadcast_address: str
    tcp_port: int
    http_port: int
    version: str
    topology_zone: NotRequired[str]
    topology_region: NotRequired[str]
    topics: list[Tombstone] | None
    out_of_date: bool


class ClientShape(TypedDict):
    node: str
    remote_address: str
    version: str
    client_id: str
    hostname: str
    user_agent: str
    connect_ts: int
    """Unix seconds."""
    connected: int
    """Nanoseconds since ``connect_ts``, to the second."""
    in_flight_count: int
    ready_count: int
    finish_count: int
    requeue_count: int
    message_count: int
    sample_rate: int
    deflate: bool
    snappy: bool
    authed: bool
    auth_identity: str
    auth_identity_url: str
    node_topology_region: NotRequired[str]
    node_topology_zone: NotRequired[str]
    topology_region: NotRequired[str]
    topology_zone: NotRequired[str]
    tls: bool
    tls_cipher_suite: str
    tls_version: str
    tls_negotiated_protocol: str
    tls_negotiated_protocol_is_mutual: bool


class TopicCounts(TypedDict):
    depth: int
    memory_depth: int
    backend_depth: int
    message_count: int
    delivery_msg_count: int
    zone_local_msg_count: NotRequired[int]
    region_local_msg_count: NotRequired[int]
    global_msg_count: NotRequired[int]


class ChannelCounts(TypedDict):
    depth: int
    memory_depth: int
    backend_depth: int
    in_flight_count: int
    deferred_count: int
    requeue_count: int
    timeout_count: int
    message_count: int
    delivery_msg_count: NotRequired[int]
    zone_local_msg_count: NotRequired[int]
    region_local_msg_count: NotRequired[int]
    global_msg_count: NotRequired[int]
    client_count: int


class ChannelShape(ChannelCounts):
    """``node`` is ``*`` for several nodes, as in TopicShape."""

    node: str
    hostname: str
    topic_name: str
    channel_name: str
    nodes: list[ChannelShape] | None
    clients: list[ClientShape] | None
    paused: bool
    e2e_processing_latency: LatencyShape


class TopicShape(TopicCounts):
    node: str
    hostname: str
    topic_name: str
    nodes: list[TopicShape] | None
    channels: list[ChannelShape] | None
    paused: bool
    e2e_processing_latency: LatencyShape


Shape = TypeVar("Shape", bound=Mapping[str, object])
Stats = TypeVar("Stats", TopicStats, ChannelStats)


def without_empty(shape: Shape, keys: Sequence[str]) -> Shape:
    """The shape without those of ``keys`` whose values are empty; its type declares them NotRequired."""
    return cast(Shape, {key: value for key, value in shape.items() if value or key not in keys})


def topic_counts(topic: TopicStats) -> TopicCounts:
    return {
        "depth": topic.depth,
        "memory_depth": topic.depth - topic.backend_depth,
        "backend_depth": topic.backend_depth,
        "message_count": topic.message_count,
        "delivery_msg_count": delivered(topic),
        "zone_local_msg_count": topic.zone_local_msg_count,
        "region_local_msg_count": topic.region_local_msg_count,
        "global_msg_count": topic.global_msg_count,
    }


def channel_counts(channel: ChannelStats) -> ChannelCounts:
    return {
        "depth": channel.depth,
        "memory_depth": channel.depth - channel.backend_depth,
        "backend_depth": channel.backend_depth,
        "in_flight_count": channel.in_flight_count,
        "deferred_count": channel.deferred_count,
        "requeue_count": channel.requeue_count,
        "timeout_count": channel.timeout_count,
        "message_count": channel.message_count,
        "delivery_msg_count": delivered(channel),
        "zone_local_msg_count": channel.zone_local_msg_count,
        "region_local_msg_count": channel.region_local_msg_count,
        "global_msg_count": channel.global_msg_count,
        "client_count": client_count(channel),
    }


def delivered(figures: TopicStats | ChannelStats) -> int:
    return figures.zone_local_msg_count + figures.region_local_msg_count + figures.global_msg_count


# ---- of one node


def node_shape(node: Node, *, out_of_date: bool) -> NodeShape:
    producer = node.producer
    topics: list[Tombstone] = [
        {"topic": name, "tombstoned": is_set} for name, is_set in sorted(producer.tombstones.items())
    ]
    shape: NodeShape = {
        "remote_addresses": [f"{registry}/{each.remote_address or 'N/A'}" for registry, each in node.listings] or None,
        "remote_address": producer.remote_address,
        "hostname": producer.hostname,
        "broadcast_address": producer.broadcast_address,
        "tcp_port": producer.tcp_port,
        "http_port": producer.http_port,
        "version": producer.version,
        "topology_zone": producer.topology_zone,
        "topology_region": producer.topology_region,
        "topics": topics or None,
        "out_of_date": out_of_date,
    }
    return without_empty(shape, ("topology_zone", "topology_region"))


def topic_shape(node: Node, topic: TopicStats, *, with_clients: bool) -> TopicShape:
    shape: TopicShape = {
        "node": node.id,
        "hostname": node.producer.hostname,
        "topic_name": topic.topic_name,
        **topic_counts(topic),
        "nodes": None,
        "channels": [channel_shape(node, topic.topic_name, each, with_clients=with_clients) for each in topic.channels],
        "paused": topic.paused,
        "e2e_processing_latency": percentiles.of_node(topic.e2e_processing_latency),
    }
    return without_empty(shape, DELIVERIES)


def channel_shape(node: Node, topic: str, channel: ChannelStats, *, with_clients: bool) -> ChannelShape:
    clients = [client_shape(node, each) for each in channel.clients] if with_clients else None
    shape: ChannelShape = {
        "node": node.id,
        "hostname": node.producer.hostname,
        "topic_name": topic,
        "channel_name": channel.channel_name,
        **channel_counts(channel),
        "nodes": None,
        "clients": clients,
        "paused": channel.paused,
        "e2e_processing_latency": percentiles.of_node(channel.e2e_processing_latency),
    }
    return without_empty(shape, ("delivery_msg_count", *DELIVERIES))


def client_shape(node: Node, client: ClientStats) -> ClientShape:
    connected = max(0, int(time.time()) - client.connect_ts) if client.connect_ts else 0
    shape: ClientShape = {
        "node": node.id,
        "remote_address": client.remote_address,
        "version": client.version,
        "client_id": client.client_id,
        "hostname": client.hostname,
        "user_agent": client.user_agent,
        "connect_ts": client.connect_ts,
        "connected": connected * 1_000_000_000,
        "in_flight_count": client.in_flight_count,
        "ready_count": client.ready_count,
        "finish_count": client.finish_count,
        "requeue_count": client.requeue_count,
        "message_count": client.message_count,
        "sample_rate": client.sample_rate,
        "deflate": client.deflate,
        "snappy": client.snappy,
        "authed": client.authed,
        "auth_identity": client.auth_identity,
        "auth_identity_url": client.auth_identity_url,
        "node_topology_region": node.producer.topology_region,
        "node_topology_zone": node.producer.topology_zone,
        "topology_region": client.topology_region,
        "topology_zone": client.topology_zone,
        "tls": client.tls,
        "tls_cipher_suite": client.tls_cipher_suite,
        "tls_version": client.tls_version,
        "tls_negotiated_protocol": client.tls_negotiated_protocol,
        "tls_negotiated_protocol_is_mutual": client.tls_negotiated_protocol_is_mutual,
    }
    return without_empty(shape, ("node_topology_region", "node_topology_zone", "topology_region", "topology_zone"))


# ---- of all


def by_host(shares: Sequence[tuple[Node, Stats]]) -> list[tuple[Node, Stats]]:
    return sorted(shares, key=lambda each: (each[0].producer.hostname, each[0].id))


def topic_aggregate(name: str, shares: Sequence[tuple[Node, TopicStats]]) -> TopicShape:
    """A topic over all its nodes with its channels, sorted by name. It shares no objects with the per-node ones, and is
    independent of the order of ``shares``."""
    shares = by_host(shares)
    topics = [topic for _, topic in shares]
    total = topic_over_nodes(name, topics)
    channels: dict[str, list[tuple[Node, ChannelStats]]] = {}
    for node, topic in shares:
        for channel in topic.channels:
            channels.setdefault(channel.channel_name, []).append((node, channel))
    aggregate: TopicShape = {
        "node": "*",
        "hostname": "",
        "topic_name": name,
        **topic_counts(total),
        "nodes": [topic_shape(node, topic, with_clients=False) for node, topic in shares] or None,
        "channels": [
            channel_aggregate(name, channel, of_nodes, with_clients=False)
            for channel, of_nodes in sorted(channels.items())
        ]
        or None,
        "paused": total.paused,
        "e2e_processing_latency": percentiles.of_all(
            [topic.e2e_processing_latency for topic in topics], topic=name, channel=""
        ),
    }
    return without_empty(aggregate, DELIVERIES)


def channel_aggregate(
    topic: str, name: str, shares: Sequence[tuple[Node, ChannelStats]], *, with_clients: bool
) -> ChannelShape:
    shares = by_host(shares)
    channels = [channel for _, channel in shares]
    total = channel_over_nodes(name, channels)
    shapes = [channel_shape(node, topic, channel, with_clients=with_clients) for node, channel in shares]
    clients = [client for shape in shapes for client in shape["clients"] or []]
    aggregate: ChannelShape = {
        "node": "*",
        "hostname": "",
        "topic_name": topic,
        "channel_name": name,
        **channel_counts(total),
        "nodes": shapes,
        "clients": sorted(clients, key=nearness) or None,
        "paused": total.paused,
        "e2e_processing_latency": percentiles.of_all(
            [channel.e2e_processing_latency for channel in channels], topic=topic, channel=name
        ),
    }
    return without_empty(aggregate, ("delivery_msg_count", *DELIVERIES))


def nearness(client: ClientShape) -> tuple[str, bool, bool, str, str, str, str]:
    """A sort key: by node; within a node, clients of its zone first, then those of its region, then by region and
    zone."""
    region, zone = client.get("topology_region", ""), client.get("topology_zone", "")
    same_region = bool(region) and region == client.get("node_topology_region")
    same_zone = bool(zone) and zone == client.get("node_topology_zone")
    return client["node"], not same_zone, not same_region, region, zone, client["hostname"], client["client_id"]


# ---- versions

_SEMVER = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?(-[0-9A-Za-z.-]+)?")


def version_key(text: str) -> tuple[int, int, int, bool, str]:
    """A sort key. An invalid version counts as 0.0.0; a pre-release precedes its release."""
    found = _SEMVER.match(text)
    if found is None:
        return 0, 0, 0, True, ""
    major, minor, patch, pre = found.groups()
    return int(major), int(minor), int(patch or 0), pre is None, pre or ""
