"""Reads: one request to each of several servers at once. The result contains the failures by server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from nsqcluster.client import Client
from nsqcluster.errors import Refused, RequestFailed
from nsqcluster.producers import ChannelNames, NodeInfo, Producers, TopicNames
from nsqcluster.stats import NodeStats

T = TypeVar("T")


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


async def registered_nodes(
    client: Client, lookupd: Iterable[str], timeout_s: float | None = None
) -> Answers[Producers]:
    """Request all nodes of each registry, with their topics."""
    return await gather({each: client.get(each, "/nodes", Producers, timeout_s=timeout_s) for each in lookupd})


async def registered_topics(
    client: Client, lookupd: Iterable[str], timeout_s: float | None = None
) -> Answers[TopicNames]:
    """Request the topics of each registry."""
    return await gather({each: client.get(each, "/topics", TopicNames, timeout_s=timeout_s) for each in lookupd})


async def registered_channels(
    client: Client, lookupd: Iterable[str], topic: str, timeout_s: float | None = None
) -> Answers[ChannelNames]:
    """Request the topic's channels of each registry."""
    params = {"topic": topic}
    return await gather(
        {each: client.get(each, "/channels", ChannelNames, params, timeout_s=timeout_s) for each in lookupd}
    )


async def lookups(
    client: Client, lookupd: Iterable[str], topic: str, timeout_s: float | None = None
) -> Answers[Producers]:
    """Request the topic's producers of each registry; a registry that does not know the topic is a failure, 404."""
    params = {"topic": topic}
    return await gather({each: client.get(each, "/lookup", Producers, params, timeout_s=timeout_s) for each in lookupd})


async def infos(client: Client, nsqd: Iterable[str], timeout_s: float | None = None) -> Answers[NodeInfo]:
    """Request ``/info`` of each address."""
    return await gather({each: client.get(each, "/info", NodeInfo, timeout_s=timeout_s) for each in nsqd})


async def stats(
    client: Client,
    addresses: Mapping[str, str],
    *,
    topic: str = "",
    channel: str = "",
    include_clients: bool = False,
    timeout_s: float | None = None,
) -> Answers[NodeStats]:
    """Request ``/stats`` of each node. ``addresses`` maps the node's name to its HTTP address.

    An old node that does not support the parameters responds with other topics and channels too.
    """
    params = stats_params(topic=topic, channel=channel, include_clients=include_clients)
    return await gather(
        {
            name: client.get(address, "/stats", NodeStats, params, timeout_s=timeout_s)
            for name, address in addresses.items()
        }
    )


def stats_params(
    *,
    topic: str = "",
    channel: str = "",
    include_clients: bool = False,
    include_histograms: bool = False,
    previous_boot: bool = False,
) -> dict[str, str]:
    """Return the query of ``GET /stats``. Go's nsqd ignores ``include_histograms`` and ``previous_boot``."""
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
    return params
