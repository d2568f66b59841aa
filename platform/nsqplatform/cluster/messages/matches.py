"""Finds the ids of all messages of a channel that match a search, to count them or to act on them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import NamedTuple

from asgiref.sync import async_to_sync

from nsqplatform.cluster.actions.topic_nodes import NodeFailed
from nsqplatform.cluster.messages.scan import NodePart
from nsqplatform.cluster.messages.search import TIME_LIMIT_S, Search

MAX_MATCHES = 1_000_000


class TooMany(NodeFailed):
    """The messages could not be found within the limits of number and time."""


class Matches(NamedTuple):
    """``ids`` by node, oldest first. ``nodes`` has the errors of nodes that could not be searched."""

    ids: Mapping[str, Sequence[str]]
    nodes: list[NodePart]
    total: int
    withheld: int

    @property
    def matching(self) -> int:
        return sum(map(len, self.ids.values()))


def matches(search: Search, *, as_of: int) -> Matches:
    """Find the messages that match and were published until ``as_of``, Unix milliseconds.

    Raises PermissionDenied; TooMany; NodeFailed if no node can be searched.
    """
    return async_to_sync(_matches)(search, as_of * 1_000_000 + 999_999)


async def _matches(search: Search, until_ns: int) -> Matches:
    deadline = time.monotonic() + TIME_LIMIT_S
    ids: dict[str, list[str]] = {}
    count = 0
    async with aclosing(search.pages()) as pages:
        async for page in pages:
            for found in page:
                if found.message.timestamp <= until_ns:
                    ids.setdefault(found.node, []).append(found.message.id)
                    count += 1
            if count > MAX_MATCHES:
                raise TooMany(f"more than {MAX_MATCHES:,} messages match; narrow the criteria")
            if time.monotonic() > deadline:
                raise TooMany(f"the search took longer than {TIME_LIMIT_S:g} s; narrow the criteria")
    nodes = list(search.nodes.values())
    if all(part["error"] for part in nodes):
        raise NodeFailed("; ".join(f"node {part['node']}: {part['error']}" for part in nodes))
    return Matches(ids, nodes, search.counts["total"], search.withheld)
