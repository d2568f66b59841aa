"""Reads of the collector's data and of the settings changed at run time."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence

from django.conf import settings

from nsqcluster import Cluster
from nsqcluster.cluster import STEP_S
from nsqplatform.cluster import store
from nsqplatform.cluster.history import records
from nsqplatform.cluster.history.keeping import Kept
from nsqplatform.cluster.history.past import Past
from nsqplatform.cluster.node_client import request_timeout_s, tls
from nsqplatform.cluster.snapshots.snapshot import Snapshot
from nsqwire.figures import Scope

FRESH_MS = 10_000


def snapshot() -> Snapshot | None:
    """The newest snapshot; None before the first."""
    with store.connect() as redis:
        kept = redis.get(store.SNAPSHOT)
    assert kept is None or isinstance(kept, bytes)
    return Snapshot.from_json(kept) if kept else None


def damaged_files() -> store.DamagedFiles | None:
    """The damaged files of the archive; None if no collector has counted them."""
    with store.connect() as redis:
        kept = redis.get(store.DAMAGED_FILES)
    assert kept is None or isinstance(kept, bytes)
    return store.damaged_files_of(kept)


def registries() -> dict[str, str | None]:
    """The last error of each registry by its address, None if it answered; empty before the first snapshot."""
    with store.connect() as redis:
        kept = redis.get(store.STATE)
    assert kept is None or isinstance(kept, bytes)
    return dict(json.loads(kept)["registries"]) if kept else {}


def kept_history() -> Kept:
    """Where the files of the history are, and how long they are kept."""
    return Kept(settings.NSQ_HISTORY, settings.NSQ_HISTORY_DAYS)


def past(scope: Scope, name: str, metrics: Sequence[str]) -> Past:
    """One series over time, as of now. A channel's ``name`` is ``topic/channel``, the cluster's is empty."""
    with store.connect() as redis:
        ring = redis.get(records.key_of(scope, name))
    assert ring is None or isinstance(ring, bytes)
    return Past(kept_history(), scope, name, ring or b"", int(time.time()), metrics)


def cluster() -> Cluster:
    """The configured addresses, and the nodes that had each topic recently. An old snapshot is ignored."""
    with store.connect() as redis:
        kept, addresses, changed = redis.mget(store.SNAPSHOT, store.ADDRESSES, store.LOOKUPD)
    latest = Snapshot.from_json(kept) if kept else None
    seen: dict[str, list[str]] = {}
    if latest is not None and time.time() * 1000 - latest.taken_at <= FRESH_MS:
        shares = zip(latest.topics, latest.topics.placements, strict=True)
        seen = {name: [node for node, _ in held] for name, held in shares}
    return Cluster(
        lookupd=store.lookupd_in_force(changed),
        nsqd=settings.NSQD_HTTP_ADDRESSES,
        seen=seen,
        addresses=json.loads(addresses) if addresses else {},
        step_s=min(STEP_S, request_timeout_s()),
        tls=tls(),
    )


def addresses() -> Mapping[str, str]:
    """The ``host:port`` of each node's HTTP server, by the node's id."""
    with store.connect() as redis:
        kept = redis.get(store.ADDRESSES)
    assert kept is None or isinstance(kept, bytes)
    return dict(json.loads(kept)) if kept else {}


def nodes_down() -> frozenset[str]:
    """Ids of the nodes that did not answer the collector's last poll; empty without a snapshot."""
    seen = snapshot()
    return frozenset(row["id"] for row in seen.nodes.rows if row["state"] == "down") if seen else frozenset()


def tcp_addresses() -> list[str]:
    """The TCP addresses of the nodes that are up, with the hosts under which the platform reaches them."""
    seen = snapshot()
    if seen is None:
        return []
    known = addresses()
    return [
        f"{known.get(row['id'], row['id']).rpartition(':')[0]}:{row['tcp_port']}"
        for row in seen.nodes.rows
        if row["state"] == "up"
    ]
