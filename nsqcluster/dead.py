"""Dead messages of a channel on every node that has it: reading them, delivering them again and removing them.

Only brokerd has dead messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from nsqcluster import messages
from nsqcluster.actions import of_holders, somewhere
from nsqcluster.client import Client
from nsqcluster.cluster import Cluster
from nsqcluster.errors import Refused, RequestFailed, detail_of
from nsqcluster.messages import MESSAGES_IN_A_PAGE, ChosenDead, PeekedMessage
from nsqcluster.posts import failed
from nsqcluster.results import Result
from nsqcluster.survey import Failure
from nsqcluster.targets import NotInCluster, Targets, find
from nsqwire.counted import counted

NO_DEAD: Final = "this nsqd has no dead messages (Go's has none)"
DROPPED: Final = "400 WOULD_BE_DROPPED"
WHY_DROPPED: Final = f"{DROPPED}: some are older than the channel's msg_ttl, or more than its max_depth"
REQUEST_S: Final = 50.0
"""Longest time of a request that acts on dead messages. A node needs about a second for 100,000."""


@dataclass(kw_only=True)
class DeadMessages:
    """The dead messages of a channel, each with its node, and the servers that failed. ``total`` is their number on all
    nodes, which may be more than were asked for."""

    messages: list[tuple[str, PeekedMessage]] = field(default_factory=list)
    total: int = 0
    failures: list[Failure] = field(default_factory=list)


async def read(cluster: Cluster, topic: str, channel: str, *, limit: int) -> DeadMessages:
    """Read the first ``limit`` dead messages of each node. Raises NotInCluster and ClusterUnreachable."""
    found = DeadMessages()
    async with cluster.client() as http:
        targets = await find(http, cluster, topic)
        found.failures += [
            Failure(node=each["node"], target=each["target"], detail=each["detail"])
            for each in targets.complaints
            if each["outcome"] != "absent"
        ]
        nodes = sorted(targets.nodes.items())
        pages = await asyncio.gather(*(_pages(http, address, topic, channel, limit) for _, address in nodes))
    is_somewhere = bool(found.failures)
    for (node, _), answer in zip(nodes, pages, strict=True):
        if isinstance(answer, RequestFailed):
            if not (isinstance(answer, Refused) and answer.is_unknown_name):
                found.failures.append(Failure(node=node, target="nsqd", detail=_reason(answer)))
                is_somewhere = True
            continue
        is_somewhere = True
        found.total += answer[0]
        found.messages += [(node, message) for message in answer[1]]
    if not is_somewhere:
        raise NotInCluster(f"no node of the cluster has channel {channel} of topic {topic}", "channel")
    return found


async def _pages(
    http: Client, address: str, topic: str, channel: str, limit: int
) -> tuple[int, list[PeekedMessage]] | RequestFailed:
    found, total, offset = list[PeekedMessage](), 0, 0
    try:
        while offset == 0 or offset < min(limit, total):
            most = min(limit - offset, MESSAGES_IN_A_PAGE)
            page = await messages.peek(http, address, topic, channel, "dead", limit=most, offset=offset)
            found, total = found + page.messages, page.total
            offset += MESSAGES_IN_A_PAGE  # not the number of messages: damaged ones are left out
    except RequestFailed as error:
        return error
    return total, found


async def requeue(cluster: Cluster, topic: str, channel: str, chosen: ChosenDead, *, rate: int = 0) -> list[Result]:
    """Deliver dead messages again, ``rate`` a second on each node, or at once if it is 0.

    A result's detail is the number of messages. Raises NotInCluster and ClusterUnreachable.
    """

    async def act(http: Client, address: str) -> int:
        return await messages.requeue_dead(http, address, topic, channel, chosen, rate=rate, timeout_s=REQUEST_S)

    return await _everywhere(cluster, topic, channel, act)


async def remove(cluster: Cluster, topic: str, channel: str, chosen: ChosenDead) -> list[Result]:
    """Remove dead messages. The results and errors are as those of ``requeue``."""

    async def act(http: Client, address: str) -> int:
        return await messages.remove_dead(http, address, topic, channel, chosen, timeout_s=REQUEST_S)

    return await _everywhere(cluster, topic, channel, act)


async def _everywhere(
    cluster: Cluster, topic: str, channel: str, act: Callable[[Client, str], Awaitable[int]]
) -> list[Result]:
    async with cluster.client() as http:
        targets: Targets = await find(http, cluster, topic)

        async def one(node: str, address: str) -> Result:
            try:
                done = await act(http, address)
            except RequestFailed as error:
                result = failed(node, "nsqd", error, NO_DEAD)
                result["detail"] = WHY_DROPPED if result["detail"] == DROPPED else result["detail"]
                return result
            return Result(node=node, target="nsqd", outcome="done", detail=counted(done, "message"))

        results = await asyncio.gather(*(one(*node) for node in sorted(targets.nodes.items())))
    return somewhere(targets.complaints + of_holders(results, targets), topic, channel)


def _reason(error: RequestFailed) -> str:
    return NO_DEAD if isinstance(error, Refused) and error.is_unknown_request else detail_of(error)
