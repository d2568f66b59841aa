"""Listing: everything that one registry lists, and the merge of several registries' listings."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

from nsqcluster import reads
from nsqcluster.client import Client
from nsqcluster.producers import Producers, TopicNames


@dataclass(kw_only=True)
class Listing:
    """The nodes that a registry lists with their topics, and the channels of the topics for which it lists no node."""

    nodes: Producers = field(default_factory=lambda: Producers(producers_or_null=None))
    idle: dict[str, list[str]] = field(default_factory=dict)
    """Topic without a node -> its channels, the topics first that were read the longest ago. The channels of other
    topics come from their nodes."""


REREAD = 100
"""Number of known topics without a node whose channels are read again at a time."""


async def read_listing(
    client: Client, registry: str, timeout_s: float | None = None, before: Listing | None = None
) -> Listing:
    """Read one registry. Raises RequestFailed if any of the requests fails.

    ``before`` is the last listing. Of the topics without a node that are in it, REREAD are read again, and the others
    in the next calls: each takes a request, and a registry may list thousands that were deleted from their nodes.
    """
    nodes, topics = await asyncio.gather(
        reads.nodes(client, registry, timeout_s), reads.topics(client, registry, timeout_s)
    )
    idle = set(topics_without_nodes(nodes, topics))
    known = {topic: names for topic, names in before.idle.items() if topic in idle} if before else {}
    read = [*islice(known, REREAD), *sorted(idle - known.keys())]
    channels = await asyncio.gather(*(reads.channels(client, registry, topic, timeout_s) for topic in read))
    kept = dict(islice(known.items(), REREAD, None))
    return Listing(nodes=nodes, idle=kept | {topic: found.names for topic, found in zip(read, channels, strict=True)})


def topics_without_nodes(nodes: Producers, topics: TopicNames) -> list[str]:
    """Return the topics of one registry for which it lists no node, given its ``/nodes`` and ``/topics``."""
    produced = {topic for producer in nodes.producers for topic in producer.topics}
    return [topic for topic in topics.names if topic not in produced]


def idle_topics(listings: Iterable[Listing]) -> dict[str, list[str]]:
    """Merge listings: the topics for which a registry lists no node, with their channels, sorted."""
    merged: dict[str, set[str]] = {}
    for listing in listings:
        for topic, channels in listing.idle.items():
            merged.setdefault(topic, set()).update(channels)
    return {topic: sorted(channels) for topic, channels in merged.items()}
