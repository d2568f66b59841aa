"""Reads of the collector's data and of the settings changed at run time."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence

from django.conf import settings

from nsqcluster import Cluster
from nsqcluster.cluster import STEP_S
from nsqplatform.cluster import store
from nsqplatform.cluster.history import records
from nsqplatform.cluster.history.rollup import HistoryFolder
from nsqplatform.cluster.history.series import Series
from nsqplatform.cluster.node_client import request_timeout_s, tls
from nsqplatform.cluster.snapshots.snapshot import Snapshot
from nsqplatform.clusters import current
from nsqplatform.clusters.current import PerCluster
from nsqwire.figures import Scope

FRESH_MS = 10_000


class NewestSnapshot:
    """The stored snapshot, parsed once for all requests of this process: of a large cluster, that takes 0.15 s."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._head = b""
        self._snapshot: Snapshot | None = None

    def read(self) -> Snapshot | None:
        """None before the first. Callers share the snapshot and must not change it."""
        with store.connect() as redis:
            head = redis.getrange(store.SNAPSHOT(), 0, store.SNAPSHOT_HEAD_BYTES - 1)
            with self._lock:
                if head == self._head:
                    return self._snapshot
            kept = redis.get(store.SNAPSHOT())
        assert kept is None or isinstance(kept, bytes)
        return self._parsed(kept or b"")

    def _parsed(self, kept: bytes) -> Snapshot | None:
        with self._lock:  # concurrent requests wait for one of them to parse it
            head = kept[: store.SNAPSHOT_HEAD_BYTES]
            if head != self._head:
                self._snapshot = Snapshot.from_json(kept) if kept else None
                self._head = head
            return self._snapshot


_newest = PerCluster(NewestSnapshot)


def snapshot() -> Snapshot | None:
    """The newest snapshot; None before the first. It must not be changed."""
    return _newest().read()


def damaged_files() -> store.DamagedFiles | None:
    """The damaged files of the archive; None if no collector has counted them."""
    with store.connect() as redis:
        kept = redis.get(store.DAMAGED_FILES())
    assert kept is None or isinstance(kept, bytes)
    return store.damaged_files_of(kept)


def registries() -> dict[str, str | None]:
    """The last error of each registry by its address, None if it answered; empty before the first snapshot."""
    with store.connect() as redis:
        kept = redis.get(store.STATE())
    assert kept is None or isinstance(kept, bytes)
    return dict(json.loads(kept)["registries"]) if kept else {}


def history_folder() -> HistoryFolder:
    """The folder of the history's files, and for how long they are kept."""
    return HistoryFolder(current.history(), settings.NSQ_HISTORY_DAYS)


def series(scope: Scope, name: str, metrics: Sequence[str]) -> Series:
    """One series over time, as of now. A channel's ``name`` is ``topic/channel``, the cluster's is empty."""
    with store.connect() as redis:
        ring = redis.get(records.key_of(scope, name))
    assert ring is None or isinstance(ring, bytes)
    return Series(history_folder(), scope, name, ring or b"", int(time.time()), metrics)


def cluster() -> Cluster:
    """The configured addresses, and the nodes that had each topic recently. An old snapshot is ignored."""
    latest = snapshot()
    with store.connect() as redis:
        addresses, changed = redis.mget(store.ADDRESSES(), store.LOOKUPD())
    seen: dict[str, list[str]] = {}
    if latest is not None and time.time() * 1000 - latest.taken_at_ms <= FRESH_MS:
        shares = zip(latest.topics, latest.topics.placements, strict=True)
        seen = {name: [node for node, _ in placement] for name, placement in shares}
    return Cluster(
        lookupd=store.lookupd_in_force(changed),
        nsqd=current.nsqd_http_addresses(),
        seen=seen,
        addresses=json.loads(addresses) if addresses else {},
        step_s=min(STEP_S, request_timeout_s()),
        tls=tls(),
    )


def addresses() -> Mapping[str, str]:
    """The ``host:port`` of each node's HTTP server, by the node's id."""
    with store.connect() as redis:
        kept = redis.get(store.ADDRESSES())
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
