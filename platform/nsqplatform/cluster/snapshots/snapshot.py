"""The snapshot that one poll produces, the views of it, and its stored and sent form."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, cast

import orjson

from nsqplatform.cluster.snapshots.rows import ChannelRow, NodeRow, SnapshotMessage, SnapshotRows, TopicRow, ViewFields
from nsqplatform.cluster.snapshots.table import Kind, Table

KINDS: Sequence[Kind] = ("nodes", "topics", "channels")


class View(NamedTuple):
    """The part of a snapshot that one browser is sent: everything, or all nodes and one topic with its channels, or all
    nodes and the topics and channels of one node."""

    topic: str | None = None
    node: str | None = None

    @property
    def group(self) -> str:
        """The group of the websockets with this view; a digest, so that its length does not depend on names."""
        if self == EVERYTHING:
            return "view.everything"
        return "view." + hashlib.sha256(repr(self).encode()).hexdigest()[:32]

    def fields(self) -> ViewFields:
        """Its fields in messages."""
        fields: ViewFields = {}
        if self.topic is not None:
            fields["topic"] = self.topic
        if self.node is not None:
            fields["node"] = self.node
        return fields


EVERYTHING = View()


class Snapshot:
    """The nodes, topics and channels after one poll. ``version`` grows by one with each poll;
    ``taken_at_ms`` is Unix time."""

    def __init__(self, version: int, taken_at_ms: int, tables: Mapping[Kind, Table]) -> None:
        self.version = version
        self.taken_at_ms = taken_at_ms
        self.tables = tables
        self.nodes, self.topics, self.channels = (tables[kind] for kind in KINDS)

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Snapshot:
        """The snapshot of a message that :meth:`message` made."""
        return cls(message["version"], message["taken_at"], {kind: Table(kind, message[kind]) for kind in KINDS})

    @classmethod
    def from_json(cls, text: bytes | str) -> Snapshot:
        """The snapshot as stored in Redis."""
        return cls.from_message(orjson.loads(text))

    @classmethod
    def continued(cls, text: bytes | str) -> Snapshot:
        """The stored snapshot, for the deltas that follow it.

        One whose rows have other fields was stored by another release. It becomes an empty one of the next version,
        which no browser has, so that all request a whole snapshot.
        """
        stored = cls.from_json(text)
        if all(table.has_all_fields for table in stored.tables.values()):
            return stored
        return cls(stored.version + 1, stored.taken_at_ms, EMPTY.tables)

    @cached_property
    def _by_topic(self) -> dict[str, range]:
        """The places of each topic's channels, which are adjacent."""
        topics = self.channels.columns.get("topic", [])
        bounds = [place for place, topic in enumerate(topics) if place == 0 or topic != topics[place - 1]]
        return {topics[begin]: range(begin, end) for begin, end in pairwise([*bounds, len(topics)])}

    @cached_property
    def _by_node(self) -> dict[str, tuple[list[int], list[int]]]:
        """The places of each node's topics and channels."""
        found: dict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        for number, table in enumerate((self.topics, self.channels)):
            for place, holders in enumerate(table.placements):
                for node, _ in holders:
                    found[node][number].append(place)
        return found

    def part(self, view: View) -> Mapping[Kind, Table]:
        """The tables within ``view``."""
        topics: Sequence[int]
        channels: Sequence[int]
        if view.topic is not None:
            place = self.topics.places.get(view.topic)
            topics = range(0) if place is None else range(place, place + 1)
            channels = self._by_topic.get(view.topic, range(0))
        elif view.node is not None:
            topics, channels = self._by_node.get(view.node, ([], []))
        else:
            return self.tables
        return {"nodes": self.nodes, "topics": self.topics.only(topics), "channels": self.channels.only(channels)}

    def message(self, view: View) -> SnapshotMessage:
        """The ``snapshot`` message for ``view`` (docs/architecture.md, Websocket)."""
        part = self.part(view)
        return {
            "type": "snapshot",
            "version": self.version,
            "taken_at": self.taken_at_ms,
            "view": view.fields(),
            "nodes": part["nodes"].columns,
            "topics": part["topics"].columns,
            "channels": part["channels"].columns,
        }

    @property
    def rows(self) -> SnapshotRows:
        """The snapshot as rows, for the API."""
        return {
            "version": self.version,
            "taken_at": self.taken_at_ms,
            "nodes": cast(list[NodeRow], self.nodes.rows),
            "topics": cast(list[TopicRow], self.topics.rows),
            "channels": cast(list[ChannelRow], self.channels.rows),
        }


EMPTY = Snapshot(0, 0, {kind: Table(kind, {}) for kind in KINDS})
