"""Figures of topics or channels over all nodes at once, as arrays: a large cluster has ten thousand every second."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from operator import attrgetter
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from cluster.rates import per_second, rounded

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Key = TypeVar("Key", bound=Hashable)
NO_AGE = np.iinfo(np.int64).min


class Table(Generic[Key]):
    """One node's topics or channels: their names and, in the same order, a row of figures for each."""

    def __init__(self, keys: Sequence[Key], held: Sequence[Any], figures: Sequence[str]) -> None:
        """``figures`` names the whole numbers of each of ``held`` that are wanted; at least two."""
        self.keys = keys
        self.figures: Ints = np.array([*map(attrgetter(*figures), held)], np.int64).reshape(len(keys), len(figures))
        self.paused = [each.paused for each in held]
        self.ages_ns: Ints = np.array(
            [NO_AGE if (age := each.oldest_unfinished_age_ns) is None else age for each in held], np.int64
        )

    def figures_of(self, keys: Sequence[Key]) -> tuple[Ints, NDArray[np.bool_]]:
        """Rows for these names, zero for what is not here, and which are here."""
        if keys == self.keys:
            return self.figures, np.ones(len(keys), bool)
        places = {key: place for place, key in enumerate(self.keys)}
        found = np.array([places.get(key, -1) for key in keys], np.int64)
        known = found >= 0
        figures = np.zeros((len(keys), self.figures.shape[1]), np.int64)
        figures[known] = self.figures[found[known]]
        return figures, known


class Share(Generic[Key]):
    """What one node adds: its table, and the rates since its earlier one, NaN where nothing is known of them."""

    def __init__(
        self,
        node: str,
        table: Table[Key],
        before: Table[Key] | None,
        elapsed: float | None,
        counters: Sequence[int],
        *,
        new_from_zero: bool,
    ) -> None:
        """``counters`` are the figures to take rates of. What ``before`` does not have rose from zero if
        ``new_from_zero``; else nothing is known of how it rose."""
        self.node = node
        self.table = table
        self.rates: Floats = np.full((len(table.keys), len(counters)), np.nan)
        if before is not None:
            was, known = before.figures_of(table.keys)
            rates = per_second(was[:, counters], table.figures[:, counters], elapsed)
            self.rates = rates if new_from_zero else np.where(known[:, None], rates, np.nan)


class Sums(Generic[Key]):
    """The shares of all nodes, by name. Sorted by name, then in the order of the shares."""

    def __init__(self, shares: Sequence[Share[Key]], also: Iterable[Key], figures: int, rates: int) -> None:
        """``also`` are names to have even if no node does; ``figures`` and ``rates`` how many columns there are."""
        names = {key for share in shares for key in share.table.keys} | set(also)
        self.keys: list[Key] = sorted(names)  # type: ignore[type-var]  # str or tuples of them
        place = {key: number for number, key in enumerate(self.keys)}
        rows = np.array([place[key] for share in shares for key in share.table.keys], np.int64)
        order = np.argsort(rows, kind="stable")
        rows = rows[order]
        held, starts = np.unique(rows, return_index=True)
        count = len(self.keys)

        def gathered(arrays: list[Any], empty: Any) -> Any:
            return np.concatenate([empty, *arrays])[order]

        own = gathered([share.table.figures for share in shares], np.zeros((0, figures), np.int64))
        rate = gathered([share.rates for share in shares], np.zeros((0, rates)))
        ages = gathered([share.table.ages_ns for share in shares], np.zeros(0, np.int64))
        paused = gathered([share.table.paused for share in shares], np.zeros(0, bool))
        nodes = [share.node for share in shares for _ in share.table.keys]

        self.figures: Ints = np.zeros((count, figures), np.int64)
        self.rates: Floats = np.full((count, rates), np.nan)
        self.paused = np.zeros(count, bool)
        self.ages_ns: Ints = np.full(count, NO_AGE)
        if len(held):
            self.figures[held] = np.add.reduceat(own, starts)
            self.ages_ns[held] = np.maximum.reduceat(ages, starts)
            self.paused[held] = np.logical_or.reduceat(paused, starts)
            # A sum of what is known; NaN as long as nothing is.
            known = np.logical_or.reduceat(~np.isnan(rate), starts)
            self.rates[held] = np.where(known, np.add.reduceat(np.nan_to_num(rate), starts), np.nan)
        self.shares = [
            *zip([nodes[at] for at in order.tolist()], paused.tolist(), own.tolist(), rounded_rows(rate), strict=True)
        ]
        """Node, whether it paused it, figures and rates, for each name and node."""
        ends = np.searchsorted(rows, np.arange(count), side="right")
        self.spans = [*zip((ends - np.bincount(rows, minlength=count)).tolist(), ends.tolist(), strict=True)]
        """Where the shares of each name begin and end."""

    @property
    def rounded(self) -> list[list[float | None]]:
        return rounded_rows(self.rates)

    @property
    def ages_ms(self) -> list[float | None]:
        """Of the oldest message, over the nodes."""
        ages = np.round(self.ages_ns / 1e6, 1).tolist()
        return [None if ns == NO_AGE else age for ns, age in zip(self.ages_ns.tolist(), ages, strict=True)]


def rounded_rows(rates: Floats) -> list[list[float | None]]:
    """As they are told, None for NaN."""
    told: list[list[float | None]] = rounded(rates).tolist()
    if np.isnan(rates).any():
        return [[None if rate != rate else rate for rate in row] for row in told]
    return told
