"""The cluster's picture from the latest reading of each node. Pure: what it needs is passed in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cluster.latency import LatencyWindow
from cluster.node import Node
from cluster.ranges import Ranges
from cluster.rows import ChannelNode, ChannelRow, ClientRow, NodeRow, Snapshot, TopicNode, TopicRow
from cluster.stats import ChannelStats, NodeStats
from cluster.sums import Share, Sums, Table


class Reading:
    """A node's answer, when it was read, and its figures by name."""

    def __init__(self, stats: NodeStats, *, read_at: float, taken_at: float) -> None:
        """``read_at`` is in seconds on the monotonic clock, ``taken_at`` in unix seconds."""
        self.stats = stats
        self.read_at = read_at
        self.taken_at = taken_at

    @cached_property
    def channels(self) -> dict[tuple[str, str], ChannelStats]:
        return {
            (topic.topic_name, channel.channel_name): channel
            for topic in self.stats.topics
            for channel in topic.channels
        }

    @cached_property
    def topic_table(self) -> Table[str]:
        topics = self.stats.topics
        return Table([topic.topic_name for topic in topics], topics, TOPIC_FIGURES)

    @cached_property
    def channel_table(self) -> Table[tuple[str, str]]:
        channels = [channel for topic in self.stats.topics for channel in topic.channels]
        keys = [(topic.topic_name, channel.channel_name) for topic in self.stats.topics for channel in topic.channels]
        return Table(keys, channels, CHANNEL_FIGURES)


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
    views = sorted(views, key=lambda view: (view.node.hostname, view.node.id))
    topic_shares = {view.node.id: topic_share(view, view.latest) for view in views if view.latest}
    channel_shares = {view.node.id: channel_share(view, view.latest) for view in views if view.latest}
    produced = {name for share in topic_shares.values() for name in share.table.keys}
    idle = {name: channels for name, channels in registered.items() if name not in produced}
    topics = Sums([*topic_shares.values()], idle, len(TOPIC_FIGURES), len(TOPIC_COUNTERS))
    channels = Sums(
        [*channel_shares.values()],
        [(name, channel) for name, held in idle.items() for channel in held],
        len(CHANNEL_FIGURES),
        len(CHANNEL_COUNTERS),
    )
    latencies.settle()
    ranges = Ranges(view.latest.stats for view in views if view.latest and view.error is None)
    return {
        "version": version,
        "taken_at": taken_at_ms,
        "nodes": [node_row(view, topic_shares.get(view.node.id), channel_shares.get(view.node.id)) for view in views],
        "topics": topic_rows(topics, channels),
        "channels": channel_rows(channels, latencies.percentiles_of(channels.keys), ranges),
    }


TOPIC_FIGURES = ("depth", "backend_depth", "message_count", "message_bytes")
TOPIC_COUNTERS = (2, 3)
"""Of TOPIC_FIGURES, those of which rates are taken."""
CHANNEL_FIGURES = (
    "depth",
    "backend_depth",
    "in_flight_count",
    "deferred_count",
    "requeue_count",
    "timeout_count",
    "message_count",
    "client_count",
    "finished",
)
CHANNEL_COUNTERS = (6, 8, 4, 5)


def topic_share(view: NodeView, latest: Reading) -> Share[str]:
    before = view.base.topic_table if view.base else None
    # A topic that appeared since the earlier reading rose from zero.
    return Share(view.node.id, latest.topic_table, before, view.elapsed, TOPIC_COUNTERS, new_from_zero=True)


def channel_share(view: NodeView, latest: Reading) -> Share[tuple[str, str]]:
    before = view.base.channel_table if view.base else None
    # A new channel is given its topic's backlog at once, which is no rate.
    return Share(view.node.id, latest.channel_table, before, view.elapsed, CHANNEL_COUNTERS, new_from_zero=False)


def topic_rows(topics: Sums[str], channels: Sums[tuple[str, str]]) -> list[TopicRow]:
    place = {name: number for number, name in enumerate(topics.keys)}
    of_topic = np.array([place[topic] for topic, _ in channels.keys], np.int64)
    held = np.zeros((len(topics.keys), 3), np.int64)
    in_flight, clients = CHANNEL_FIGURES.index("in_flight_count"), CHANNEL_FIGURES.index("client_count")
    np.add.at(held[:, 0], of_topic, 1)
    np.add.at(held[:, 1], of_topic, channels.figures[:, clients])
    np.add.at(held[:, 2], of_topic, channels.figures[:, in_flight])
    shares: list[TopicNode] = [
        {"node": node, "paused": paused, "depth": depth, "message_count": messages, "publish_rate": published}
        for node, paused, (depth, _, messages, _), (published, _) in topics.shares
    ]
    return [
        {
            "name": name,
            "paused": paused,
            "depth": depth,
            "backend_depth": backend_depth,
            "message_count": message_count,
            "message_bytes": message_bytes,
            "channel_count": channel_count,
            "client_count": client_count,
            "in_flight_count": in_flight_count,
            "publish_rate": publish_rate,
            "byte_rate": byte_rate,
            "oldest_age_ms": oldest_age_ms,
            "nodes": shares[begin:end],
        }
        for (
            name,
            paused,
            (depth, backend_depth, message_count, message_bytes),
            (channel_count, client_count, in_flight_count),
            (publish_rate, byte_rate),
            oldest_age_ms,
            (begin, end),
        ) in zip(
            topics.keys,
            topics.paused.tolist(),
            topics.figures.tolist(),
            held.tolist(),
            topics.rounded,
            topics.ages_ms,
            topics.spans,
            strict=True,
        )
    ]


def channel_rows(
    channels: Sums[tuple[str, str]], percentiles_ms: Sequence[Sequence[float | None]], ranges: Ranges
) -> list[ChannelRow]:
    shares: list[ChannelNode] = [
        {
            "node": node,
            "paused": paused,
            "depth": depth,
            "in_flight_count": in_flight_count,
            "deferred_count": deferred_count,
            "message_count": message_count,
            "client_count": client_count,
        }
        for node, paused, (depth, _, in_flight_count, deferred_count, _, _, message_count, client_count, _), _ in (
            channels.shares
        )
    ]
    return [
        {
            "topic": topic,
            "name": name,
            "paused": paused,
            "depth": depth,
            "backend_depth": backend_depth,
            "in_flight_count": in_flight_count,
            "deferred_count": deferred_count,
            "requeue_count": requeue_count,
            "timeout_count": timeout_count,
            "message_count": message_count,
            "client_count": client_count,
            "publish_rate": publish_rate,
            "finish_rate": finish_rate,
            "requeue_rate": requeue_rate,
            "timeout_rate": timeout_rate,
            "oldest_age_ms": oldest_age_ms,
            "p50_ms": p50_ms,
            "p99_ms": p99_ms,
            "p50_range_ms": p50_range_ms,
            "p99_range_ms": p99_range_ms,
            "nodes": shares[begin:end],
        }
        for (
            (topic, name),
            paused,
            (
                depth,
                backend_depth,
                in_flight_count,
                deferred_count,
                requeue_count,
                timeout_count,
                message_count,
                client_count,
                _,
            ),
            (publish_rate, finish_rate, requeue_rate, timeout_rate),
            oldest_age_ms,
            (p50_ms, p99_ms),
            (p50_range_ms, p99_range_ms),
            (begin, end),
        ) in zip(
            channels.keys,
            channels.paused.tolist(),
            channels.figures.tolist(),
            channels.rounded,
            channels.ages_ms,
            percentiles_ms,
            map(ranges.of, channels.keys, percentiles_ms),
            channels.spans,
            strict=True,
        )
    ]


def node_row(view: NodeView, topics: Share[str] | None, channels: Share[tuple[str, str]] | None) -> NodeRow:
    """What is known of a node, and of what it holds together."""
    node, stats = view.node, view.latest.stats if view.latest else None
    row: NodeRow = {
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
        "topic_count": 0,
        "channel_count": 0,
        "client_count": 0,
        "depth": 0,
        "publish_rate": None,
        "finish_rate": None,
    }
    if topics is not None and channels is not None:
        row["topic_count"], row["channel_count"] = len(topics.table.keys), len(channels.table.keys)
        row["client_count"] = int(channels.table.figures[:, CHANNEL_FIGURES.index("client_count")].sum())
        row["depth"] = int(topics.table.figures[:, 0].sum() + channels.table.figures[:, 0].sum())
        if view.base is not None:  # from zero, once it has been seen twice
            row["publish_rate"] = round(float(np.nansum(topics.rates[:, 0])), 2)
            row["finish_rate"] = round(float(np.nansum(channels.rates[:, 1])), 2)
    return row


def client_rows(views: Sequence[NodeView], topic: str, channel: str, *, now: float) -> list[ClientRow]:
    """The consumers of one channel, node by node. ``now`` is in unix seconds."""
    rows: list[ClientRow] = []
    for view in views:
        held = view.latest.channels.get((topic, channel)) if view.latest and view.error is None else None
        for client in held.clients if held else []:
            rows.append(
                {
                    "node": view.node.id,
                    "client_id": client.client_id,
                    "hostname": client.hostname,
                    "remote_address": client.remote_address,
                    "user_agent": client.user_agent,
                    "state": client.state,
                    "ready_count": client.ready_count,
                    "in_flight_count": client.in_flight_count,
                    "message_count": client.message_count,
                    "finish_count": client.finish_count,
                    "requeue_count": client.requeue_count,
                    "connected_s": max(0, int(now - client.connect_ts)) if client.connect_ts else 0,
                    "tls": client.tls,
                    "deflate": client.deflate,
                    "snappy": client.snappy,
                    "sample_rate": client.sample_rate,
                }
            )
    return sorted(rows, key=lambda row: (row["node"], row["hostname"], row["client_id"], row["remote_address"]))
