"""Reading what the collector and the operators left behind."""

from __future__ import annotations

import json
import time

from django.conf import settings

from aionsq.cluster import STEP_S, Cluster
from cluster import store
from cluster.picture import Picture
from cluster.upstream import request_timeout_s

FRESH_MS = 10_000


def picture() -> Picture | None:
    """The newest; None before the collector's first."""
    with store.connect() as redis:
        kept = redis.get(store.PICTURE)
    assert kept is None or isinstance(kept, bytes)
    return Picture.kept(kept) if kept else None


def cluster() -> Cluster:
    """What an action may start from. A picture that no collector keeps fresh is left out."""
    with store.connect() as redis:
        kept, addresses, changed = redis.mget(store.PICTURE, store.ADDRESSES, store.LOOKUPD)
    seen = Picture.kept(kept) if kept else None
    if seen is not None and time.time() * 1000 - seen.taken_at > FRESH_MS:
        seen = None
    return Cluster(
        lookupd=store.lookupd_in_force(changed),
        nsqd=settings.NSQD_HTTP_ADDRESSES,
        seen=None
        if seen is None
        else {name: [node for node, _ in held] for name, held in zip(seen.topics, seen.topics.held_by, strict=True)},
        addresses=json.loads(addresses) if addresses else {},
        step_s=min(STEP_S, request_timeout_s()),
    )


def nodes_down() -> frozenset[str]:
    """Ids of the nodes that did not answer the collector last; of none where there is no picture."""
    seen = picture()
    return frozenset(row["id"] for row in seen.nodes.rows if row["state"] == "down") if seen else frozenset()


def tcp_addresses() -> list[str]:
    """Where clients reach the nodes that are up, as the platform itself does: by the host it was told of."""
    seen = picture()
    if seen is None:
        return []
    addresses = cluster().addresses
    return [
        f"{addresses.get(row['id'], row['id']).rpartition(':')[0]}:{row['tcp_port']}"
        for row in seen.nodes.rows
        if row["state"] == "up"
    ]
