"""Discovery: the nodes of a cluster, and those that have a topic.

Nodes are read from the registries (``/nodes``, ``/lookup``) or, without registries, from the given nodes (``/info``,
``/stats``). A node that several registries list is one node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TypeVar

from nsqcluster import reads
from nsqcluster.client import Client
from nsqcluster.cluster import Cluster, Target
from nsqcluster.errors import Refused, RequestFailed
from nsqcluster.pairs import distinct
from nsqcluster.producers import ChannelNames, NodeInfo, Producer, Producers, TopicNames
from nsqcluster.reads import Answers
from nsqcluster.stats import NodeStats

T = TypeVar("T")


class UnknownTopic(Exception):
    """Every registry, or every given node, answered and none has the topic."""


class NobodyAnswered(Exception):
    """All servers of one kind failed, or some failed and none of the others has the topic.

    ``failures`` contains the failures by address.
    """

    def __init__(self, target: Target, failures: Mapping[str, RequestFailed]) -> None:
        super().__init__(f"no {target} answered: " + "; ".join(map(str, failures.values())))
        self.target = target
        self.failures = failures


@dataclass(kw_only=True)
class Node:
    """A node: its description, the address of its HTTP port, and what each registry lists of it."""

    producer: Producer
    address: str
    listings: list[tuple[str, Producer]] = field(default_factory=list)
    """Pairs of a registry's address and its entry for the node."""

    @property
    def id(self) -> str:
        """``broadcast_address:http_port``."""
        return self.producer.http_address

    @property
    def tombstones(self) -> set[str]:
        """Topics that some registry has tombstoned on the node."""
        return {topic for _, each in self.listings for topic, is_set in each.tombstones.items() if is_set}


def nodes_of(
    answers: Mapping[str, Producers],
    address: Callable[[str], str] = str,
    *,
    key: Callable[[Producer], str] = attrgetter("http_address"),
) -> dict[str, Node]:
    """Merge registries' responses to ``/nodes`` or ``/lookup``: each node once, in the order of the responses.

    The first response that lists a node describes it. ``address`` returns the address of a node's HTTP port by its id.
    ``key`` distinguishes the nodes, by default by their ids.
    """
    nodes: dict[str, Node] = {}
    for registry, answer in answers.items():
        for producer in answer.producers:
            name = key(producer)
            if name not in nodes:
                nodes[name] = Node(producer=producer, address=address(producer.http_address))
            nodes[name].listings.append((registry, producer))
    return nodes


def names_of(answers: Mapping[str, TopicNames] | Mapping[str, ChannelNames]) -> list[str]:
    """Merge registries' responses to ``/topics`` or ``/channels``: each name once, sorted."""
    return sorted({name for answer in answers.values() for name in answer.names})


class Discovery:
    """The reads of one operation on a cluster. If there are registries, the given nodes are not requested.

    If some servers of a step fail, the operation continues, and ``on_failures`` is called with their failures. If all
    fail, the method raises NobodyAnswered; :meth:`inactive` does not.
    """

    def __init__(
        self, client: Client, cluster: Cluster, on_failures: Callable[[Sequence[RequestFailed]], None]
    ) -> None:
        self.client = client
        self.cluster = cluster
        self._on_failures = on_failures

    async def topics(self) -> list[str]:
        """Return the names of all topics, sorted."""
        if self.cluster.lookupd:
            registered = self._some("nsqlookupd", await reads.registered_topics(self.client, self.cluster.lookupd))
            return names_of(registered)
        stats = self._some("nsqd", await self._given_stats())
        return sorted({topic.topic_name for answer in stats.values() for topic in answer.topics})

    async def producers(self, topic: str) -> list[Node]:
        """Return the nodes that have the topic; an empty list if only registries know it. Raises UnknownTopic."""
        if self.cluster.lookupd:
            answers = await reads.lookups(self.client, self.cluster.lookupd, topic)
            if not answers.found and all(_is_404(error) for error in answers.failures.values()):
                raise UnknownTopic
            return [*nodes_of(self._some("nsqlookupd", answers), self.cluster.address).values()]
        answers_of_nodes = await self._given_stats(topic)
        stats = self._some("nsqd", answers_of_nodes)
        holders = [
            address for address, answer in stats.items() if any(each.topic_name == topic for each in answer.topics)
        ]
        if not holders:
            if answers_of_nodes.failures:
                raise NobodyAnswered("nsqd", answers_of_nodes.failures)
            raise UnknownTopic
        infos = await reads.infos(self.client, holders)
        self._note(infos.failures)
        return [_described(infos.found.get(address) or NodeInfo(), address) for address in holders]

    async def nodes(self) -> list[Node]:
        """Return every node. Nodes from registries are sorted by host name, given nodes are in the given order."""
        if self.cluster.lookupd:
            answers = await reads.registered_nodes(self.client, self.cluster.lookupd)
            nodes = nodes_of(self._some("nsqlookupd", answers), self.cluster.address).values()
            return sorted(nodes, key=lambda node: (node.producer.hostname, node.id))
        infos = await reads.infos(self.client, await self._given())
        stats = await reads.stats(self.client, {each: each for each in infos.found})
        stats.failures = {**infos.failures, **stats.failures}
        found = self._some("nsqd", stats)
        nodes_given = [_described(infos.found[address], address) for address in found]
        for node, answer in zip(nodes_given, found.values(), strict=True):
            node.producer.topics_or_null = [topic.topic_name for topic in answer.topics]
        return nodes_given

    async def stats(
        self, nodes: Iterable[Node], *, topic: str = "", channel: str = "", include_clients: bool = False
    ) -> list[tuple[Node, NodeStats]]:
        """Return ``/stats`` of each node that answers."""
        by_id = {node.id: node for node in nodes}
        found = self._some(
            "nsqd",
            await reads.stats(
                self.client,
                {name: node.address for name, node in by_id.items()},
                topic=topic,
                channel=channel,
                include_clients=include_clients,
            ),
        )
        return [(by_id[name], answer) for name, answer in found.items()]

    async def inactive(self, topics: Sequence[str]) -> dict[str, list[str]]:
        """Return the topics that no node has, with their channels, both sorted.

        A topic is left out if no registry answered its lookup. If some answered, only their answers count.
        """
        lookupd = self.cluster.lookupd
        if not lookupd:
            return {}
        looked_up = await reads.gather(
            {f"{topic} {each}": reads.lookup(self.client, each, topic) for topic in topics for each in lookupd}
        )
        self._note(_without_404(looked_up.failures))
        by_topic: dict[str, list[Producers]] = {}
        for key, answer in looked_up.found.items():
            by_topic.setdefault(key.partition(" ")[0], []).append(answer)
        return {
            topic: sorted({channel for each in found for channel in each.channels})
            for topic, found in sorted(by_topic.items())
            if not any(each.producers for each in found)
        }

    async def _given_stats(self, topic: str = "") -> Answers[NodeStats]:
        return await reads.stats(self.client, await self._given(), topic=topic)

    async def _given(self) -> dict[str, str]:
        """The given addresses, each by itself; one of each mirrored pair."""
        return await distinct(self.client, {each: each for each in self.cluster.nsqd})

    def _some(self, target: Target, answers: Answers[T]) -> dict[str, T]:
        if answers.failures and not answers.found:
            raise NobodyAnswered(target, answers.failures)
        self._note(answers.failures)
        return answers.found

    def _note(self, failures: Mapping[str, RequestFailed]) -> None:
        if failures:
            self._on_failures([*failures.values()])


def _described(info: NodeInfo, address: str) -> Node:
    return Node(producer=info.producer(address), address=address)


def _is_404(error: RequestFailed) -> bool:
    return isinstance(error, Refused) and error.status == 404


def _without_404(failures: Mapping[str, RequestFailed]) -> dict[str, RequestFailed]:
    return {name: error for name, error in failures.items() if not _is_404(error)}
