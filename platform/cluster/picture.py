"""A snapshot with its rows by key, the parts of it that a browser may look at, and both as columns."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from cluster.rows import ChannelRow, Columns, Snapshot

Row = Mapping[str, Any]
Rows = Mapping[str, Row]
KINDS = ("nodes", "topics", "channels")


class View(NamedTuple):
    """What one browser is told of: everything, or all nodes with one topic, or all nodes and what one node holds."""

    topic: str | None = None
    node: str | None = None

    @property
    def group(self) -> str:
        """The group of the websockets that look at it. Group names have a small alphabet, so: a digest."""
        if self == EVERYTHING:
            return "view.everything"
        return "view." + hashlib.sha256(repr(self).encode()).hexdigest()[:32]

    def told(self) -> dict[str, str]:
        """As it stands in messages."""
        return {name: value for name, value in self._asdict().items() if value is not None}


EVERYTHING = View()


class Picture:
    """A snapshot, its rows by key: a node's id, a topic's name, a channel's ``topic/name``."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.version = snapshot["version"]
        self.taken_at = snapshot["taken_at"]
        self.nodes: Rows = {row["id"]: row for row in snapshot["nodes"]}
        self.topics: Rows = {row["name"]: row for row in snapshot["topics"]}
        self.channels: Rows = {f"{row['topic']}/{row['name']}": row for row in snapshot["channels"]}

    @cached_property
    def _by_topic(self) -> dict[str, dict[str, ChannelRow]]:
        found: dict[str, dict[str, ChannelRow]] = defaultdict(dict)
        for row in self.snapshot["channels"]:
            found[row["topic"]][f"{row['topic']}/{row['name']}"] = row
        return found

    @cached_property
    def _by_node(self) -> dict[str, tuple[dict[str, Row], dict[str, Row]]]:
        """Of each node, the topics and the channels that it holds."""
        found: dict[str, tuple[dict[str, Row], dict[str, Row]]] = defaultdict(lambda: ({}, {}))
        for place, rows in enumerate((self.topics, self.channels)):
            for key, row in rows.items():
                for share in row["nodes"]:
                    found[share["node"]][place][key] = row
        return found

    def rows(self, view: View) -> dict[str, Rows]:
        """The rows of a view by kind and key."""
        topics, channels = self.topics, self.channels
        if view.topic is not None:
            row = topics.get(view.topic)
            topics, channels = {view.topic: row} if row else {}, self._by_topic.get(view.topic, {})
        elif view.node is not None:
            topics, channels = self._by_node.get(view.node, ({}, {}))
        return {"nodes": self.nodes, "topics": topics, "channels": channels}

    def message(self, view: View) -> dict[str, Any]:
        """What a browser that looks at ``view`` is told first (docs/architecture.md, Websocket)."""
        return {
            "type": "snapshot",
            "version": self.version,
            "taken_at": self.taken_at,
            "view": view.told(),
            **{kind: columns(rows.values()) for kind, rows in self.rows(view).items()},
        }


def columns(rows: Iterable[Row]) -> Columns:
    """Rows, which all have the same fields, as a list for each field; empty for no rows."""
    held = list(rows)
    if not held:
        return {}
    made: Columns = {name: [row[name] for row in held] for name in held[0]}
    if "nodes" in made:
        made["nodes"] = [shares(row) for row in held]
    return made


def shares(row: Row) -> list[list[Any]]:
    """Each node's share of a topic or channel: its values alone, in the order that cluster.rows declares them."""
    found: Sequence[Mapping[str, Any]] = row["nodes"]
    return [list(share.values()) for share in found]
