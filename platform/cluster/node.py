"""A broker as the collector and the actions know it."""

from __future__ import annotations

from dataclasses import dataclass


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


def address_of(host: str, port: int) -> str:
    """``host:port``, IPv6 in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
