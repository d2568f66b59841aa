"""Topology-aware consumption, nsqd's experiment: consumers near the broker are served first."""

from __future__ import annotations

import enum
import logging
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from brokerd.settings import BrokerSettings

logger = logging.getLogger("brokerd")

EXPERIMENT = "topology-aware-consumption"


class Locality(enum.IntEnum):
    """How near a consumer is to the broker; a nearer one is higher."""

    GLOBAL = 0
    REGION = 1
    ZONE = 2


class Placed(Protocol):
    """A consumer with a place in the order of deliveries."""

    @property
    def preference(self) -> Locality:
        """How near it is to the broker."""
        ...


Consumer = TypeVar("Consumer", bound=Placed)


class Topology(NamedTuple):
    """The broker's region and zone, and whether the experiment is enabled."""

    enabled: bool
    region: str
    zone: str

    @classmethod
    def of(cls, settings: BrokerSettings) -> Topology:
        """The topology that ``settings`` configure. Unknown experiments are logged and ignored, as in nsqd."""
        for name in settings.enable_experiment:
            if name != EXPERIMENT:
                logger.warning("--enable-experiment: %r is not an experiment and is ignored", name)
        return cls(EXPERIMENT in settings.enable_experiment, settings.topology_region, settings.topology_zone)

    def locality(self, region: str, zone: str) -> Locality:
        """How near a consumer is, for counting deliveries. Two empty zones are the same zone, as in nsqd."""
        if not self.enabled:
            return Locality.GLOBAL
        if zone == self.zone:
            return Locality.ZONE
        if region == self.region:
            return Locality.REGION
        return Locality.GLOBAL

    def preference(self, region: str, zone: str) -> Locality:
        """How near a consumer is, for the order of deliveries. An empty zone or region is never preferred."""
        if self.enabled and self.zone and zone == self.zone:
            return Locality.ZONE
        if self.enabled and self.region and region == self.region:
            return Locality.REGION
        return Locality.GLOBAL

    def take_next(self, ready: deque[Consumer]) -> tuple[Consumer, int]:
        """Remove and return the next consumer to serve, one of the nearest, and how many equally near ones are left."""
        if not self.enabled:
            return ready.popleft(), len(ready)
        nearest = max(consumer.preference for consumer in ready)
        near = [consumer for consumer in ready if consumer.preference is nearest]
        ready.remove(near[0])
        return near[0], len(near) - 1
