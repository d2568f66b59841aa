"""Survey: one read of the whole cluster, from every registry and every node at once."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from typing_extensions import TypedDict

from nsqcluster import reads
from nsqcluster.client import Client
from nsqcluster.cluster import Cluster, Target
from nsqcluster.discovery import nodes_of
from nsqcluster.errors import Refused, detail_of
from nsqcluster.listing import topics_without_nodes
from nsqcluster.producers import NodeInfo, Producer, Producers, TopicNames
from nsqcluster.reads import Answers
from nsqcluster.rows import ChannelRow, NodeRow, TopicRow, channel_rows, node_row, topic_rows
from nsqcluster.stats import NodeStats, TopicStats

CONCURRENCY: Final = 64
"""Largest number of simultaneous requests. With more, the last would time out while the first are being decoded."""


class Failure(TypedDict):
    """A server that failed, and why. ``node`` is a node's id or a registry's address."""

    node: str
    target: Target
    detail: str


@dataclass(kw_only=True)
class SurveyedNode:
    """One node: its address, its description if anything describes it, and its statistics if it answered."""

    id: str
    address: str
    producer: Producer | None = None
    tombstones: set[str] = field(default_factory=set)
    stats: NodeStats | None = None
    error: str | None = None
    same_as: str | None = None
    """The id of another node if both are members of one pair, whose primary answered for both; else None."""

    @property
    def topics(self) -> list[TopicStats]:
        """The topics of the node; empty if it did not answer."""
        return self.stats.topics if self.stats else []


@dataclass(kw_only=True)
class Survey:
    """All responses of one survey."""

    nodes: dict[str, SurveyedNode] = field(default_factory=dict)
    registered: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Topics that registries know -> their channels, which are read only for topics that no node has."""
    failures: list[Failure] = field(default_factory=list)

    @property
    def stats(self) -> dict[str, NodeStats]:
        """Statistics by node id, of the nodes that answered; a pair counts once."""
        return {
            name: node.stats for name, node in self.nodes.items() if node.stats is not None and node.same_as is None
        }

    def node_rows(self) -> list[NodeRow]:
        """Return a row per node, sorted by id."""
        return [
            node_row(name, node.producer, node.stats, node.error, node.tombstones, node.same_as)
            for name, node in sorted(self.nodes.items())
        ]

    def topic_rows(self) -> list[TopicRow]:
        """Return a row per topic, sorted by name, including topics that only a registry knows."""
        return topic_rows(self.stats, self.registered)

    def channel_rows(self) -> list[ChannelRow]:
        """Return a row per channel, sorted by topic and name, including channels that only a registry knows."""
        return channel_rows(self.stats, self.registered)


async def survey(cluster: Cluster, topic: str = "", *, channels: bool = True) -> Survey:
    """Read one topic, or all. Servers that fail raise nothing; they are in ``failures``.

    ``channels``: also read, from the registries, the channels of topics that no node has.
    """
    found = Survey()
    async with cluster.client(concurrency=CONCURRENCY) as client:
        nodes, topics, infos = await asyncio.gather(
            reads.registered_nodes(client, cluster.lookupd),
            reads.registered_topics(client, () if topic else cluster.lookupd),
            reads.infos(client, cluster.nsqd),
        )
        _add_given(cluster, found, infos)
        _add_registered(cluster, found, nodes, topics)
        if channels:
            idle = _topics_without_nodes(nodes, topics, topic)
            await asyncio.gather(*(_read_channels(client, found, registry, name) for registry, name in idle))
        live = {name: node.address for name, node in found.nodes.items() if node.error is None}
        stats = await reads.stats(client, live, topic=topic, include_histograms=True)  # with the dead messages
        for name, error in stats.failures.items():
            found.nodes[name].error = detail_of(error)
        for name, answer in stats.found.items():
            if topic:  # an old nsqd may not support the parameter
                answer.topics_or_null = [each for each in answer.topics if each.topic_name == topic]
            found.nodes[name].stats = answer
        await _find_same(client, found)
    for node in found.nodes.values():
        if node.error is not None:
            found.failures.append(Failure(node=node.id, target="nsqd", detail=node.error))
    found.failures.sort(key=lambda failure: (failure["target"], failure["node"]))
    return found


def _add_given(cluster: Cluster, found: Survey, infos: Answers[NodeInfo]) -> None:
    """Add the given nodes, each with its given address as its id."""
    for address in cluster.nsqd:
        node = SurveyedNode(id=address, address=address)
        if address in infos.found:
            node.producer = infos.found[address].producer(address)
        else:
            node.error = detail_of(infos.failures[address])
        found.nodes[address] = node


def _add_registered(cluster: Cluster, found: Survey, nodes: Answers[Producers], topics: Answers[TopicNames]) -> None:
    """Add the nodes and topics that the registries list. A node that was also given by the same address is one node."""
    for registry, error in {**topics.failures, **nodes.failures}.items():
        found.failures.append(Failure(node=registry, target="nsqlookupd", detail=detail_of(error)))
    for name, node in nodes_of(nodes.found, cluster.address).items():
        surveyed = SurveyedNode(id=name, address=node.address, producer=node.producer)
        found.nodes.setdefault(name, surveyed).tombstones |= node.tombstones
    for answer in topics.found.values():
        for name in answer.names:
            found.registered[name].update()


def _topics_without_nodes(
    nodes: Answers[Producers], topics: Answers[TopicNames], topic: str
) -> Iterator[tuple[str, str]]:
    """Yield pairs of a registry and a topic that it lists and for which it lists no node.

    With ``topic``, yield this topic for every registry that answered.
    """
    for registry, answer in nodes.found.items():
        if topic:
            yield registry, topic
        elif registry in topics.found:
            yield from ((registry, name) for name in topics_without_nodes(answer, topics.found[registry]))


async def _find_same(client: Client, found: Survey) -> None:
    """Set ``same_as`` of nodes that are members of one pair, except for one: a follower passes requests to its primary.

    The exception is the primary: the member whose id is the address by which it describes itself. If no member is, it
    is the first one.
    """
    of_pair: defaultdict[str, list[SurveyedNode]] = defaultdict(list)
    for node in found.nodes.values():
        if node.stats is not None and node.stats.mirror is not None:
            of_pair[node.stats.mirror.pair].append(node)
    for members in of_pair.values():
        if len(members) == 1:
            continue
        infos = await reads.infos(client, [member.address for member in members])
        ids = {info.producer(address).http_address for address, info in infos.found.items()}
        first = next((member for member in members if member.id in ids), members[0])
        for member in members:
            if member is not first:
                member.same_as = first.id


async def _read_channels(client: Client, found: Survey, registry: str, topic: str) -> None:
    answers = await reads.lookups(client, [registry], topic)
    for error in answers.failures.values():
        if not (isinstance(error, Refused) and error.status == 404):
            found.failures.append(Failure(node=registry, target="nsqlookupd", detail=detail_of(error)))
    for answer in answers.found.values():
        found.registered[topic].update(answer.channels)
