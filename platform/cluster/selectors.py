"""Reading what the collector and the operators left behind."""

from __future__ import annotations

import json
import time

from django.conf import settings

from cluster import store
from cluster.actions import Cluster
from cluster.models import AuditEntry
from cluster.rows import Snapshot

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
        kept, addresses = redis.mget(store.SNAPSHOT, store.ADDRESSES)
    picture: Snapshot | None = json.loads(kept) if kept else None
    if picture is not None and time.time() * 1000 - picture["taken_at"] > FRESH_MS:
        picture = None
    return Cluster(
        lookupd=settings.NSQLOOKUPD_HTTP_ADDRESSES,
        nsqd=settings.NSQD_HTTP_ADDRESSES,
        picture=picture,
        addresses=json.loads(addresses) if addresses else {},
    )


def audit_entries(*, before: int | None, limit: int) -> list[AuditEntry]:
    """The newest entries first; ``before`` is the id of the last one already seen."""
    entries = AuditEntry.objects.all() if before is None else AuditEntry.objects.filter(pk__lt=before)
    return list(entries[:limit])
