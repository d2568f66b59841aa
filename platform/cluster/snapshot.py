"""The cluster's picture from the latest reading of each node. Pure: what it needs is passed in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cluster.latency import LatencyWindow
from cluster.node import Node
from cluster.rates import per_second, total
from cluster.rows import ChannelNode, ChannelRow, ClientRow, NodeRow, Snapshot, TopicNode, TopicRow
from cluster.stats import ChannelStats, NodeStats, TopicStats


class Reading:
    """A node's answer, when it was read, and its figures by name."""

    __slots__ = ("channels", "read_at", "stats", "taken_at", "topics")

    def __init__(self, stats: NodeStats, *, read_at: float, taken_at: float) -> None:
        """``read_at`` is in seconds on the monotonic clock, ``taken_at`` in unix seconds."""
        self.stats = stats
        self.read_at = read_at
        self.taken_at = taken_at
        self.topics: dict[str, TopicStats] = {topic.topic_name: topic for topic in stats.topics}
        self.channels: dict[tuple[str, str], ChannelStats] = {
            (topic.topic_name, channel.channel_name): channel for topic in stats.topics for channel in topic.channels
        }


@dataclass(frozen=True, kw_only=True)
class NodeView:
    """What is known of one node. ``error`` is None while it is up; ``latest`` None if it never answered."""

    node: Node
    error: str | None
    latest: Reading | None = None
    earlier: Reading | None = None
    """The reading before ``latest``."""

    @property
    def base(self) -> Reading | None:
        """What rates are taken from: the earlier reading, if the same process gave it and the node is still up."""
        if self.error is not None or self.latest is None or self.earlier is None:
            return None
        return self.earlier if self.earlier.stats.boot == self.latest.stats.boot else None

    @property
    def elapsed(self) -> float | None:
        base = self.base
        return None if base is None or self.latest is None else self.latest.read_at - base.read_at


def build_snapshot(
    views: Sequence[NodeView],
    latencies: LatencyWindow,
    registered: Mapping[str, Sequence[str]],
    *,
    version: int,
    taken_at_ms: int,
) -> Snapshot:
    """Draw the picture. ``registered`` are the topics, with their channels, that registries know."""
    topics: dict[str, list[tuple[NodeView, TopicStats]]] = defaultdict(list)
    channels: dict[tuple[str, str], list[tuple[NodeView, ChannelStats]]] = defaultdict(list)
    views = sorted(views, key=lambda view: (view.node.hostname, view.node.id))
    for view in views:
        if view.latest is not None:
            for name, topic in view.latest.topics.items():
                topics[name].append((view, topic))
            for key, channel in view.latest.channels.items():
                channels[key].append((view, channel))
    for name, channel_names in registered.items():
        if name not in topics:
            topics[name] = []
            for channel_name in channel_names:
                channels[name, channel_name] = []
    of_topic: dict[str, list[ChannelRow]] = defaultdict(list)
    for (topic_name, channel_name), held in sorted(channels.items()):
        of_topic[topic_name].append(channel_row(topic_name, channel_name, held, latencies))
    return {
        "version": version,
        "taken_at": taken_at_ms,
        "nodes": [node_row(view) for view in views],
        "topics": [topic_row(name, held, of_topic[name]) for name, held in sorted(topics.items())],
        "channels": [row for name in sorted(of_topic) for row in of_topic[name]],
    }


def node_row(view: NodeView) -> NodeRow:
    node, stats = view.node, view.latest.stats if view.latest else None
    topics = stats.topics if stats else []
    channels = [channel for topic in topics for channel in topic.channels]
    return {
        "id": node.id,
        "hostname": node.hostname,
        "broadcast_address": node.broadcast_address,
        "tcp_port": node.tcp_port,
        "http_port": node.http_port,
        "version": stats.version if stats else node.version,
        "state": "up" if view.error is None else "down",
        "error": view.error,
        "health": stats.health if stats else "",
        "start_time": stats.start_time if stats else 0,
        "topic_count": len(topics),
        "channel_count": len(channels),
        "client_count": sum(channel.client_count for channel in channels),
        "depth": sum(topic.depth for topic in topics) + sum(channel.depth for channel in channels),
        "publish_rate": total([at_rest(view), *(topic_rate(view, topic, "message_count") for topic in topics)]),
        "finish_rate": total(
            [
                at_rest(view),
                *(
                    channel_rate(view, topic.topic_name, held, "finished")
                    for topic in topics
                    for held in topic.channels
                ),
            ]
        ),
    }


def topic_row(name: str, held: Sequence[tuple[NodeView, TopicStats]], channels: Sequence[ChannelRow]) -> TopicRow:
    nodes: list[TopicNode] = [
        {
            "node": view.node.id,
            "paused": topic.paused,
            "depth": topic.depth,
            "message_count": topic.message_count,
            "publish_rate": total([topic_rate(view, topic, "message_count")]),
        }
        for view, topic in held
    ]
    return {
        "name": name,
        "paused": any(topic.paused for _, topic in held),
        "depth": sum(topic.depth for _, topic in held),
        "backend_depth": sum(topic.backend_depth for _, topic in held),
        "message_count": sum(topic.message_count for _, topic in held),
        "message_bytes": sum(topic.message_bytes for _, topic in held),
        "channel_count": len(channels),
        "client_count": sum(channel["client_count"] for channel in channels),
        "in_flight_count": sum(channel["in_flight_count"] for channel in channels),
        "publish_rate": total(node["publish_rate"] for node in nodes),
        "byte_rate": total(topic_rate(view, topic, "message_bytes") for view, topic in held),
        "oldest_age_ms": oldest_ms([topic.oldest_unfinished_age_ns for _, topic in held]),
        "nodes": nodes,
    }


def channel_row(
    topic: str, name: str, held: Sequence[tuple[NodeView, ChannelStats]], latencies: LatencyWindow
) -> ChannelRow:
    nodes: list[ChannelNode] = [
        {
            "node": view.node.id,
            "paused": channel.paused,
            "depth": channel.depth,
            "in_flight_count": channel.in_flight_count,
            "deferred_count": channel.deferred_count,
            "client_count": channel.client_count,
        }
        for view, channel in held
    ]
    p50_ms, p99_ms = latencies.quantiles_ms(topic, name, [0.5, 0.99])
    return {
        "topic": topic,
        "name": name,
        "paused": any(channel.paused for _, channel in held),
        "depth": sum(channel.depth for _, channel in held),
        "backend_depth": sum(channel.backend_depth for _, channel in held),
        "in_flight_count": sum(channel.in_flight_count for _, channel in held),
        "deferred_count": sum(channel.deferred_count for _, channel in held),
        "requeue_count": sum(channel.requeue_count for _, channel in held),
        "timeout_count": sum(channel.timeout_count for _, channel in held),
        "message_count": sum(channel.message_count for _, channel in held),
        "client_count": sum(channel.client_count for _, channel in held),
        "publish_rate": total(channel_rate(view, topic, channel, "message_count") for view, channel in held),
        "finish_rate": total(channel_rate(view, topic, channel, "finished") for view, channel in held),
        "requeue_rate": total(channel_rate(view, topic, channel, "requeue_count") for view, channel in held),
        "timeout_rate": total(channel_rate(view, topic, channel, "timeout_count") for view, channel in held),
        "oldest_age_ms": oldest_ms([channel.oldest_unfinished_age_ns for _, channel in held]),
        "p50_ms": p50_ms,
        "p99_ms": p99_ms,
        "nodes": nodes,
    }


def topic_rate(view: NodeView, topic: TopicStats, counter: str) -> float | None:
    """A topic that appeared since the earlier reading rose from zero."""
    if view.base is None:
        return None
    before = view.base.topics.get(topic.topic_name)
    return per_second(getattr(before, counter) if before else 0, getattr(topic, counter), view.elapsed)


def channel_rate(view: NodeView, topic: str, channel: ChannelStats, counter: str) -> float | None:
    """As :func:`topic_rate`; but a new channel is given its topic's backlog at once, which is no rate."""
    if view.base is None:
        return None
    before = view.base.channels.get((topic, channel.channel_name))
    return per_second(getattr(before, counter) if before else None, getattr(channel, counter), view.elapsed)


def at_rest(view: NodeView) -> float | None:
    """What a node's rates start from: zero, once it has been seen twice."""
    return None if view.base is None else 0.0


def oldest_ms(ages_ns: Sequence[int | None]) -> float | None:
    known = [age for age in ages_ns if age is not None]
    return round(max(known) / 1e6, 1) if known else None


def client_rows(views: Sequence[NodeView], topic: str, channel: str, *, now: float) -> list[ClientRow]:
    """The consumers of one channel, node by node. ``now`` is in unix seconds."""
    rows: list[ClientRow] = []
    for view in views:
        held = view.latest.channels.get((topic, channel)) if view.latest and view.error is None else None
        for client in held.clients if held else []:
            rows.append(
                {
                    "node": view.node.id,
                    "connected_s": max(0, int(now - client.connect_ts)) if client.connect_ts else 0,
                    **client.model_dump(exclude={"connect_ts"}),  # type: ignore[typeddict-item]
                }
            )
    return sorted(rows, key=lambda row: (row["node"], row["hostname"], row["client_id"], row["remote_address"]))
