"""The difference of two snapshots."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from cluster.rows import ChannelRow, Delta, NodeRow, Snapshot, TopicRow

Row = TypeVar("Row", bound=Mapping[str, Any])


def node_key(row: NodeRow) -> str:
    return row["id"]


def topic_key(row: TopicRow) -> str:
    return row["name"]


def channel_key(row: ChannelRow) -> str:
    return f"{row['topic']}/{row['name']}"


def delta(before: Snapshot, after: Snapshot) -> Delta:
    """What a browser that holds ``before`` needs to hold ``after``."""
    nodes_put, nodes_drop = changes(before["nodes"], after["nodes"], node_key)
    topics_put, topics_drop = changes(before["topics"], after["topics"], topic_key)
    channels_put, channels_drop = changes(before["channels"], after["channels"], channel_key)
    return {
        "type": "delta",
        "version": after["version"],
        "base": before["version"],
        "taken_at": after["taken_at"],
        "nodes": {"put": nodes_put, "drop": nodes_drop},
        "topics": {"put": topics_put, "drop": topics_drop},
        "channels": {"put": channels_put, "drop": channels_drop},
    }


def changes(before: Sequence[Row], after: Sequence[Row], key: Callable[[Row], str]) -> tuple[list[Row], list[str]]:
    """The rows of ``after`` that are new or differ, and the keys that are gone."""
    held = {key(row): row for row in before}
    put = [row for row in after if held.pop(key(row), None) != row]
    return put, list(held)
