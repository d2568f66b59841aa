"""Which nodes hold a topic and where they are reached, and asking them in the words of an operator."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import httpx

from aionsq.cluster import Cluster, NotInCluster, Targets, client, find
from cluster.directory import reason_of


async def targets_of(cluster: Cluster, topic: str) -> Targets:
    """Ask the cluster for the nodes that have or may have the topic. Raises NotInCluster and ClusterUnreachable."""
    async with client(cluster) as http:
        return await find(http, cluster, topic)


async def holders(cluster: Cluster, topic: str) -> dict[str, str]:
    """Node id to address of every node that has the topic, or may have it. Raises as ``targets_of``."""
    return (await targets_of(cluster, topic)).nodes


def address_of_node(cluster: Cluster, found: Mapping[str, str], node: str) -> str:
    """Where a node that was named is reached. Raises NotInCluster for one that nobody has told us of: the platform asks
    no address just because a browser names it."""
    if node in found:
        return found[node]
    if node in cluster.addresses:
        return cluster.addresses[node]
    if node in cluster.nsqd:
        return node
    raise NotInCluster(f"there is no node {node}")


class NodeFailed(Exception):
    """A node did not do what it was asked. ``code`` is its own word, such as MSG_TOO_BIG; empty if it said none."""

    def __init__(self, text: str, code: str = "", *, never_sent: bool = False) -> None:
        super().__init__(text)
        self.code = code
        self.never_sent = never_sent
        """Whether the request certainly did not reach it."""


async def asked(
    http: httpx.AsyncClient,
    method: str,
    address: str,
    path: str,
    params: Mapping[str, str | int],
    content: bytes | None = None,
) -> Any:
    """A node's answer: its JSON, or None where it answers with something else. Raises NodeFailed."""
    try:
        response = await http.request(method, f"http://{address}{path}", params=dict(params), content=content)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        never_sent = isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.InvalidURL))
        raise NodeFailed(reason_of(error), never_sent=never_sent) from None
    try:
        body = json.loads(response.content)
    except ValueError:
        body = None
    if response.status_code == 200:
        return body
    code = str(body.get("message", "")) if isinstance(body, dict) else ""
    raise NodeFailed(f"answers {response.status_code} {code}".strip(), code)
