"""What the collector drew in one beat, the parts of it that a browser may look at, and how it is kept and told."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, cast

import orjson

from cluster.rows import Snapshot
from cluster.table import Kind, Table

KINDS: Sequence[Kind] = ("nodes", "topics", "channels")


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
    """Version, time in unix milliseconds, and a table of each kind."""

    def __init__(self, version: int, taken_at: int, tables: Mapping[Kind, Table]) -> None:
        self.version = version
        self.taken_at = taken_at
        self.tables = tables
        self.nodes, self.topics, self.channels = (tables[kind] for kind in KINDS)

    @classmethod
    def of_message(cls, message: Mapping[str, Any]) -> Picture:
        """From what :meth:`message` made of it."""
        return cls(message["version"], message["taken_at"], {kind: Table(kind, message[kind]) for kind in KINDS})

    @classmethod
    def kept(cls, text: bytes | str) -> Picture:
        """From Redis."""
        return cls.of_message(orjson.loads(text))

    @cached_property
    def _by_topic(self) -> dict[str, range]:
        """Of each topic, the places of its channels: they stand together."""
        topics = self.channels.columns.get("topic", [])
        bounds = [place for place, topic in enumerate(topics) if place == 0 or topic != topics[place - 1]]
        return {topics[begin]: range(begin, end) for begin, end in pairwise([*bounds, len(topics)])}

    @cached_property
    def _by_node(self) -> dict[str, tuple[list[int], list[int]]]:
        """Of each node, the places of the topics and of the channels that it holds."""
        found: dict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        for number, table in enumerate((self.topics, self.channels)):
            for place, holders in enumerate(table.held_by):
                for node, _ in holders:
                    found[node][number].append(place)
        return found

    def part(self, view: View) -> Mapping[Kind, Table]:
        """As far as ``view`` goes."""
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

    def message(self, view: View) -> dict[str, Any]:
        """What a browser that looks at ``view`` is told first (docs/architecture.md, Websocket)."""
        return {
            "type": "snapshot",
            "version": self.version,
            "taken_at": self.taken_at,
            "view": view.told(),
            **{kind: table.columns for kind, table in self.part(view).items()},
        }

    @property
    def snapshot(self) -> Snapshot:
        """All of it as rows, for who asks over the API."""
        rows: dict[str, Any] = {kind: table.rows for kind, table in self.tables.items()}
        return cast(Snapshot, {"version": self.version, "taken_at": self.taken_at, **rows})


NOTHING = Picture(0, 0, {kind: Table(kind, {}) for kind in KINDS})
