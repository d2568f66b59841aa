"""nsqadmin's GET endpoints: views of the cluster.

Their ``message`` names the servers that failed. It is the last key, as in nsqadmin's responses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict, TypeVar

from nsqcluster import ChannelStats, Client, Cluster, Discovery, Node, TopicStats
from nsqcluster.discovery import UnknownTopic
from nsqdaemon.http import HTTPError
from nsqplatform.nsqadmin.failures import UpstreamFailed, Warnings
from nsqplatform.nsqadmin.shapes import (
    ChannelShape,
    NodeShape,
    TopicShape,
    channel_aggregate,
    node_shape,
    topic_aggregate,
    topic_shape,
    version_key,
)

T = TypeVar("T")


class Topics(TypedDict):
    topics: list[str] | None
    message: str


class InactiveTopics(TypedDict):
    topics: dict[str, list[str] | None]
    """The channels of each topic."""
    message: str


class Topic(TopicShape):
    message: str


class Channel(ChannelShape):
    message: str


class Nodes(TypedDict):
    nodes: list[NodeShape] | None
    message: str


class NodeTopics(TypedDict):
    node: str
    topics: list[TopicShape] | None
    total_messages: int
    total_clients: int
    message: str


class Count(TypedDict):
    node: str
    topic_name: str
    channel_name: str
    message_count: int


class Counter(TypedDict):
    stats: dict[str, Count]
    """By ``topic:channel:node``."""
    message: str


class Reads:
    """The reads of one request."""

    def __init__(self, client: Client, cluster: Cluster) -> None:
        self.cluster = cluster
        self.warnings = Warnings()
        self.discovery = Discovery(client, cluster, self.warnings.add)

    async def topics(self) -> Topics:
        topics = await self.discovery.topics()
        return {"topics": topics or None, "message": str(self.warnings)}

    async def inactive_topics(self) -> InactiveTopics:
        """The topics that are in the registries and on no node, with their channels."""
        inactive = await self.discovery.inactive(await self.discovery.topics())
        topics = {topic: channels or None for topic, channels in inactive.items()}
        return {"topics": topics, "message": str(self.warnings)}

    async def topic(self, name: str) -> Topic:
        """A topic over all its nodes; all zeros if only registries have it. Raises HTTPError 404 for an unknown
        topic."""
        shares = await self._shares(name)
        return {**topic_aggregate(name, shares), "message": str(self.warnings)}

    async def channel(self, topic: str, name: str) -> Channel:
        """A channel over all its nodes, with its clients. Raises HTTPError 404 for a topic or channel that does not
        exist."""
        shares: list[tuple[Node, ChannelStats]] = []
        for node, each in await self._shares(topic, name, include_clients=True):
            shares += [(node, channel) for channel in each.channels if channel.channel_name == name]
        if not shares:
            raise HTTPError(404, "CHANNEL_NOT_FOUND")
        return {**channel_aggregate(topic, name, shares, with_clients=True), "message": str(self.warnings)}

    async def _shares(
        self, topic: str, channel: str = "", *, include_clients: bool = False
    ) -> list[tuple[Node, TopicStats]]:
        """The topic on each node that has it."""
        try:
            producers = await self.discovery.producers(topic)
        except UnknownTopic:
            raise HTTPError(404, "TOPIC_NOT_FOUND") from None
        stats = await self.discovery.stats(producers, topic=topic, channel=channel, include_clients=include_clients)
        return [(node, each) for node, answer in stats for each in answer.topics if each.topic_name == topic]

    async def nodes(self) -> Nodes:
        nodes = await self.discovery.nodes()
        versions = [version_key(node.producer.version) for node in nodes]
        newest = max(versions, default=())
        outdated = [bool(self.cluster.lookupd) and version < newest for version in versions]
        shapes = [node_shape(node, out_of_date=old) for node, old in zip(nodes, outdated, strict=True)]
        return {"nodes": shapes or None, "message": str(self.warnings)}

    async def node(self, name: str) -> NodeTopics:
        """A node's topics, channels and clients. Raises HTTPError 404 for a node that is not listed."""
        node = next((each for each in await self.discovery.nodes() if each.id == name), None)
        if node is None:
            raise HTTPError(404, "NODE_NOT_FOUND")
        [(_, stats)] = await self.discovery.stats([node], include_clients=True)
        topics = [topic_shape(node, topic, with_clients=True) for topic in stats.topics]
        return {
            "node": name,
            "topics": topics or None,
            "total_messages": sum(topic.message_count for topic in stats.topics),
            "total_clients": sum(len(channel.clients) for topic in stats.topics for channel in topic.channels),
            "message": str(self.warnings),
        }

    async def address_of(self, name: str) -> str:
        """The address of a node of the cluster, reachable or not.

        Raises HTTPError 404 if no registry lists the node, and UpstreamFailed if a registry that did not answer might.
        """
        if name in self.cluster.addresses:
            return self.cluster.addresses[name]
        if name in self.cluster.nsqd:
            return name
        node = next((each for each in await self.discovery.nodes() if each.id == name), None)
        if node is not None:
            return node.address
        if silent := str(self.warnings).removeprefix("WARNING: "):
            raise UpstreamFailed(f"no registry that answered lists {name}; {silent}")
        raise HTTPError(404, "NODE_NOT_FOUND")

    async def counter(self) -> Counter:
        """The message count of each channel on each node."""
        nodes = await self.discovery.nodes()
        stats = await self.discovery.stats(nodes)
        counts = {}
        for node, answer in stats:
            for topic in answer.topics:
                for channel in topic.channels:
                    key = f"{topic.topic_name}:{channel.channel_name}:{node.id}"
                    counts[key] = count_shape(node.id, topic.topic_name, channel.channel_name, channel.message_count)
        return {"stats": sorted_by_key(counts), "message": str(self.warnings)}


def sorted_by_key(stats: Mapping[str, T]) -> dict[str, T]:
    """Sort by key, as Go writes a map."""
    return dict(sorted(stats.items()))


def count_shape(node: str, topic: str, channel: str, message_count: int) -> Count:
    return {"node": node, "topic_name": topic, "channel_name": channel, "message_count": message_count}
