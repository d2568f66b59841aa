"""A connected nsqd."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from nsqwire.gojson import encode

if TYPE_CHECKING:
    from nsqlookup.producer_set import ProducerSet


@dataclass(kw_only=True, eq=False)
class Peer:
    """One connection of an nsqd, with the fields of its IDENTIFY. ``id`` is the ``ip:port`` of the connection.

    Two connections that announce the same address are two peers. ``last_update_ns``, in Unix nanoseconds, is the time
    of the last IDENTIFY or PING. The fields of IDENTIFY do not change.
    """

    id: str
    hostname: str
    broadcast_address: str
    tcp_port: int
    http_port: int
    version: str
    topology_zone: str = ""
    topology_region: str = ""
    last_update_ns: int = 0
    is_gone: bool = False
    """True after its connection ended. It is then in no response, even while some producer sets still contain it."""
    producer_sets: set[ProducerSet] = field(default_factory=set, repr=False)
    """The producer sets that contain it. Only the registry changes this."""
    topics_wire: list[bytes] | None = field(default=None, repr=False)
    """Its topics as last encoded for ``/nodes``; None if they have to be encoded again."""
    revision: int = field(default=0, repr=False)
    """Number of changes of its registrations and tombstones."""

    def changed(self) -> None:
        """Record a change of its registrations or tombstones."""
        self.revision += 1
        self.topics_wire = None

    @property
    def node(self) -> str:
        """``broadcast_address:http_port``, which identifies this nsqd in HTTP requests."""
        return f"{self.broadcast_address}:{self.http_port}"

    @cached_property
    def order(self) -> tuple[str, int, str]:
        """The sort key of lists of peers."""
        return (self.broadcast_address, self.tcp_port, self.id)

    @cached_property
    def wire(self) -> bytes:
        """The peer as an object of ``/lookup``. Encoded once, because a response may contain a thousand peers."""
        return encode(
            {
                "remote_address": self.id,
                "hostname": self.hostname,
                "broadcast_address": self.broadcast_address,
                "tcp_port": self.tcp_port,
                "http_port": self.http_port,
                "version": self.version,
                "topology_zone": self.topology_zone,
                "topology_region": self.topology_region,
            }
        )
