"""Topology-aware consumption, nsqd's experiment: consumers near the broker are served before those further off."""

from __future__ import annotations

import enum
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from brokerd.client import Client
    from brokerd.settings import BrokerSettings

EXPERIMENT = "topology-aware-consumption"


class Locality(enum.IntEnum):
    """How near a consumer is; the nearer, the higher."""

    GLOBAL = 0
    REGION = 1
    ZONE = 2


class Topology(NamedTuple):
    """Where the broker is, and whether that matters."""

    enabled: bool
    region: str
    zone: str

    @classmethod
    def of(cls, settings: BrokerSettings) -> Topology:
        """What the settings say."""
        return cls(EXPERIMENT in settings.enable_experiment, settings.topology_region, settings.topology_zone)

    def locality(self, client: Client) -> Locality:
        """How near ``client`` is, as its deliveries are counted. Two sides that name no zone share one, as in nsqd."""
        if not self.enabled:
            return Locality.GLOBAL
        if client.topology_zone == self.zone:
            return Locality.ZONE
        if client.topology_region == self.region:
            return Locality.REGION
        return Locality.GLOBAL

    def preference(self, client: Client) -> Locality:
        """How near ``client`` is, as it is served: only a zone or region that was named is preferred."""
        if self.enabled and self.zone and client.topology_zone == self.zone:
            return Locality.ZONE
        if self.enabled and self.region and client.topology_region == self.region:
            return Locality.REGION
        return Locality.GLOBAL

    def take_next(self, ready: deque[Client]) -> tuple[Client, int]:
        """Take the client whose turn it is, of those nearest to the broker; and say how many as near still wait."""
        if not self.enabled:
            return ready.popleft(), len(ready)
        nearest = max(client.preference for client in ready)
        near = [client for client in ready if client.preference is nearest]
        ready.remove(near[0])
        return near[0], len(near) - 1
