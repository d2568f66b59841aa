"""Listing: everything that one registry lists, and the merge of several registries' listings."""

from __future__ import annotations

import asyncio
import math
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
"""Number of known topics without a node whose channels are read again at a time, at least."""
CALLS = 15
"""Number of calls after which all known topics have been read again."""


async def read_listing(
    client: Client, registry: str, timeout_s: float | None = None, last: Listing | None = None
) -> Listing:
    """Read one registry. Raises RequestFailed if any of the requests fails.

    ``last`` is the last listing. Of its topics that still have no node, those read longest ago are read again, REREAD
    of them or, of more, one in CALLS; the others keep their channels until a later call. Each needs a request, and a
    registry may list thousands of topics that were deleted from their nodes.
    """
    nodes, topics = await asyncio.gather(
        reads.nodes(client, registry, timeout_s), reads.topics(client, registry, timeout_s)
    )
    idle = set(topics_without_nodes(nodes, topics))
    known = {topic: names for topic, names in last.idle.items() if topic in idle} if last else {}
    count = max(REREAD, math.ceil(len(known) / CALLS))
    read = [*islice(known, count), *sorted(idle - known.keys())]
    channels = await asyncio.gather(*(reads.channels(client, registry, topic, timeout_s) for topic in read))
    kept = dict(islice(known.items(), count, None))
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
