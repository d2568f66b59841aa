"""Rows of one kind by their keys, stored as columns: the form in which they are computed, sent and kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, TypeAlias

from nsqplatform.cluster.snapshots.rows import ChannelNode, ChannelText, Columns, NodeText, TopicNode, TopicText
from nsqwire.figures import Scope, in_rows

Kind: TypeAlias = Literal["nodes", "topics", "channels"]
Row: TypeAlias = Mapping[str, Any]
"""A NodeRow, TopicRow or ChannelRow, read by the names of figures, which are declared at run time (nsqwire.figures)."""
SCOPES: Mapping[Kind, Scope] = {"nodes": "node", "topics": "topic", "channels": "channel"}
KEYS: Mapping[Kind, frozenset[str]] = {
    "nodes": frozenset({"id"}),
    "topics": frozenset({"name"}),
    "channels": frozenset({"topic", "name"}),
}
"""The columns that make up a row's key. They never change within a row."""
TEXTS: Mapping[Kind, Sequence[str]] = {
    "nodes": [*NodeText.__annotations__],
    "topics": [*TopicText.__annotations__],
    "channels": [*ChannelText.__annotations__],
}
"""The columns that are not figures."""
FIGURES: Mapping[Kind, Sequence[str]] = {kind: [each.name for each in in_rows(SCOPES[kind])] for kind in SCOPES}
"""The columns that are figures."""
SHARES: Mapping[Kind, Sequence[str]] = {
    "topics": [*TopicNode.__annotations__],
    "channels": [*ChannelNode.__annotations__],
}
"""The fields of a node's share of a topic or channel, which is sent as its values alone, in this order."""


class Table(Mapping[str, Row]):
    """Rows by key. A row is built on first access. Keys: a node's id, a topic's name, a channel's ``topic/name``."""

    def __init__(self, kind: Kind, columns: Columns, keys: Sequence[str] | None = None) -> None:
        """``columns``: a list for each field, all of the same length; empty if there are no rows."""
        self.kind = kind
        self.columns = columns
        self._rows: dict[int, Row] = {}
        self.names: Sequence[str] = keys_of(kind, columns) if keys is None else keys

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __getitem__(self, key: str) -> Row:
        return self.row(self.places[key])

    def row(self, place: int) -> Row:
        found = self._rows.get(place)
        if found is None:
            found = self._rows[place] = self._built(place)
        return found

    def _built(self, place: int) -> Row:
        row = {name: column[place] for name, column in self.columns.items()}
        if self.kind != "nodes":
            names = SHARES[self.kind]
            row["nodes"] = [dict(zip(names, share, strict=True)) for share in row["nodes"]]
        return row

    @property
    def rows(self) -> list[Row]:
        return [self.row(place) for place in range(len(self))]

    @property
    def has_all_fields(self) -> bool:
        """Whether it has a column for each field of its rows, or no rows."""
        return not self.columns or {*TEXTS[self.kind], *FIGURES[self.kind]} <= {*self.columns}

    @cached_property
    def places(self) -> dict[str, int]:
        return {key: place for place, key in enumerate(self.names)}

    @cached_property
    def placements(self) -> list[list[tuple[str, bool]]]:
        """The nodes of each row, with whether they paused it."""
        return [[(share[0], share[1]) for share in shares] for shares in self.columns.get("nodes", ())]

    def only(self, places: Sequence[int]) -> Table:
        """The rows at these places. A range is faster than a list."""
        if not places:
            return Table(self.kind, {}, [])
        if isinstance(places, range):
            cut = slice(places.start, places.stop)
            return Table(self.kind, {name: column[cut] for name, column in self.columns.items()}, self.names[cut])
        columns = {name: [column[place] for place in places] for name, column in self.columns.items()}
        return Table(self.kind, columns, [self.names[place] for place in places])


def keys_of(kind: Kind, columns: Columns) -> Sequence[str]:
    if not columns:
        return []
    if kind == "channels":
        return [f"{topic}/{name}" for topic, name in zip(columns["topic"], columns["name"], strict=True)]
    return columns["id" if kind == "nodes" else "name"]
