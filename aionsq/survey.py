"""What a cluster holds: its nodes, topics and channels, asked of every registry and every node at once.

The rows have the fields of the platform's (docs/architecture.md, Rows) as far as one look can tell them. Nodes may be
Go's as well as ours.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from typing_extensions import TypedDict

from aionsq.cluster import STEP_S, Cluster, client, said
from aionsq.errors import HTTPFailed
from aionsq.http import HTTPClient, base_url, host_port

T = TypeVar("T")

ASKED_AT_ONCE = 64
"""Below the number of connections that the HTTP client opens, or the last nodes would wait for one and seem late."""


class Failure(TypedDict):
    """Who did not say what it holds, and why. ``node`` is a node's id or a registry's address."""

    node: str
    target: Literal["nsqd", "nsqlookupd"]
    detail: str


class NodeRow(TypedDict):
    id: str
    hostname: str
    broadcast_address: str
    tcp_port: int
    http_port: int
    version: str
    state: Literal["up", "down"]
    error: str | None
    health: str
    start_time: int
    """Unix seconds."""
    topic_count: int
    channel_count: int
    client_count: int
    depth: int
    """Of its topics and their channels together."""
    tombstones: list[str]
    """The topics for which some registry hides it."""


class TopicNode(TypedDict):
    node: str
    paused: bool
    depth: int
    message_count: int


class TopicRow(TypedDict):
    name: str
    paused: bool
    """On any node."""
    depth: int
    """The topic's own backlog: what no channel has been given yet."""
    channel_depth: int
    """What its channels hold: waiting, in flight and deferred."""
    message_count: int
    channel_count: int
    nodes: list[TopicNode]


class ChannelNode(TypedDict):
    node: str
    paused: bool
    depth: int
    in_flight_count: int
    deferred_count: int
    client_count: int


class ChannelRow(TypedDict):
    topic: str
    name: str
    paused: bool
    """On any node."""
    depth: int
    in_flight_count: int
    deferred_count: int
    requeue_count: int
    timeout_count: int
    message_count: int
    client_count: int
    nodes: list[ChannelNode]


@dataclass(kw_only=True)
class NodeStats:
    """One node: how it is reached, what a registry or its ``/info`` said of it, and its ``/stats`` if it answered."""

    id: str
    address: str
    described: Mapping[str, Any] = field(default_factory=dict)
    tombstones: set[str] = field(default_factory=set)
    stats: Mapping[str, Any] | None = None
    error: str | None = None

    @property
    def topics(self) -> list[Mapping[str, Any]]:
        return list((self.stats or {}).get("topics") or ())


@dataclass(kw_only=True)
class Survey:
    """All answers of one look."""

    nodes: dict[str, NodeStats] = field(default_factory=dict)
    registered: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Topics that registries know, with their channels."""
    failures: list[Failure] = field(default_factory=list)

    def node_rows(self) -> list[NodeRow]:
        return [_node_row(node) for _, node in sorted(self.nodes.items())]

    def topic_rows(self) -> list[TopicRow]:
        """By name, also those that only a registry knows."""
        rows: dict[str, TopicRow] = {}
        channels = {name: set(known) for name, known in self.registered.items()}
        for node in self.nodes.values():
            for topic in node.topics:
                found = channels.setdefault(topic["topic_name"], set())
                found.update(channel["channel_name"] for channel in topic.get("channels") or ())
        for name in sorted(channels):
            rows[name] = TopicRow(
                name=name,
                paused=False,
                depth=0,
                channel_depth=0,
                message_count=0,
                channel_count=len(channels[name]),
                nodes=[],
            )
        for node_id, node in sorted(self.nodes.items()):
            for topic in node.topics:
                row = rows[topic["topic_name"]]
                row["paused"] |= bool(topic.get("paused"))
                row["depth"] += topic["depth"]
                row["message_count"] += topic["message_count"]
                row["channel_depth"] += sum(map(held_by, topic.get("channels") or ()))
                row["nodes"].append(
                    TopicNode(
                        node=node_id,
                        paused=bool(topic.get("paused")),
                        depth=topic["depth"],
                        message_count=topic["message_count"],
                    )
                )
        return list(rows.values())

    def channel_rows(self) -> list[ChannelRow]:
        """By topic and name, also those that only a registry knows."""
        rows: dict[tuple[str, str], ChannelRow] = {}
        for topic, known in self.registered.items():
            for name in known:
                rows[topic, name] = _channel_row(topic, name)
        for node_id, node in sorted(self.nodes.items()):
            for each in node.topics:
                topic = each["topic_name"]
                for channel in each.get("channels") or ():
                    name = channel["channel_name"]
                    row = rows.setdefault((topic, name), _channel_row(topic, name))
                    clients = _client_count(channel)
                    row["paused"] |= bool(channel.get("paused"))
                    row["client_count"] += clients
                    row["depth"] += channel["depth"]
                    row["in_flight_count"] += channel["in_flight_count"]
                    row["deferred_count"] += channel["deferred_count"]
                    row["requeue_count"] += channel["requeue_count"]
                    row["timeout_count"] += channel["timeout_count"]
                    row["message_count"] += channel["message_count"]
                    row["nodes"].append(
                        ChannelNode(
                            node=node_id,
                            paused=bool(channel.get("paused")),
                            depth=channel["depth"],
                            in_flight_count=channel["in_flight_count"],
                            deferred_count=channel["deferred_count"],
                            client_count=clients,
                        )
                    )
        return [rows[key] for key in sorted(rows)]


async def survey(cluster: Cluster, topic: str = "", *, channels: bool = True) -> Survey:
    """Ask everybody, about one topic or about all. Raises nothing: who fails is in ``failures``.

    ``channels``: also ask the registries for the channels of topics that no node produces.
    """
    found = Survey()
    turns = asyncio.Semaphore(ASKED_AT_ONCE)
    async with client(cluster) as http:
        look = _Look(http, turns, found)
        registries = (look.registry(address, topic, channels) for address in cluster.lookupd)
        given = (look.introduction(address) for address in cluster.nsqd)
        await asyncio.gather(*registries, *given)
        await asyncio.gather(*(look.stats(node, topic) for node in found.nodes.values()))
    for node in found.nodes.values():
        if node.error is not None:
            found.failures.append(Failure(node=node.id, target="nsqd", detail=node.error))
    found.failures.sort(key=lambda failure: (failure["target"], failure["node"]))
    return found


def held_by(channel: Mapping[str, Any]) -> int:
    """The messages that would go with a channel of ``/stats`` or a ChannelRow: waiting, in flight and deferred."""
    return int(channel["depth"] + channel["in_flight_count"] + channel["deferred_count"])


class _Look:
    def __init__(self, http: HTTPClient, turns: asyncio.Semaphore, found: Survey) -> None:
        self._http = http
        self._turns = turns
        self._found = found

    async def registry(self, address: str, topic: str, channels: bool) -> None:
        url = base_url(address)
        nodes = await self._ask(lambda: self._get(url + "/nodes", _producers))
        topics = [topic] if topic else await self._ask(lambda: self._get(url + "/topics", _each("topics")))
        for answer in (nodes, topics):
            if isinstance(answer, str):
                self._found.failures.append(Failure(node=address, target="nsqlookupd", detail=answer))
                return
        produced: set[str] = set()
        for described in nodes:
            node_id = _node_id(described)
            node = self._found.nodes.setdefault(node_id, NodeStats(id=node_id, address=node_id, described=described))
            listed = described.get("topics") or ()
            produced.update(listed)
            node.tombstones.update(
                name for name, hidden in zip(listed, described.get("tombstones") or (), strict=False) if hidden
            )
        if not topic:
            for name in topics:
                self._found.registered[name].update()
        if channels:
            idle = [name for name in topics if topic or name not in produced]
            await asyncio.gather(*(self._channels(url, address, name) for name in idle))

    async def _channels(self, url: str, address: str, topic: str) -> None:
        answer = await self._ask(lambda: self._get(url + "/lookup", _each("channels"), topic=topic), lacking=None)
        if isinstance(answer, str):
            self._found.failures.append(Failure(node=address, target="nsqlookupd", detail=answer))
        elif answer is not None:
            self._found.registered[topic].update(map(str, answer))

    async def introduction(self, address: str) -> None:
        """A node that was given by its address is called by that."""
        described = await self._ask(lambda: self._get(base_url(address) + "/info", _object))
        node = NodeStats(id=address, address=address)
        if isinstance(described, str):
            node.error = described
        else:
            node.described = described
        self._found.nodes[address] = node

    async def stats(self, node: NodeStats, topic: str) -> None:
        if node.error is not None:
            return
        params = {"format": "json", "include_clients": "false", "include_mem": "false"}
        if topic:
            params["topic"] = topic
        url = base_url(node.address) + "/stats"
        answer = await self._ask(lambda: self._get(url, _stats, **params))
        if isinstance(answer, str):
            node.error = answer
        elif topic:  # an old nsqd may not know the parameter
            node.stats = {**answer, "topics": [each for each in answer["topics"] or () if each["topic_name"] == topic]}
        else:
            node.stats = answer

    async def _get(self, url: str, read: Callable[[Any], T], **params: str) -> T:
        document = await self._http.get_json(url, params)
        try:
            return read(document)
        except (KeyError, TypeError, ValueError):
            raise HTTPFailed(url, 200, "the answer makes no sense") from None

    async def _ask(self, question: Callable[[], Awaitable[T]], lacking: T | str | None = "") -> Any:
        """The answer, or as text why there is none; ``lacking`` where there is no such topic and that is an answer."""
        try:
            async with self._turns, asyncio.timeout(STEP_S):
                return await question()
        except TimeoutError:
            return f"no answer within {STEP_S:g} s"
        except HTTPFailed as error:
            if lacking is None and error.status == 404:
                return None
            return said(error)


def _each(key: str) -> Callable[[Any], list[Any]]:
    return lambda document: list(document[key] or ())


def _producers(document: Any) -> list[Mapping[str, Any]]:
    nodes = _each("producers")(document)
    for described in nodes:
        _node_id(described)
    return nodes


def _node_id(described: Mapping[str, Any]) -> str:
    return host_port(str(described["broadcast_address"]), int(described["http_port"]))


def _object(document: Any) -> Mapping[str, Any]:
    if not isinstance(document, dict):
        raise TypeError("not an object")
    return document


_TOPIC_FIELDS = ("depth", "message_count")
_CHANNEL_FIELDS = ("depth", "in_flight_count", "deferred_count", "requeue_count", "timeout_count", "message_count")


def _stats(document: Any) -> Mapping[str, Any]:
    """``/stats`` that can be summed up. Raises KeyError, TypeError or ValueError for anything else."""
    stats = _object(document)
    for topic in stats["topics"] or ():
        _check(topic, "topic_name", _TOPIC_FIELDS)
        for channel in topic.get("channels") or ():
            _check(channel, "channel_name", _CHANNEL_FIELDS)
    return stats


def _check(entry: Mapping[str, Any], name: str, counts: Iterable[str]) -> None:
    if not isinstance(entry[name], str) or not all(isinstance(entry[count], int) for count in counts):
        raise TypeError("not nsqd's")


def _client_count(channel: Mapping[str, Any]) -> int:
    """nsqd before 1.0.1 tells its clients one by one only."""
    return int(channel["client_count"]) if "client_count" in channel else len(channel.get("clients") or ())


def _node_row(node: NodeStats) -> NodeRow:
    told, topics = node.described, node.topics
    channels = [channel for topic in topics for channel in topic.get("channels") or ()]
    stats = node.stats or {}
    return NodeRow(
        id=node.id,
        hostname=str(told.get("hostname", "")),
        broadcast_address=str(told.get("broadcast_address", "")),
        tcp_port=int(told.get("tcp_port", 0)),
        http_port=int(told.get("http_port", 0)),
        version=str(stats.get("version") or told.get("version", "")),
        state="up" if node.error is None else "down",
        error=node.error,
        health=str(stats.get("health", "")),
        start_time=int(stats.get("start_time", 0)),
        topic_count=len(topics),
        channel_count=len(channels),
        client_count=sum(map(_client_count, channels)),
        depth=sum(topic["depth"] for topic in topics) + sum(channel["depth"] for channel in channels),
        tombstones=sorted(node.tombstones),
    )


def _channel_row(topic: str, name: str) -> ChannelRow:
    return ChannelRow(
        topic=topic,
        name=name,
        paused=False,
        depth=0,
        in_flight_count=0,
        deferred_count=0,
        requeue_count=0,
        timeout_count=0,
        message_count=0,
        client_count=0,
        nodes=[],
    )
