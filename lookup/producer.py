"""Who registered: an nsqd, by its connection."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from nsqwire.http import encode

if TYPE_CHECKING:
    from lookup.entry import Entry


@dataclass(kw_only=True, eq=False)
class Peer:
    """An nsqd as its IDENTIFY described it, known by its connection: ``id`` is the connection's ``ip:port``.

    Two connections that announce the same address are two peers. ``last_update_ns``, in unix nanoseconds, is set by
    IDENTIFY and PING alone; the rest does not change.
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
    """True after its connection ended. It is then in no response, although some entries still hold it."""
    entries: set[Entry] = field(default_factory=set, repr=False)
    """Where it is entered; the registry's to change."""
    topics_wire: list[bytes] | None = field(default=None, repr=False)
    """Its topics as they were last written for ``/nodes``; None once they have changed."""
    revision: int = field(default=0, repr=False)
    """Number of changes of its entries and tombstones."""

    def changed(self) -> None:
        """Note a change of its entries or tombstones."""
        self.revision += 1
        self.topics_wire = None

    @property
    def node(self) -> str:
        """``broadcast_address:http_port``, the name by which HTTP callers mean this nsqd."""
        return f"{self.broadcast_address}:{self.http_port}"

    @cached_property
    def order(self) -> tuple[str, int, str]:
        """What lists of peers are sorted by."""
        return (self.broadcast_address, self.tcp_port, self.id)

    @cached_property
    def wire(self) -> bytes:
        """The peer as an object of ``/lookup``. Written once: a thousand of them are one answer."""
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
