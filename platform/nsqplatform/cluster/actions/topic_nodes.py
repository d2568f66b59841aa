"""Nodes that have a topic, and the addresses of their HTTP ports."""

from __future__ import annotations

from collections.abc import Mapping

from nsqcluster import Cluster, NotInCluster
from nsqcluster.targets import Targets, find


async def targets_of(cluster: Cluster, topic: str) -> Targets:
    """Find the nodes that have or may have the topic. Raises NotInCluster and ClusterUnreachable."""
    async with cluster.client() as http:
        return await find(http, cluster, topic)


async def node_addresses(cluster: Cluster, topic: str) -> dict[str, str]:
    """The addresses of the nodes that have or may have the topic, by node id. Raises the same as ``targets_of``."""
    return (await targets_of(cluster, topic)).nodes


def address_of_node(cluster: Cluster, found: Mapping[str, str], node: str) -> str:
    """Return the address of a node by its id.

    Raises NotInCluster for an unknown node: the platform sends no requests to arbitrary addresses from a browser.
    """
    if node in found:
        return found[node]
    if node in cluster.addresses:
        return cluster.addresses[node]
    if node in cluster.nsqd:
        return node
    raise NotInCluster(f"there is no node {node}")


class NodeFailed(Exception):
    """A node could not execute a request; the text has the reason."""
