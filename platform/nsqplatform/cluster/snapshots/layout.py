"""Assigns the figures of each node to the rows of a snapshot. The assignment changes only when names do."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Generic, TypeAlias

import numpy as np

from nsqplatform.cluster.readings.matrix import Key

Source: TypeAlias = "tuple[str, Sequence[Key]]"
"""A node's id, and the names of its topics or channels."""


class Layout(Generic[Key]):
    """The rows of topics or channels, and the shares of each. A share is one node's part of a row. ``keys``: the names
    of the rows, sorted; shares are in the order of rows and, within a row, of sources."""

    def __init__(self, sources: Sequence[Source[Key]], also: Collection[Key]) -> None:
        """``also``: names that get a row even if no node has them."""
        self._sources, self._also = sources, also
        names = {key for _, keys in sources for key in keys} | set(also)
        self.keys: list[Key] = sorted(names)  # type: ignore[type-var]  # str or tuples of them
        place = {key: number for number, key in enumerate(self.keys)}
        rows = np.array([place[key] for _, keys in sources for key in keys], np.int64)
        self.order = np.argsort(rows, kind="stable")
        """The place of each share in the concatenated sources."""
        rows = rows[self.order]
        self.occupied, self.starts = np.unique(rows, return_index=True)
        """The rows that have shares, and the place of the first share of each."""
        nodes = [node for node, keys in sources for _ in keys]
        self._nodes = [nodes[at] for at in self.order.tolist()]
        ends = np.searchsorted(rows, np.arange(len(self.keys)), side="right")
        begins = ends - np.bincount(rows, minlength=len(self.keys))
        self._spans = [*zip(begins.tolist(), ends.tolist(), strict=True)]

    def fits(self, sources: Sequence[Source[Key]], also: Collection[Key]) -> bool:
        """Whether the layout was made from these."""
        return bool(self._sources == sources and self._also == also)

    def shares(self, columns: Iterable[Sequence[Any]]) -> list[list[list[Any]]]:
        """For each row, the node's id and the values of each share. ``columns`` have one value for each share."""
        shares = [*map(list, zip(self._nodes, *columns, strict=True))]
        return [shares[begin:end] for begin, end in self._spans]
