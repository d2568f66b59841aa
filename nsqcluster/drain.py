"""Draining a node: it runs empty, and then its process ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from nsqcluster.cluster import Cluster
from nsqcluster.decoding import decode
from nsqcluster.errors import Malformed
from nsqcluster.posts import post_everywhere
from nsqcluster.results import Result
from nsqcluster.stats import Drain
from nsqwire.counted import counted
from nsqwire.units import Seconds

NO_DRAIN: Final = "a Go node cannot drain"


class _Drained(Struct):
    drain: Drain | None


async def drain(
    cluster: Cluster, node: str, *, timeout_s: Seconds | None = None, takes_publishes: bool | None = None
) -> list[Result]:
    """Drain the node with this id, or change the parameters of its drain. The detail of its result has the number of
    messages that are left.

    ``timeout_s`` 0: its process ends only when it is empty. None: as the node's own settings say.
    A node that drains is in no registry, so it is not looked for.
    """
    params = {}
    if timeout_s is not None:
        params["timeout"] = f"{round(timeout_s * 1e6)}us"
    if takes_publishes is not None:
        params["publishes"] = "true" if takes_publishes else "false"
    return await _post(cluster, node, "/drain", params)


async def cancel_drain(cluster: Cluster, node: str) -> list[Result]:
    """Let the node register and take publishes again. It fails if the node does not drain."""
    return await _post(cluster, node, "/drain/cancel", {})


async def _post(cluster: Cluster, node: str, verb: str, params: Mapping[str, str]) -> list[Result]:
    async with cluster.client() as http:
        return await post_everywhere(
            http,
            "nsqd",
            {node: cluster.address(node)},
            verb,
            params,
            cluster.step_s,
            describe=_left,
            unknown=NO_DRAIN,
        )


def _left(answer: bytearray) -> str:
    """Describe a node's response, for the result's detail."""
    try:
        state = decode(answer, _Drained, "/drain").drain
    except Malformed:
        return "it did not say how many messages are left"
    if state is None:
        return ""
    return f"{counted(state.messages, 'message is', 'messages are')} left"
