"""Snapshots from rows that a test writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nsqplatform.cluster.snapshots.snapshot import KINDS, Snapshot
from nsqplatform.cluster.snapshots.table import SCOPES, SHARES, Table
from nsqwire.figures import in_rows


def snapshot_of(snapshot: Mapping[str, Any]) -> Snapshot:
    """Build a snapshot from an answer of ``GET snapshot``; missing figures are 0 or None, those of a
    share None."""
    tables = {}
    for kind in KINDS:
        rows = snapshot[kind]
        columns: dict[str, list[Any]] = {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}
        if rows:
            missing = {each.name: 0 if each.kind.is_whole else None for each in in_rows(SCOPES[kind])}
            columns = {name: [value] * len(rows) for name, value in missing.items()} | columns
        if kind != "nodes" and rows:
            columns["nodes"] = [
                [[share.get(name) for name in SHARES[kind]] for share in shares] for shares in columns["nodes"]
            ]
        tables[kind] = Table(kind, columns)
    return Snapshot(snapshot["version"], snapshot["taken_at"], tables)
