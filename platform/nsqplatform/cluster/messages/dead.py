"""Dead messages of chosen channels: counting them on each node, and acting on those of one channel on one node."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from asgiref.sync import async_to_sync
from typing_extensions import TypedDict

from nsqcluster import (
    Client,
    Cluster,
    Interrupted,
    NodeStats,
    NotInCluster,
    Refused,
    RequestFailed,
    Result,
    TimedOut,
    messages,
    reads,
)
from nsqcluster.messages import MESSAGES_IN_A_PAGE, ChosenDead
from nsqcluster.stats import ChannelStats
from nsqplatform.cluster import node_client, selectors
from nsqplatform.cluster.actions.topic_nodes import node_addresses
from nsqwire.counted import counted
from nsqwire.units import Seconds

READ_AT_MOST = 5000
"""Largest number of dead messages of a channel on a node whose times of death are read."""
READ_S = 10.0
"""Time after which no further times of death are read."""
TOPICS_AT_ONCE = 16
REQUEST_S = 50.0
"""Longest time of a request that acts on dead messages. A node needs about a second for 100,000."""


class DeadAction(StrEnum):
    """An action on dead messages."""

    REQUEUE = "requeue"
    REMOVE = "remove"

    @property
    def past(self) -> str:
        return f"{self}d"


class Channel(NamedTuple):
    """A channel of a topic."""

    topic: str
    name: str


class DeadPart(TypedDict):
    """The dead messages of a channel on one node.

    ``dead`` is null and ``by_reason`` empty if they are unknown; ``error`` says why. ``matching`` is the number of the
    chosen ones; if not ``exact``, an upper bound, because their times of death were not read.
    """

    topic: str
    channel: str
    node: str
    dead: int | None
    by_reason: dict[str, int]
    matching: int
    exact: bool
    error: str


def count_dead(channels: Sequence[Channel], chosen: ChosenDead) -> list[DeadPart]:
    """Count the dead messages of the channels on each node that has some, or that does not answer.

    Changes nothing. Raises ClusterUnreachable.
    """
    return async_to_sync(_count)(selectors.cluster(), channels, chosen, time.monotonic() + READ_S)


async def _count(
    cluster: Cluster, channels: Sequence[Channel], chosen: ChosenDead, read_until: Seconds
) -> list[DeadPart]:
    by_topic: defaultdict[str, set[str]] = defaultdict(set)
    for channel in channels:
        by_topic[channel.topic].add(channel.name)
    slots = asyncio.Semaphore(TOPICS_AT_ONCE)
    async with node_client.client() as http:

        async def of_topic(topic: str) -> list[DeadPart]:
            async with slots:
                try:
                    where = await node_addresses(cluster, topic)
                except NotInCluster:
                    return []
                of_nodes = await asyncio.gather(
                    *(_on_node(http, *node, topic, by_topic[topic], chosen, read_until) for node in where.items())
                )
                return [part for parts in of_nodes for part in parts]

        found = await asyncio.gather(*map(of_topic, by_topic))
    return sorted((part for parts in found for part in parts), key=lambda part: (*_channel(part), part["node"]))


def _channel(part: DeadPart) -> Channel:
    return Channel(part["topic"], part["channel"])


async def _on_node(
    http: Client,
    node: str,
    address: str,
    topic: str,
    names: Collection[str],
    chosen: ChosenDead,
    read_until: Seconds,
) -> list[DeadPart]:
    try:
        stats = await reads.node_stats(http, address, NodeStats, topic=topic, include_histograms=True)
    except RequestFailed as error:
        if isinstance(error, Refused) and error.is_unknown_name:
            return []
        return [_unknown(Channel(topic, name), node, error) for name in names]
    parts = list[DeadPart]()
    for name in names:
        found = stats.channel(topic, name)
        if found is None or not found.dead_count:
            continue
        channel = Channel(topic, name)
        most = _most(found, chosen)
        matching = None if chosen.since is None else await _matching(http, address, channel, chosen, found, read_until)
        parts.append(
            DeadPart(
                topic=topic,
                channel=name,
                node=node,
                dead=found.dead_count,
                by_reason=_by_reason(found),
                matching=most if matching is None else matching,
                exact=chosen.since is None or matching is not None,
                error="",
            )
        )
    return parts


def _unknown(channel: Channel, node: str, error: RequestFailed) -> DeadPart:
    return DeadPart(
        topic=channel.topic,
        channel=channel.name,
        node=node,
        dead=None,
        by_reason={},
        matching=0,
        exact=False,
        error=error.reason,
    )


def _by_reason(found: ChannelStats) -> dict[str, int]:
    """The dead messages by reason, without zeros."""
    counts = found.dead_by_reason
    every = (("attempts", counts.attempts), ("expired", counts.expired), ("overflow", counts.overflow))
    return {reason: count for reason, count in (*every, ("operator", counts.operator)) if count}


def _most(found: ChannelStats, chosen: ChosenDead) -> int:
    """The number of chosen messages, whenever they died."""
    return found.dead_count if chosen.reason is None else _by_reason(found).get(chosen.reason, 0)


async def _matching(
    http: Client, address: str, channel: Channel, chosen: ChosenDead, found: ChannelStats, read_until: Seconds
) -> int | None:
    """The number of chosen messages, by their times of death; None if these are too many to read."""
    if not _most(found, chosen):
        return 0
    count = 0
    for offset in range(0, READ_AT_MOST, MESSAGES_IN_A_PAGE):
        if time.monotonic() > read_until:
            return None
        try:
            page = await messages.peek(
                http, address, *channel, "dead", limit=MESSAGES_IN_A_PAGE, offset=offset, max_body_bytes=0
            )
        except RequestFailed:
            return None
        count += sum(each.death is not None and chosen.includes(each.death) for each in page.messages)
        if offset + MESSAGES_IN_A_PAGE >= page.total:
            return count
    return None


async def act(
    http: Client, address: str, action: DeadAction, channel: Channel, node: str, chosen: ChosenDead, rate: int
) -> Result:
    """Act on dead messages of one node, with one request, and return its result.

    A requeue with a ``rate`` is complete when the node answers: it has then deferred the messages to their due times.
    """
    began = datetime.now(UTC)
    try:
        if action is DeadAction.REMOVE:
            done = await messages.remove_dead(http, address, *channel, chosen, timeout_s=REQUEST_S)
        else:
            done = await messages.requeue_dead(http, address, *channel, chosen, rate=rate, timeout_s=REQUEST_S)
    except RequestFailed as error:
        return Result(node=node, target="nsqd", outcome="failed", detail=_reason(error, action))
    detail = f"{counted(done, 'dead message')} {action.past}"
    if action is DeadAction.REQUEUE and rate and done:
        last = began + timedelta(seconds=(done - 1) / rate)
        detail += f" at {rate:,} a second: the last is due at {last:%Y-%m-%d %H:%M:%S} UTC"
    return Result(node=node, target="nsqd", outcome="done", detail=detail)


def _reason(error: RequestFailed, action: DeadAction) -> str:
    if isinstance(error, Refused):
        if error.is_unknown_name:
            return "the node does not have this channel any more"
        if error.is_unknown_request or error.message == "INVALID_ARG_STATE":
            return "this nsqd has no dead messages; brokerd of this release has, Go's nsqd has none"
    # A node acts in portions: it refuses a later one with 503 if its disk is full.
    unsure = isinstance(error, (TimedOut, Interrupted)) or (isinstance(error, Refused) and error.status == 503)
    return f"{error.reason}; it may have {action.past} some" if unsure else error.reason
