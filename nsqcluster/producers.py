"""Responses of nsqlookupd, and nsqd's ``/info``: nodes, and names of topics and channels."""

from __future__ import annotations

from msgspec import Struct, field

from nsqcluster.addresses import host_port


class Producer(Struct, kw_only=True):
    """An nsqd as ``/nodes`` and ``/lookup`` of nsqlookupd describe it."""

    broadcast_address: str
    tcp_port: int
    http_port: int
    remote_address: str = ""
    hostname: str = ""
    version: str = ""
    topology_zone: str = ""
    topology_region: str = ""
    tombstones_or_null: list[bool] | None = field(name="tombstones", default=None)
    topics_or_null: list[str] | None = field(name="topics", default=None)

    @property
    def topics(self) -> list[str]:
        """Topics of the node. Only ``/nodes`` contains them."""
        return self.topics_or_null or []

    @property
    def tombstones(self) -> dict[str, bool]:
        """Each topic, and whether it is tombstoned on the node. Older nsqlookupds do not send tombstones."""
        flags = self.tombstones_or_null or []
        return dict(zip(self.topics, [*flags, *[False] * len(self.topics)], strict=False))

    @property
    def http_address(self) -> str:
        """``host:port``; the id of the node."""
        return host_port(self.broadcast_address, self.http_port)

    @property
    def tcp_address(self) -> str:
        """``host:port``."""
        return host_port(self.broadcast_address, self.tcp_port)


class Producers(Struct, kw_only=True):
    """Response to ``/nodes`` and ``/lookup``. Only ``/lookup`` contains ``channels``."""

    producers_or_null: list[Producer] | None = field(name="producers")
    channels_or_null: list[str] | None = field(name="channels", default=None)

    @property
    def producers(self) -> list[Producer]:
        """The nodes; empty if the registry answered ``null``."""
        return self.producers_or_null or []

    @property
    def channels(self) -> list[str]:
        """The channels of the topic; empty if the registry answered ``null``."""
        return self.channels_or_null or []


class TopicNames(Struct, kw_only=True):
    """Response to ``/topics``."""

    topics_or_null: list[str] | None = field(name="topics")

    @property
    def names(self) -> list[str]:
        """The topics; empty if the registry answered ``null``."""
        return self.topics_or_null or []


class ChannelNames(Struct, kw_only=True):
    """Response to ``/channels``."""

    channels_or_null: list[str] | None = field(name="channels")

    @property
    def names(self) -> list[str]:
        """The channels; empty if the registry answered ``null``."""
        return self.channels_or_null or []


class NodeInfo(Struct, kw_only=True):
    """Response of nsqd to ``/info``. Older versions omit keys. Durations are in ns, ``start_time`` in Unix seconds."""

    version: str = ""
    broadcast_address: str = ""
    hostname: str = ""
    http_port: int = 0
    tcp_port: int = 0
    start_time: int = 0
    max_heartbeat_interval: int = 0
    max_output_buffer_size: int = 0
    max_output_buffer_timeout: int = 0
    max_deflate_level: int = 0
    topology_zone: str = ""
    topology_region: str = ""

    def producer(self, address: str) -> Producer:
        """Describe the node as nsqlookupd does; ``address`` supplies the host and port that ``/info`` omits."""
        host, _, port = address.rpartition(":")
        return Producer(
            broadcast_address=self.broadcast_address or host.strip("[]"),
            hostname=self.hostname or host.strip("[]"),
            tcp_port=self.tcp_port,
            http_port=self.http_port or (int(port) if port.isdecimal() else 0),
            version=self.version,
            topology_zone=self.topology_zone,
            topology_region=self.topology_region,
        )
