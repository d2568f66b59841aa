"""Who registered: an nsqd's connection, and its place in one registration."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from nsqwire.durations import nanoseconds


@dataclass(slots=True, kw_only=True)
class Peer:
    """An nsqd as its IDENTIFY described it, known by its connection: ``id`` is the connection's ``ip:port``.

    Two connections that announce the same address are two peers. ``last_update_ns`` is in unix nanoseconds.
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

    @property
    def node(self) -> str:
        """``broadcast_address:http_port``, the name by which HTTP callers mean this nsqd."""
        return f"{self.broadcast_address}:{self.http_port}"

    def is_active(self, now_ns: int, inactive_timeout: timedelta) -> bool:
        """Whether it has identified or pinged recently; registering does not count."""
        return now_ns - self.last_update_ns <= nanoseconds(inactive_timeout)


@dataclass(slots=True)
class Producer:
    """A peer's entry in one registration, which can be marked for removal there without touching its others."""

    peer: Peer
    tombstoned_at_ns: int | None = None

    def is_tombstoned(self, now_ns: int, lifetime: timedelta) -> bool:
        """Whether the mark still hides it."""
        return self.tombstoned_at_ns is not None and now_ns - self.tombstoned_at_ns < nanoseconds(lifetime)
