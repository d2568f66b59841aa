"""Rows: nodes, topics and channels with their figures summed over all nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

# The platform publishes these types with pydantic, which requires this TypedDict below Python 3.12.
from typing_extensions import TypedDict

from nsqcluster.producers import Producer
from nsqcluster.stats import ChannelStats, Drain, MirrorStats, NodeStats, TopicStats
from nsqcluster.sums import client_count, over_nodes, over_topics


class DrainRow(TypedDict):
    """The drain of a node, as nsqcluster.stats.Drain."""

    since: int
    ends_within: float | None
    takes_publishes: bool
    messages: int


class MirrorRow(TypedDict):
    """A mirrored node, as nsqcluster.stats.MirrorStats."""

    pair: str
    member: str
    epoch: int
    in_sync: list[str]
    under_replicated: bool
    lag_bytes: int
    lag_seconds: float
    since: int


class NodeRow(TypedDict):
    """One node; ``start_time`` is in Unix seconds, 0 if unknown."""

    id: str
    hostname: str
    broadcast_address: str
    tcp_port: int
    http_port: int
    version: str
    """The NSQ version whose protocol it speaks."""
    release: str
    """brokerd's release; empty if the node runs Go's nsqd, or has not answered."""
    state: Literal["up", "down"]
    error: str | None
    health: str
    start_time: int
    topic_count: int
    channel_count: int
    client_count: int
    depth: int
    """Sum of its topics and their channels."""
    tombstones: list[str]
    """Topics that some registry has tombstoned on the node."""
    drain: DrainRow | None
    """None if the node does not drain."""
    mirror: MirrorRow | None
    """None if the node is not mirrored."""
    same_as: str | None
    """The id of another row if this one has the address of its follower, which leads to it; else None."""


class TopicNode(TypedDict):
    """A topic's share on one node."""

    node: str
    paused: bool
    depth: int
    message_count: int


class TopicRow(TypedDict):
    """One topic. ``paused``: whether it is paused on any node."""

    name: str
    paused: bool
    depth: int
    """Messages not yet passed to channels."""
    channel_depth: int
    """Messages in its channels: waiting, in flight and deferred."""
    dead_count: int
    """Dead messages in its channels."""
    message_count: int
    channel_count: int
    nodes: list[TopicNode]


class ChannelNode(TypedDict):
    """A channel's share on one node."""

    node: str
    paused: bool
    depth: int
    in_flight_count: int
    deferred_count: int
    dead_count: int
    client_count: int


class ChannelRow(TypedDict):
    """One channel. ``paused``: whether it is paused on any node."""

    topic: str
    name: str
    paused: bool
    depth: int
    in_flight_count: int
    deferred_count: int
    dead_count: int
    requeue_count: int
    timeout_count: int
    message_count: int
    client_count: int
    nodes: list[ChannelNode]


UNFINISHED = ("depth", "in_flight_count", "deferred_count")


def unfinished_count(row: ChannelRow) -> int:
    """Number of messages that emptying the channel destroys: waiting, in flight and deferred."""
    return row["depth"] + row["in_flight_count"] + row["deferred_count"]


def stored_count(row: ChannelRow) -> int:
    """Number of messages that deleting the channel destroys: unfinished and dead."""
    return unfinished_count(row) + row["dead_count"]


def node_row(
    name: str,
    producer: Producer | None,
    stats: NodeStats | None,
    error: str | None,
    tombstones: Iterable[str],
    same_as: str | None = None,
) -> NodeRow:
    """Return a node's row. ``producer`` is None if its description is unknown, ``stats`` if it did not answer."""
    return NodeRow(
        id=name,
        hostname=producer.hostname if producer else "",
        broadcast_address=producer.broadcast_address if producer else "",
        tcp_port=producer.tcp_port if producer else 0,
        http_port=producer.http_port if producer else 0,
        version=(stats.version if stats else "") or (producer.version if producer else ""),
        release=stats.release if stats else "",
        state="up" if error is None else "down",
        error=error,
        health=stats.health if stats else "",
        start_time=stats.start_time if stats else 0,
        topic_count=over_topics("topic_count", stats) if stats else 0,
        channel_count=over_topics("channel_count", stats) if stats else 0,
        client_count=over_topics("client_count", stats) if stats else 0,
        depth=over_topics("depth", stats) if stats else 0,
        tombstones=sorted(tombstones),
        drain=_drain_row(stats.drain) if stats and stats.drain else None,
        mirror=_mirror_row(stats.mirror) if stats and stats.mirror else None,
        same_as=same_as,
    )


def _mirror_row(mirror: MirrorStats) -> MirrorRow:
    return MirrorRow(
        pair=mirror.pair,
        member=mirror.member,
        epoch=mirror.epoch,
        in_sync=mirror.in_sync,
        under_replicated=mirror.under_replicated,
        lag_bytes=mirror.lag_bytes,
        lag_seconds=mirror.lag_seconds,
        since=mirror.since,
    )


def _drain_row(drain: Drain) -> DrainRow:
    return DrainRow(
        since=drain.since,
        ends_within=drain.ends_within,
        takes_publishes=drain.takes_publishes,
        messages=drain.messages,
    )


def topic_rows(stats: Mapping[str, NodeStats], registered: Mapping[str, Iterable[str]]) -> list[TopicRow]:
    """Return a row per topic, sorted by name.

    ``stats`` maps node ids to statistics, ``registered`` the topics that registries know to their channels there.
    """
    channels = {name: set(known) for name, known in registered.items()}
    shares: dict[str, list[tuple[str, TopicStats]]] = {name: [] for name in channels}
    for node, answer in sorted(stats.items()):
        for topic in answer.topics:
            shares.setdefault(topic.topic_name, []).append((node, topic))
            channels.setdefault(topic.topic_name, set()).update(each.channel_name for each in topic.channels)
    return [_topic_row(name, shares[name], len(channels[name])) for name in sorted(channels)]


def _topic_row(name: str, shares: list[tuple[str, TopicStats]], channel_count: int) -> TopicRow:
    topics = [topic for _, topic in shares]
    channels = [channel for topic in topics for channel in topic.channels]
    return TopicRow(
        name=name,
        paused=any(topic.paused for topic in topics),
        depth=over_nodes(TopicStats, "depth", topics),
        channel_depth=sum(over_nodes(ChannelStats, key, channels) for key in UNFINISHED),
        dead_count=over_nodes(ChannelStats, "dead_count", channels),
        message_count=over_nodes(TopicStats, "message_count", topics),
        channel_count=channel_count,
        nodes=[
            TopicNode(node=node, paused=topic.paused, depth=topic.depth, message_count=topic.message_count)
            for node, topic in shares
        ],
    )


def channel_rows(stats: Mapping[str, NodeStats], registered: Mapping[str, Iterable[str]]) -> list[ChannelRow]:
    """Return a row per channel, sorted by topic and name. The parameters are those of :func:`topic_rows`."""
    shares: dict[tuple[str, str], list[tuple[str, ChannelStats]]] = {
        (topic, name): [] for topic, known in registered.items() for name in known
    }
    for node, answer in sorted(stats.items()):
        for topic in answer.topics:
            for channel in topic.channels:
                shares.setdefault((topic.topic_name, channel.channel_name), []).append((node, channel))
    return [_channel_row(*key, shares[key]) for key in sorted(shares)]


def _channel_row(topic: str, name: str, shares: list[tuple[str, ChannelStats]]) -> ChannelRow:
    channels = [channel for _, channel in shares]
    return ChannelRow(
        topic=topic,
        name=name,
        paused=any(channel.paused for channel in channels),
        depth=over_nodes(ChannelStats, "depth", channels),
        in_flight_count=over_nodes(ChannelStats, "in_flight_count", channels),
        deferred_count=over_nodes(ChannelStats, "deferred_count", channels),
        dead_count=over_nodes(ChannelStats, "dead_count", channels),
        requeue_count=over_nodes(ChannelStats, "requeue_count", channels),
        timeout_count=over_nodes(ChannelStats, "timeout_count", channels),
        message_count=over_nodes(ChannelStats, "message_count", channels),
        client_count=over_nodes(ChannelStats, "client_count", channels),
        nodes=[
            ChannelNode(
                node=node,
                paused=channel.paused,
                depth=channel.depth,
                in_flight_count=channel.in_flight_count,
                deferred_count=channel.deferred_count,
                dead_count=channel.dead_count,
                client_count=client_count(channel),
            )
            for node, channel in shares
        ],
    )
