"""The nodes of a channel whose messages are to be read, with the number of messages or the reason why not."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from typing_extensions import TypedDict

from nsqcluster import Client, Cluster, NotInCluster, Refused, RequestFailed
from nsqcluster.messages import scan
from nsqplatform.cluster import node_client
from nsqplatform.cluster.actions.topic_nodes import node_addresses

NOT_OFFERED = "this nsqd cannot list the messages of a channel; brokerd can, Go's nsqd cannot"


class NodePart(TypedDict):
    """``total``: the node's number of messages; null if unknown, for the reason in ``error``."""

    node: str
    total: int | None
    error: str


@dataclass(frozen=True)
class ScannedChannel:
    """A channel, and the addresses and message counts of its nodes."""

    topic: str
    channel: str
    addresses: Mapping[str, str]
    nodes: tuple[NodePart, ...]

    def at(self, node: str) -> tuple[str, str, str]:
        """The channel on a node: address, topic and channel, the parameters of nsqcluster.messages."""
        return self.addresses[node], self.topic, self.channel

    @property
    def total(self) -> int:
        """The messages of the nodes that can be read."""
        return sum(part["total"] or 0 for part in self.nodes)


def reason_of(error: RequestFailed) -> str:
    """Why a node's messages cannot be read; empty if the node does not have the channel."""
    if isinstance(error, Refused) and error.is_unknown_name:
        return ""
    return NOT_OFFERED if isinstance(error, Refused) and error.is_unknown_request else error.reason


async def count_messages(cluster: Cluster, topic: str, channel: str) -> ScannedChannel:
    """Count the channel's messages on each node. Raises NotInCluster and ClusterUnreachable."""
    addresses = await node_addresses(cluster, topic)
    async with node_client.client() as http:
        found = await asyncio.gather(*(_count(http, *node, topic, channel) for node in sorted(addresses.items())))
    nodes = tuple(part for part in found if part is not None)
    if not nodes:
        raise NotInCluster(f"no node of the cluster has channel {channel} of topic {topic}")
    return ScannedChannel(topic, channel, addresses, nodes)


async def _count(http: Client, node: str, address: str, topic: str, channel: str) -> NodePart | None:
    try:
        page = await scan(http, address, topic, channel, limit=0)
    except RequestFailed as error:
        reason = reason_of(error)
        return NodePart(node=node, total=None, error=reason) if reason else None
    return NodePart(node=node, total=page.total, error="")
