"""Snapshots from rows that a test writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nsqplatform.cluster.snapshots.snapshot import KINDS, Snapshot
from nsqplatform.cluster.snapshots.table import SHARES, Table


def snapshot_of(snapshot: Mapping[str, Any]) -> Snapshot:
    """Build a snapshot from an answer of ``GET snapshot``; missing figures of a share are None."""
    tables = {}
    for kind in KINDS:
        rows = snapshot[kind]
        columns: dict[str, list[Any]] = {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}
        if kind != "nodes" and rows:
            columns["nodes"] = [
                [[share.get(name) for name in SHARES[kind]] for share in shares] for shares in columns["nodes"]
            ]
        tables[kind] = Table(kind, columns)
    return Snapshot(snapshot["version"], snapshot["taken_at"], tables)
