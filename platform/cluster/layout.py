"""Which row of the picture each node's figures belong to. Names come and go seldom, and figures each second."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Generic, TypeAlias

import numpy as np

from cluster.figures import Key

Source: TypeAlias = "tuple[str, Sequence[Key]]"
"""A node's id, and the names of what it holds."""


class Layout(Generic[Key]):
    """``keys`` are the rows' names, sorted. Shares are what one node adds to one row: in the order of the rows, and of
    the sources in each."""

    def __init__(self, sources: Sequence[Source[Key]], also: Collection[Key]) -> None:
        """``also`` are names to have even if no node does."""
        self._sources, self._also = sources, also
        names = {key for _, keys in sources for key in keys} | set(also)
        self.keys: list[Key] = sorted(names)  # type: ignore[type-var]  # str or tuples of them
        place = {key: number for number, key in enumerate(self.keys)}
        rows = np.array([place[key] for _, keys in sources for key in keys], np.int64)
        self.order = np.argsort(rows, kind="stable")
        """Of each share, its place in the sources one behind the other."""
        rows = rows[self.order]
        self.held, self.starts = np.unique(rows, return_index=True)
        """The rows that have shares, and the first share of each."""
        nodes = [node for node, keys in sources for _ in keys]
        self._nodes = [nodes[at] for at in self.order.tolist()]
        ends = np.searchsorted(rows, np.arange(len(self.keys)), side="right")
        begins = ends - np.bincount(rows, minlength=len(self.keys))
        self._spans = [*zip(begins.tolist(), ends.tolist(), strict=True)]

    def fits(self, sources: Sequence[Source[Key]], also: Collection[Key]) -> bool:
        """Whether it was made of these."""
        return bool(self._sources == sources and self._also == also)

    def shares(self, columns: Iterable[Sequence[Any]]) -> list[list[list[Any]]]:
        """Of each row, each node's id and its values of ``columns``, which hold one for each share."""
        told = [*map(list, zip(self._nodes, *columns, strict=True))]
        return [told[begin:end] for begin, end in self._spans]
