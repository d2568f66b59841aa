"""The cluster to read and act on: addresses of its registries and nodes."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from nsqcluster.client import Client

Target = Literal["nsqd", "nsqlookupd"]
"""Kind of a server."""

STEP_S: Final = 3.0


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Given addresses, ``host:port`` or URLs, and recent knowledge about the nodes.

    A node's id is its ``broadcast_address:http_port``; a node that was given by its address is called by that.
    """

    lookupd: Sequence[str] = ()
    nsqd: Sequence[str] = ()
    seen: Mapping[str, Iterable[str]] = field(default_factory=dict)
    """Topic to the ids of nodes that had it recently. Actions go to them as well as to the nodes that discovery finds:
    a crashed node is in no registry's response."""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """Node id to the address of its HTTP port, where that differs from the id."""
    step_s: float = STEP_S
    """Longest duration of one step of an action, in seconds."""
    tls: ssl.SSLContext | None = None
    """For nodes that require HTTPS; by default the system's certificate authorities are trusted."""

    def address(self, node: str) -> str:
        """Return the address of the HTTP port of a node, by its id."""
        return self.addresses.get(node, node)

    @property
    def given(self) -> dict[str, str]:
        """Node id to address of the given nodes."""
        known = {address: name for name, address in self.addresses.items()}
        return {known.get(address, address): address for address in self.nsqd}

    def client(self, *, concurrency: int | None = None) -> Client:
        """Return a client for these servers; each request takes at most ``step_s`` unless it says otherwise."""
        return Client(tls=self.tls, timeout_s=self.step_s, concurrency=concurrency)
