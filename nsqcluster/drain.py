"""Draining a node: it runs empty, and then its process ends."""

from __future__ import annotations

import json
from typing import Final

from nsqcluster.cluster import Cluster
from nsqcluster.posts import post_everywhere
from nsqcluster.results import Result

NO_DRAIN: Final = "this nsqd cannot be drained (Go's)"


async def drain(cluster: Cluster, node: str) -> list[Result]:
    """Drain the node with this id. The detail of its result has the number of messages that are left.

    A node that drains is in no registry, so it is not looked for.
    """
    return await _post(cluster, node, "/drain")


async def cancel_drain(cluster: Cluster, node: str) -> list[Result]:
    """Let the node register and take publishes again. It fails if the node does not drain."""
    return await _post(cluster, node, "/drain/cancel")


async def _post(cluster: Cluster, node: str, verb: str) -> list[Result]:
    async with cluster.client() as http:
        return await post_everywhere(
            http,
            "nsqd",
            {node: cluster.address(node)},
            verb,
            {},
            cluster.step_s,
            describe=_left,
            unknown=NO_DRAIN,
        )


def _left(answer: bytearray) -> str:
    state = json.loads(answer)["drain"]
    if state is None:
        return ""
    messages = state["messages"]
    return f"{messages:,} {'message is' if messages == 1 else 'messages are'} left"
