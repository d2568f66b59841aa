"""Reads of one server, and of several at once, whose result contains the failures by server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from nsqcluster.client import Client, url_of
from nsqcluster.decoding import decode
from nsqcluster.errors import Refused, RequestFailed
from nsqcluster.producers import ChannelNames, NodeInfo, Producers, TopicNames
from nsqcluster.stats import NodeStats

T = TypeVar("T")
S = TypeVar("S", bound=NodeStats)


@dataclass(kw_only=True)
class Answers(Generic[T]):
    """Responses and failures by the server's name, both in the order of the requests."""

    found: dict[str, T] = field(default_factory=dict)
    failures: dict[str, RequestFailed] = field(default_factory=dict)

    @property
    def errors(self) -> dict[str, RequestFailed]:
        """The failures without those of servers that answered and do not have the topic or channel."""
        return {
            name: error
            for name, error in self.failures.items()
            if not (isinstance(error, Refused) and error.is_unknown_name)
        }


async def gather(requests: Mapping[str, Awaitable[T]]) -> Answers[T]:
    """Run all requests at once. RequestFailed is not raised, but is among the failures."""

    answers: Answers[T] = Answers()
    results = await asyncio.gather(*requests.values(), return_exceptions=True)
    for name, result in zip(requests, results, strict=True):
        if isinstance(result, RequestFailed):
            answers.failures[name] = result
        elif isinstance(result, BaseException):
            raise result
        else:
            answers.found[name] = result
    return answers


@contextmanager
def _expecting(server: str) -> Iterator[None]:
    """If the server does not know a path that every ``server`` has, add to the error that this is not its address."""
    try:
        yield
    except Refused as error:
        if error.status != 404 or error.is_unknown_name:
            raise
        message = f"{error.message}: this is not an {server}'s HTTP address"
        raise Refused(error.url, error.status, message, text=error.text, phrase=error.phrase) from error


async def nodes(client: Client, registry: str, timeout_s: float | None = None) -> Producers:
    """Return all nodes of a registry, with their topics. This and the other reads of one server raise RequestFailed."""
    with _expecting("nsqlookupd"):
        return await client.get(registry, "/nodes", Producers, timeout_s=timeout_s)


async def topics(client: Client, registry: str, timeout_s: float | None = None) -> TopicNames:
    """Return the topics of a registry."""
    with _expecting("nsqlookupd"):
        return await client.get(registry, "/topics", TopicNames, timeout_s=timeout_s)


async def channels(client: Client, registry: str, topic: str, timeout_s: float | None = None) -> ChannelNames:
    """Return the topic's channels in a registry."""
    with _expecting("nsqlookupd"):
        return await client.get(registry, "/channels", ChannelNames, {"topic": topic}, timeout_s=timeout_s)


async def lookup(client: Client, registry: str, topic: str, timeout_s: float | None = None) -> Producers:
    """Return the topic's nodes and channels in a registry."""
    with _expecting("nsqlookupd"):
        return await client.get(registry, "/lookup", Producers, {"topic": topic}, timeout_s=timeout_s)


async def ping(client: Client, address: str, timeout_s: float | None = None) -> str:
    """Return the response of a healthy server, ``OK``; of another one, a Refused is raised with the reason."""
    return (await client.get_body(address, "/ping", timeout_s=timeout_s)).decode(errors="replace")


async def info(client: Client, address: str, timeout_s: float | None = None) -> NodeInfo:
    """Return a node's description."""
    return await client.get(address, "/info", NodeInfo, timeout_s=timeout_s)


async def node_stats(
    client: Client,
    address: str,
    type: type[S],
    *,
    topic: str = "",
    channel: str = "",
    include_clients: bool = False,
    include_histograms: bool = False,
    previous_boot: bool = False,
    timeout_s: float | None = None,
) -> S:
    """Return a node's statistics as ``type``, which is NodeStats or has further keys.

    Go's nsqd ignores ``include_histograms`` and ``previous_boot``. An old one that does not support ``topic`` and
    ``channel`` responds with others too.
    """
    params = {"format": "json"}
    if topic:
        params["topic"] = topic
    if channel:
        params["channel"] = channel
    if include_histograms:
        params["include_histograms"] = "true"
    params |= {"include_clients": str(include_clients).lower(), "include_mem": "false"}
    if previous_boot:
        params["previous_boot"] = "true"
    # Without Client.get, because docs/architecture.md counts the files that a figure passes.
    with _expecting("nsqd"):
        body = await client.get_body(address, "/stats", params, timeout_s=timeout_s)
    return decode(body, type, url_of(address, "/stats", params))


async def registered_nodes(
    client: Client, lookupd: Iterable[str], timeout_s: float | None = None
) -> Answers[Producers]:
    """Request all nodes of each registry, with their topics."""
    return await gather({each: nodes(client, each, timeout_s) for each in lookupd})


async def registered_topics(
    client: Client, lookupd: Iterable[str], timeout_s: float | None = None
) -> Answers[TopicNames]:
    """Request the topics of each registry."""
    return await gather({each: topics(client, each, timeout_s) for each in lookupd})


async def registered_channels(
    client: Client, lookupd: Iterable[str], topic: str, timeout_s: float | None = None
) -> Answers[ChannelNames]:
    """Request the topic's channels of each registry."""
    return await gather({each: channels(client, each, topic, timeout_s) for each in lookupd})


async def lookups(
    client: Client, lookupd: Iterable[str], topic: str, timeout_s: float | None = None
) -> Answers[Producers]:
    """Request the topic's producers of each registry; a registry that does not know the topic is a failure, 404."""
    return await gather({each: lookup(client, each, topic, timeout_s) for each in lookupd})


async def infos(client: Client, nsqd: Iterable[str], timeout_s: float | None = None) -> Answers[NodeInfo]:
    """Request ``/info`` of each address."""
    return await gather({each: info(client, each, timeout_s) for each in nsqd})


async def stats(
    client: Client,
    addresses: Mapping[str, str],
    *,
    topic: str = "",
    channel: str = "",
    include_clients: bool = False,
    include_histograms: bool = False,
    timeout_s: float | None = None,
) -> Answers[NodeStats]:
    """Request ``/stats`` of each node. ``addresses`` maps the node's name to its HTTP address."""
    return await gather(
        {
            name: node_stats(
                client,
                address,
                NodeStats,
                topic=topic,
                channel=channel,
                include_clients=include_clients,
                include_histograms=include_histograms,
                timeout_s=timeout_s,
            )
            for name, address in addresses.items()
        }
    )
