"""Applies messages of ``/ws/cluster`` as a browser does; docs/architecture.md describes them."""

from __future__ import annotations

from typing import Any

SHARES = {
    "topics": ("node", "paused", "depth", "message_count", "publish_rate"),
    "channels": (
        "node",
        "paused",
        "depth",
        "in_flight_count",
        "deferred_count",
        "dead_count",
        "message_count",
        "client_count",
    ),
}
"""The values of one node's share, in the order they are sent."""

Rows = list[dict[str, Any]]


def rows_of(kind: str, columns: dict[str, list[Any]]) -> Rows:
    """Rows from columns."""
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    for row in rows:
        if "nodes" in row:
            row["nodes"] = [dict(zip(SHARES[kind], share, strict=True)) for share in row["nodes"]]
    return rows


def key_of(kind: str, row: dict[str, Any]) -> str:
    return str({"nodes": row.get("id"), "topics": row.get("name")}.get(kind) or f"{row['topic']}/{row['name']}")


class Browser:
    """A browser's snapshot, built from snapshots and deltas."""

    def __init__(self) -> None:
        self.version = 0
        self.rows: dict[str, dict[str, Any]] = {"nodes": {}, "topics": {}, "channels": {}}

    def take(self, message: dict[str, Any]) -> None:
        if message["type"] == "snapshot":
            self.rows = {kind: {key_of(kind, row): row for row in rows_of(kind, message[kind])} for kind in self.rows}
            self.version = message["version"]
        elif message["type"] == "delta":
            assert message["base"] == self.version, "a delta that does not start from what the browser holds"
            for kind, held in self.rows.items():
                changes = message[kind]
                for key in changes["drop"]:
                    del held[key]
                held.update({key_of(kind, row): row for row in rows_of(kind, changes["put"])})
                keys = changes["set"].pop("keys", [])
                for key, row in zip(keys, rows_of(kind, changes["set"]), strict=True):
                    held[key] = held[key] | row
            self.version = message["version"]
