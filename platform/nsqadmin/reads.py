"""nsqadmin's GET endpoints: each asks the cluster, and says in ``message`` who did not answer."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import httpx

from nsqadmin.answers import Channel, Topic
from nsqadmin.asking import UpstreamFailed, Warnings
from nsqadmin.discovery import Discovery, Node, Sources, UnknownTopic
from nsqadmin.shapes import channel_aggregate, node_shape, topic_aggregate, topic_shape, version_key
from nsqwire.http import HTTPError

Body = dict[str, Any]


class Reads:
    """The questions of one request."""

    def __init__(self, client: httpx.AsyncClient, sources: Sources) -> None:
        self.sources = sources
        self.warnings = Warnings()
        self.discovery = Discovery(client, sources, self.warnings)

    def told(self, body: Body) -> Body:
        """With the warnings, last as in nsqadmin's answers."""
        return {**body, "message": str(self.warnings)}

    async def topics(self) -> Body:
        return self.told({"topics": await self.discovery.topics() or None})

    async def inactive_topics(self) -> Body:
        """The topics that registries know and no node produces, with their channels."""
        return self.told({"topics": await self.discovery.inactive(await self.discovery.topics())})

    async def topic(self, name: str) -> Body:
        """Raises HTTPError 404 for a topic that nobody knows. One that only registries know is all zeros."""
        return self.told(topic_aggregate(name, await self._held(name, "&include_clients=false")))

    async def channel(self, topic: str, name: str) -> Body:
        """Raises HTTPError 404 for a topic or channel that nobody has."""
        held: list[tuple[Node, Channel]] = []
        for node, each in await self._held(topic, f"&channel={quoted(name)}"):
            held += [(node, channel) for channel in each.channels if channel.channel_name == name]
        if not held:
            raise HTTPError(404, "CHANNEL_NOT_FOUND")
        return self.told(channel_aggregate(topic, name, held, with_clients=True))

    async def _held(self, topic: str, query: str) -> list[tuple[Node, Topic]]:
        try:
            producers = await self.discovery.producers(topic)
        except UnknownTopic:
            raise HTTPError(404, "TOPIC_NOT_FOUND") from None
        stats = await self.discovery.stats(producers, f"&topic={quoted(topic)}{query}")
        return [(node, each) for node, answer in stats for each in answer.topics if each.topic_name == topic]

    async def nodes(self) -> Body:
        nodes = await self.discovery.nodes()
        versions = [version_key(node.producer.version) for node in nodes]
        newest = max(versions, default=())
        outdated = [bool(self.sources.lookupd) and version < newest for version in versions]
        shapes = [node_shape(node, out_of_date=old) for node, old in zip(nodes, outdated, strict=True)]
        return self.told({"nodes": shapes or None})

    async def node(self, name: str) -> Body:
        """Raises HTTPError 404 for a node that nobody lists."""
        node = next((each for each in await self.discovery.nodes() if each.name == name), None)
        if node is None:
            raise HTTPError(404, "NODE_NOT_FOUND")
        [(_, stats)] = await self.discovery.stats([node], "")
        topics = [topic_shape(node, topic, with_clients=True) for topic in stats.topics]
        return self.told(
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
        if name in self.sources.reached_at:
            return self.sources.reached_at[name]
        if name in self.sources.nsqd:
            return name
        node = next((each for each in await self.discovery.nodes() if each.name == name), None)
        if node is not None:
            return node.address
        if silent := str(self.warnings).removeprefix("WARNING: "):
            raise UpstreamFailed(f"no registry that answered lists {name}; {silent}")
        raise HTTPError(404, "NODE_NOT_FOUND")

    async def counter(self) -> Body:
        """How many messages each channel of each node has had."""
        nodes = await self.discovery.nodes()
        stats = await self.discovery.stats(nodes, "&include_clients=false")
        counts = {}
        for node, answer in stats:
            for topic in answer.topics:
                for channel in topic.channels:
                    key = f"{topic.topic_name}:{channel.channel_name}:{node.name}"
                    counts[key] = count_shape(node.name, topic.topic_name, channel.channel_name, channel.message_count)
        return self.told({"stats": sorted_by_key(counts)})


def sorted_by_key(stats: Body) -> Body:
    """Sort by key, as Go writes a map."""
    return dict(sorted(stats.items()))


def count_shape(node: str, topic: str, channel: str, message_count: int) -> Body:
    return {"node": node, "topic_name": topic, "channel_name": channel, "message_count": message_count}


def quoted(name: str) -> str:
    return quote(name, safe="")
