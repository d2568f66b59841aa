"""A broker: its id, and its address for HTTP requests."""

from __future__ import annotations

from dataclasses import dataclass

from nsqcluster import Producer


@dataclass(frozen=True, kw_only=True)
class Node:
    """``address`` is the ``host:port`` for HTTP requests; ``id`` is the node's own name."""

    id: str
    address: str
    hostname: str = ""
    broadcast_address: str = ""
    tcp_port: int = 0
    http_port: int = 0
    version: str = ""


def node_of(producer: Producer, address: str | None = None) -> Node:
    """The node of a registry's entry. ``address``: where to request its HTTP API, if not at the address that it
    reports."""
    return Node(
        id=producer.http_address,
        address=address or producer.http_address,
        hostname=producer.hostname,
        broadcast_address=producer.broadcast_address,
        tcp_port=producer.tcp_port,
        http_port=producer.http_port,
        version=producer.version,
    )
