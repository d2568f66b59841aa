"""Reading what the collector and the operators left behind."""

from __future__ import annotations

import json
import time

import orjson
from django.conf import settings

from aionsq.cluster import STEP_S, Cluster
from cluster import store
from cluster.rows import Snapshot
from cluster.upstream import request_timeout_s

FRESH_MS = 10_000


def snapshot_json() -> bytes | None:
    """The newest picture as it stands in Redis; None before the collector's first."""
    with store.connect() as redis:
        kept = redis.get(store.SNAPSHOT)
    assert kept is None or isinstance(kept, bytes)
    return kept


def cluster() -> Cluster:
    """What an action may start from. A picture that no collector keeps fresh is left out."""
    with store.connect() as redis:
        kept, addresses, changed = redis.mget(store.SNAPSHOT, store.ADDRESSES, store.LOOKUPD)
    picture: Snapshot | None = orjson.loads(kept) if kept else None
    if picture is not None and time.time() * 1000 - picture["taken_at"] > FRESH_MS:
        picture = None
    return Cluster(
        lookupd=store.lookupd_in_force(changed),
        nsqd=settings.NSQD_HTTP_ADDRESSES,
        seen=None
        if picture is None
        else {row["name"]: [each["node"] for each in row["nodes"]] for row in picture["topics"]},
        addresses=json.loads(addresses) if addresses else {},
        step_s=min(STEP_S, request_timeout_s()),
    )


def nodes_down() -> frozenset[str]:
    """Ids of the nodes that did not answer the collector last; of none where there is no picture."""
    kept = snapshot_json()
    picture: Snapshot | None = json.loads(kept) if kept else None
    return frozenset(row["id"] for row in picture["nodes"] if row["state"] == "down") if picture else frozenset()


def tcp_addresses() -> list[str]:
    """Where clients reach the nodes that are up, as the platform itself does: by the host it was told of."""
    kept = snapshot_json()
    picture: Snapshot | None = json.loads(kept) if kept else None
    if picture is None:
        return []
    addresses = cluster().addresses
    return [
        f"{addresses.get(row['id'], row['id']).rpartition(':')[0]}:{row['tcp_port']}"
        for row in picture["nodes"]
        if row["state"] == "up"
    ]
