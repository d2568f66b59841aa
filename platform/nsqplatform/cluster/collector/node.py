"""A broker as the collector and the actions know it."""

from __future__ import annotations

from dataclasses import dataclass

from nsqcluster import Producer


@dataclass(frozen=True, kw_only=True)
class Node:
    """``address`` is the ``host:port`` to send HTTP to; ``id`` is the name by which the node calls itself."""

    id: str
    address: str
    hostname: str = ""
    broadcast_address: str = ""
    tcp_port: int = 0
    http_port: int = 0
    version: str = ""


def node_of(producer: Producer, address: str | None = None) -> Node:
    """``address``: where the node's HTTP port is, if elsewhere than it says."""
    return Node(
        id=producer.http_address,
        address=address or producer.http_address,
        hostname=producer.hostname,
        broadcast_address=producer.broadcast_address,
        tcp_port=producer.tcp_port,
        http_port=producer.http_port,
        version=producer.version,
    )
