"""The cluster to read and act on: addresses of its registries and nodes."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from nsqcluster.client import Client

Target = Literal["nsqd", "nsqlookupd"]
"""Kind of server."""

STEP_S: Final = 3.0


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Addresses of registries and nodes, ``host:port`` or URLs, and recent knowledge about the nodes.

    A node's id is its ``broadcast_address:http_port``. For a node in ``nsqd`` that ``addresses`` does not contain, its
    address is used as the id.
    """

    lookupd: Sequence[str] = ()
    nsqd: Sequence[str] = ()
    seen: Mapping[str, Iterable[str]] = field(default_factory=dict)
    """Topic -> ids of nodes that had it recently. Actions go to these too, not only to the nodes that discovery finds,
    because no registry lists a crashed node."""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """Node id -> address of its HTTP port, if that differs from the id."""
    step_s: float = STEP_S
    """Longest duration of one step of an action, in seconds."""
    tls: ssl.SSLContext | None = None
    """For nodes that require HTTPS; by default the system's certificate authorities are trusted."""

    def address(self, node: str) -> str:
        """Return the address of the HTTP port of the node with this id."""
        return self.addresses.get(node, node)

    @property
    def given(self) -> dict[str, str]:
        """Node id -> address, for the nodes in ``nsqd``."""
        known = {address: name for name, address in self.addresses.items()}
        return {known.get(address, address): address for address in self.nsqd}

    def client(self, *, concurrency: int | None = None, server_concurrency: int | None = None) -> Client:
        """Return a client for these servers, with a timeout of ``step_s`` for requests without their own."""
        return Client(
            tls=self.tls, timeout_s=self.step_s, concurrency=concurrency, server_concurrency=server_concurrency
        )
