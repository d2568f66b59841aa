"""nsqadmin's GET endpoints: views of the cluster. Their ``message`` names the servers that failed."""

from __future__ import annotations

from typing import Any

from nsqcluster import ChannelStats, Client, Cluster, Discovery, Node, TopicStats
from nsqcluster.discovery import UnknownTopic
from nsqdaemon.http import HTTPError
from nsqplatform.nsqadmin.failures import UpstreamFailed, Warnings
from nsqplatform.nsqadmin.shapes import channel_aggregate, node_shape, topic_aggregate, topic_shape, version_key

Body = dict[str, Any]


class Reads:
    """The reads of one request."""

    def __init__(self, client: Client, cluster: Cluster) -> None:
        self.cluster = cluster
        self.warnings = Warnings()
        self.discovery = Discovery(client, cluster, self.warnings.add)

    def with_message(self, body: Body) -> Body:
        """Append the warnings, last as in nsqadmin's responses."""
        return {**body, "message": str(self.warnings)}

    async def topics(self) -> Body:
        return self.with_message({"topics": await self.discovery.topics() or None})

    async def inactive_topics(self) -> Body:
        """The topics that are in the registries and on no node, with their channels."""
        inactive = await self.discovery.inactive(await self.discovery.topics())
        return self.with_message({"topics": {topic: channels or None for topic, channels in inactive.items()}})

    async def topic(self, name: str) -> Body:
        """A topic over all its nodes; all zeros if only registries have it. Raises HTTPError 404 for an unknown
        topic."""
        return self.with_message(topic_aggregate(name, await self._held(name)))

    async def channel(self, topic: str, name: str) -> Body:
        """A channel over all its nodes, with its clients. Raises HTTPError 404 for a topic or channel that does not
        exist."""
        held: list[tuple[Node, ChannelStats]] = []
        for node, each in await self._held(topic, name, include_clients=True):
            held += [(node, channel) for channel in each.channels if channel.channel_name == name]
        if not held:
            raise HTTPError(404, "CHANNEL_NOT_FOUND")
        return self.with_message(channel_aggregate(topic, name, held, with_clients=True))

    async def _held(
        self, topic: str, channel: str = "", *, include_clients: bool = False
    ) -> list[tuple[Node, TopicStats]]:
        try:
            producers = await self.discovery.producers(topic)
        except UnknownTopic:
            raise HTTPError(404, "TOPIC_NOT_FOUND") from None
        stats = await self.discovery.stats(producers, topic=topic, channel=channel, include_clients=include_clients)
        return [(node, each) for node, answer in stats for each in answer.topics if each.topic_name == topic]

    async def nodes(self) -> Body:
        nodes = await self.discovery.nodes()
        versions = [version_key(node.producer.version) for node in nodes]
        newest = max(versions, default=())
        outdated = [bool(self.cluster.lookupd) and version < newest for version in versions]
        shapes = [node_shape(node, out_of_date=old) for node, old in zip(nodes, outdated, strict=True)]
        return self.with_message({"nodes": shapes or None})

    async def node(self, name: str) -> Body:
        """A node's topics, channels and clients. Raises HTTPError 404 for a node that is not listed."""
        node = next((each for each in await self.discovery.nodes() if each.id == name), None)
        if node is None:
            raise HTTPError(404, "NODE_NOT_FOUND")
        [(_, stats)] = await self.discovery.stats([node], include_clients=True)
        topics = [topic_shape(node, topic, with_clients=True) for topic in stats.topics]
        return self.with_message(
            {
                "node": name,
                "topics": topics or None,
                "total_messages": sum(topic.message_count for topic in stats.topics),
                "total_clients": sum(len(channel.clients) for topic in stats.topics for channel in topic.channels),
            }
        )

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

    async def counter(self) -> Body:
        """The message count of each channel on each node."""
        nodes = await self.discovery.nodes()
        stats = await self.discovery.stats(nodes)
        counts = {}
        for node, answer in stats:
            for topic in answer.topics:
                for channel in topic.channels:
                    key = f"{topic.topic_name}:{channel.channel_name}:{node.id}"
                    counts[key] = count_shape(node.id, topic.topic_name, channel.channel_name, channel.message_count)
        return self.with_message({"stats": sorted_by_key(counts)})


def sorted_by_key(stats: Body) -> Body:
    """Sort by key, as Go writes a map."""
    return dict(sorted(stats.items()))


def count_shape(node: str, topic: str, channel: str, message_count: int) -> Body:
    return {"node": node, "topic_name": topic, "channel_name": channel, "message_count": message_count}
