"""nsqadmin's objects NODE, TOPIC, CHANNEL and CLIENT, for one node and for all. Keys, their order, and the omission of
empty ones are nsqadmin 1.3.0's."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any, TypeVar

from nsqcluster import ChannelStats, ClientStats, Node, TopicStats
from nsqplatform.nsqadmin import percentiles

Shape = dict[str, Any]
Held = TypeVar("Held", TopicStats, ChannelStats)

DELIVERIES = ("zone_local_msg_count", "region_local_msg_count", "global_msg_count")
TOPIC_SUMS = ("depth", "memory_depth", "backend_depth", "message_count", "delivery_msg_count", *DELIVERIES)
CHANNEL_SUMS = (
    *("depth", "memory_depth", "backend_depth", "in_flight_count", "deferred_count", "requeue_count"),
    *("timeout_count", "message_count", "delivery_msg_count", *DELIVERIES, "client_count"),
)


def without_empty(shape: Shape, keys: Sequence[str]) -> Shape:
    return {key: value for key, value in shape.items() if value or key not in keys}


def delivered(figures: TopicStats | ChannelStats) -> Shape:
    counts = {key: getattr(figures, key) for key in DELIVERIES}
    return {"delivery_msg_count": sum(counts.values()), **counts}


# ---- of one node


def node_shape(node: Node, *, out_of_date: bool) -> Shape:
    producer = node.producer
    topics = [{"topic": name, "tombstoned": is_set} for name, is_set in sorted(producer.tombstones.items())]
    shape = {
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


def topic_shape(node: Node, topic: TopicStats, *, with_clients: bool) -> Shape:
    shape = {
        "node": node.id,
        "hostname": node.producer.hostname,
        "topic_name": topic.topic_name,
        "depth": topic.depth,
        "memory_depth": topic.depth - topic.backend_depth,
        "backend_depth": topic.backend_depth,
        "message_count": topic.message_count,
        **delivered(topic),
        "nodes": None,
        "channels": [channel_shape(node, topic.topic_name, each, with_clients=with_clients) for each in topic.channels],
        "paused": topic.paused,
        "e2e_processing_latency": percentiles.of_node(topic.e2e_processing_latency),
    }
    return without_empty(shape, DELIVERIES)


def channel_shape(node: Node, topic: str, channel: ChannelStats, *, with_clients: bool) -> Shape:
    clients = [client_shape(node, each) for each in channel.clients] if with_clients else None
    shape = {
        "node": node.id,
        "hostname": node.producer.hostname,
        "topic_name": topic,
        "channel_name": channel.channel_name,
        "depth": channel.depth,
        "memory_depth": channel.depth - channel.backend_depth,
        "backend_depth": channel.backend_depth,
        "in_flight_count": channel.in_flight_count,
        "deferred_count": channel.deferred_count,
        "requeue_count": channel.requeue_count,
        "timeout_count": channel.timeout_count,
        "message_count": channel.message_count,
        **delivered(channel),
        "client_count": channel.client_count,
        "nodes": None,
        "clients": clients,
        "paused": channel.paused,
        "e2e_processing_latency": percentiles.of_node(channel.e2e_processing_latency),
    }
    return without_empty(shape, ("delivery_msg_count", *DELIVERIES))


def client_shape(node: Node, client: ClientStats) -> Shape:
    """A client. ``connected`` is the time since ``connect_ts`` in nanoseconds, to the second."""
    connected = max(0, int(time.time()) - client.connect_ts) if client.connect_ts else 0
    shape = {
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


def by_host(held: Sequence[tuple[Node, Held]]) -> list[tuple[Node, Held]]:
    return sorted(held, key=lambda each: (each[0].producer.hostname, each[0].id))


def sums(shapes: Sequence[Shape], keys: Sequence[str]) -> Shape:
    return {key: sum(shape.get(key, 0) for shape in shapes) for key in keys}


def topic_aggregate(name: str, held: Sequence[tuple[Node, TopicStats]]) -> Shape:
    """A topic over all its nodes with its channels, sorted by name. It shares no objects with the per-node ones, and is
    independent of the order of ``held``."""
    held = by_host(held)
    shapes = [topic_shape(node, topic, with_clients=False) for node, topic in held]
    channels: dict[str, list[tuple[Node, ChannelStats]]] = {}
    for node, topic in held:
        for channel in topic.channels:
            channels.setdefault(channel.channel_name, []).append((node, channel))
    aggregate = {
        "node": "*",
        "hostname": "",
        "topic_name": name,
        **sums(shapes, TOPIC_SUMS),
        "nodes": shapes or None,
        "channels": [
            channel_aggregate(name, channel, of_nodes, with_clients=False)
            for channel, of_nodes in sorted(channels.items())
        ]
        or None,
        "paused": any(shape["paused"] for shape in shapes),
        "e2e_processing_latency": percentiles.of_all(
            [topic.e2e_processing_latency for _, topic in held], topic=name, channel=""
        ),
    }
    return without_empty(aggregate, DELIVERIES)


def channel_aggregate(topic: str, name: str, held: Sequence[tuple[Node, ChannelStats]], *, with_clients: bool) -> Shape:
    held = by_host(held)
    shapes = [channel_shape(node, topic, channel, with_clients=with_clients) for node, channel in held]
    clients = [client for shape in shapes for client in shape["clients"] or []]
    aggregate = {
        "node": "*",
        "hostname": "",
        "topic_name": topic,
        "channel_name": name,
        **sums(shapes, CHANNEL_SUMS),
        "nodes": shapes,
        "clients": sorted(clients, key=nearness) or None,
        "paused": any(shape["paused"] for shape in shapes),
        "e2e_processing_latency": percentiles.of_all(
            [channel.e2e_processing_latency for _, channel in held], topic=topic, channel=name
        ),
    }
    return without_empty(aggregate, ("delivery_msg_count", *DELIVERIES))


def nearness(client: Shape) -> tuple[Any, ...]:
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
