"""The events of sampled messages that a node still has. Go's nsqd has none."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from nsqcluster.client import Client
from nsqcluster.stats import Count, Int64

PAGE: Final = 2000
"""Events in one response at most."""


class LifeEvent(Struct, gc=False):
    """One event. ``at`` is in Unix nanoseconds; texts are empty if there is nothing to say."""

    number: Count
    topic: str
    channel: str | None
    id: str
    event: str
    at: Int64
    attempts: Count
    reason: str
    delay_ms: Count | None
    client_id: str
    client_address: str


class LifePage(Struct):
    """Some events of one process of a node. ``next`` is the number of the first event of the following page, ``end``
    that of the next event to happen. ``lost`` events before ``next`` were overwritten before they were read."""

    boot_id: str
    end: Count
    next: Count
    lost: Count
    events: list[LifeEvent]


async def read_lives(client: Client, address: str, start: int, *, timeout_s: float | None = None) -> LifePage:
    """Return the events of a node from number ``start`` on. Raises RequestFailed."""
    return await client.get(address, "/lives", LifePage, {"from": start, "limit": PAGE}, timeout_s=timeout_s)
