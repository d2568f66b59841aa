"""Which nodes there are, and which of them have a topic: from registries (mode L), or from the nodes given (mode D)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

import httpx

from cluster.node import address_of
from nsqadmin.answers import Channels, Producer, Producers, Stats, Topics
from nsqadmin.asking import Model, NoAnswer, Warnings, ask_all, nobody


class UnknownTopic(Exception):
    """Every registry, or every node, was asked and none has it."""


@dataclass(kw_only=True)
class Node:
    """A node and where it is asked. ``lookups`` are ``registry/remote_address``, one of each registry that lists it."""

    producer: Producer
    address: str
    lookups: list[str] | None = None
    topics: list[dict[str, object]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return address_of(self.producer.broadcast_address, self.producer.http_port)


@dataclass(frozen=True, kw_only=True)
class Sources:
    """The addresses to begin at. With registries (mode L) the nodes given are not asked.

    ``reached_at`` is where the collector reaches a node, by its name, where that is elsewhere than it says.
    """

    lookupd: Sequence[str]
    nsqd: Sequence[str]
    reached_at: Mapping[str, str] = field(default_factory=dict)


class Discovery:
    """One request's questions. What failed is added to ``warnings``; what leaves nothing to answer is raised."""

    def __init__(self, client: httpx.AsyncClient, sources: Sources, warnings: Warnings) -> None:
        self.client = client
        self.sources = sources
        self.warnings = warnings

    async def topics(self) -> list[str]:
        """Names of all topics, sorted. Raises UpstreamFailed."""
        if self.sources.lookupd:
            registries = await self._registries("/topics", Topics)
            return sorted({name for answer in registries.values() for name in answer.topics})
        stats, failures = await ask_all(
            self.client, {each: f"http://{each}/stats?format=json" for each in self.sources.nsqd}, Stats
        )
        self._note(stats, failures, "nsqd")
        return sorted({topic.topic_name for answer in stats.values() for topic in answer.topics})

    async def producers(self, topic: str) -> list[Node]:
        """The nodes that have a topic; empty where registries know it and no node produces it.

        Raises UnknownTopic and UpstreamFailed.
        """
        if self.sources.lookupd:
            registries = await self._registries(f"/lookup?topic={quote(topic, safe='')}", Producers)
            return self._by_name([each for answer in registries.values() for each in answer.producers])
        stats, failures = await ask_all(
            self.client,
            {
                each: f"http://{each}/stats?format=json&topic={quote(topic, safe='')}&include_clients=false"
                for each in self.sources.nsqd
            },
            Stats,
        )
        self._note(stats, failures, "nsqd")
        holders = [
            address for address, answer in stats.items() if any(each.topic_name == topic for each in answer.topics)
        ]
        if not holders:
            if failures:
                raise nobody("nsqd", failures)
            raise UnknownTopic
        infos, failures = await ask_all(self.client, {each: f"http://{each}/info" for each in holders}, Producer)
        self.warnings.add(failures)
        return [described(infos.get(address) or Producer(), address) for address in holders]

    async def nodes(self) -> list[Node]:
        """Every node: by host name from registries, in the order given otherwise. Raises UpstreamFailed."""
        if self.sources.lookupd:
            return await self._registered_nodes()
        infos, failures = await ask_all(
            self.client, {each: f"http://{each}/info" for each in self.sources.nsqd}, Producer
        )
        stats, silent = await ask_all(
            self.client,
            {each: f"http://{each}/stats?format=json&include_clients=false" for each in infos},
            Stats,
        )
        self._note(stats, [*failures, *silent], "nsqd")
        nodes = []
        for address, answer in stats.items():
            node = described(infos[address], address)
            node.topics = [
                {"topic": name, "tombstoned": False} for name in sorted(each.topic_name for each in answer.topics)
            ]
            nodes.append(node)
        return nodes

    async def _registered_nodes(self) -> list[Node]:
        registries = await self._registries("/nodes", Producers)
        nodes: dict[str, Node] = {}
        for registry, answer in registries.items():
            for producer in answer.producers:
                key = address_of(producer.broadcast_address, producer.tcp_port)
                node = nodes.get(key)
                if node is None:
                    [node] = self._by_name([producer])
                    tombstones = [*producer.tombstones, *[False] * len(producer.topics)]  # older ones send none
                    marked = sorted(zip(producer.topics, tombstones, strict=False))
                    node.topics = [{"topic": name, "tombstoned": gone} for name, gone in marked]
                    node.lookups = []
                    nodes[key] = node
                assert node.lookups is not None
                node.lookups.append(f"{registry}/{producer.remote_address or 'N/A'}")
        return sorted(nodes.values(), key=lambda node: (node.producer.hostname, node.name))

    async def _registries(self, path: str, model: type[Model]) -> dict[str, Model]:
        answers, failures = await ask_all(
            self.client, {each: f"http://{each}{path}" for each in self.sources.lookupd}, model
        )
        if not answers and failures and all(failure.status == 404 for failure in failures):
            raise UnknownTopic
        self._note(answers, failures, "nsqlookupd")
        return answers

    def _note(self, answers: Mapping[str, object], failures: Sequence[NoAnswer], kind: str) -> None:
        if failures and not answers:
            raise nobody(kind, failures)
        self.warnings.add(failures)

    def _by_name(self, producers: Sequence[Producer]) -> list[Node]:
        """Each node once."""
        nodes: dict[str, Node] = {}
        for producer in producers:
            name = address_of(producer.broadcast_address, producer.http_port)
            nodes.setdefault(name, Node(producer=producer, address=self.sources.reached_at.get(name, name)))
        return list(nodes.values())

    async def stats(self, nodes: Sequence[Node], query: str) -> list[tuple[Node, Stats]]:
        """``/stats?format=json&QUERY`` of each node that answers. Raises UpstreamFailed where none does."""
        found, failures = await ask_all(
            self.client, {node.name: f"http://{node.address}/stats?format=json{query}" for node in nodes}, Stats
        )
        self._note(found, failures, "nsqd")
        return [(node, found[node.name]) for node in nodes if node.name in found]

    async def inactive(self, topics: Sequence[str]) -> dict[str, list[str] | None]:
        """Of these topics those that no node produces, with their channels. One that could not be looked up is left
        out, with a warning: it may well be produced."""
        if not self.sources.lookupd:
            return {}
        urls = {
            f"{topic} {registry}": f"http://{registry}/lookup?topic={quote(topic, safe='')}"
            for topic in topics
            for registry in self.sources.lookupd
        }
        answers, failures = await ask_all(self.client, urls, Producers)
        self.warnings.add([failure for failure in failures if failure.status != 404])
        looked_up: dict[str, list[Producers]] = {}
        for key, answer in answers.items():
            looked_up.setdefault(key.partition(" ")[0], []).append(answer)
        idle = [topic for topic, found in looked_up.items() if not any(each.producers for each in found)]
        channels, failures = await ask_all(
            self.client,
            {
                f"{topic} {registry}": f"http://{registry}/channels?topic={quote(topic, safe='')}"
                for topic in idle
                for registry in self.sources.lookupd
            },
            Channels,
        )
        self.warnings.add([failure for failure in failures if failure.status != 404])
        named: dict[str, set[str]] = {topic: set() for topic in idle}
        for key, held in channels.items():
            named[key.partition(" ")[0]].update(held.channels)
        return {topic: sorted(found) or None for topic, found in sorted(named.items())}


def described(producer: Producer, address: str) -> Node:
    """A node that was asked at ``address``; what it does not say of itself is taken from there."""
    host, _, port = address.rpartition(":")
    named = producer.model_copy(
        update={
            "broadcast_address": producer.broadcast_address or host.strip("[]"),
            "hostname": producer.hostname or host.strip("[]"),
            "http_port": producer.http_port or int(port),
        }
    )
    return Node(producer=named, address=address)
