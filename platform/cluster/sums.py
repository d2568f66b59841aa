"""Figures of topics or channels over all nodes at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic

import numpy as np
from numpy.typing import NDArray

from cluster.figures import NO_AGE, Figures, Floats, Ints, Key
from cluster.layout import Layout
from cluster.rates import per_second, rounded


class Share(Generic[Key]):
    """What one node adds: its figures, and the rates since its earlier ones, NaN where nothing is known of them."""

    def __init__(
        self,
        node: str,
        figures: Figures[Key],
        before: Figures[Key] | None,
        elapsed: float | None,
        counters: Sequence[int],
        *,
        new_from_zero: bool,
    ) -> None:
        """``counters`` are the figures to take rates of. What ``before`` does not have rose from zero if
        ``new_from_zero``; else nothing is known of how it rose."""
        self.node = node
        self.figures = figures
        self.rates: Floats = np.full((len(figures.keys), len(counters)), np.nan)
        if before is not None:
            was, known = before.numbers_of(figures.keys)
            rates = per_second(was[:, counters], figures.numbers[:, counters], elapsed)
            self.rates = rates if new_from_zero else np.where(known[:, None], rates, np.nan)


class Sums(Generic[Key]):
    """The shares of all nodes, by the rows of ``layout``. Those of single nodes are the ``own_`` ones, in its order."""

    def __init__(self, layout: Layout[Key], shares: Sequence[Share[Key]], figures: int, rates: int) -> None:
        """``figures`` and ``rates`` are how many columns there are."""
        self.layout = layout
        own = [share.figures for share in shares]
        self.own_numbers: Ints = self.gathered([each.numbers for each in own], np.zeros((0, figures), np.int64))
        self.own_rates: Floats = self.gathered([share.rates for share in shares], np.zeros((0, rates)))
        self.own_paused = self.gathered([each.paused for each in own], np.zeros(0, bool))
        ages = self.gathered([each.ages_ns for each in own], np.zeros(0, np.int64))

        count, held, starts = len(layout.keys), layout.held, layout.starts
        self.numbers: Ints = np.zeros((count, figures), np.int64)
        self.rates: Floats = np.full((count, rates), np.nan)
        self.paused: NDArray[np.bool_] = np.zeros(count, bool)
        self.ages_ns: Ints = np.full(count, NO_AGE)
        if len(held):
            self.numbers[held] = np.add.reduceat(self.own_numbers, starts)
            self.ages_ns[held] = np.maximum.reduceat(ages, starts)
            self.paused[held] = np.logical_or.reduceat(self.own_paused, starts)
            # A sum of what is known; NaN as long as nothing is.
            known = np.logical_or.reduceat(~np.isnan(self.own_rates), starts)
            self.rates[held] = np.where(known, np.add.reduceat(np.nan_to_num(self.own_rates), starts), np.nan)

    def gathered(self, arrays: Sequence[Any], empty: NDArray[Any]) -> Any:
        """The sources' arrays as one, in the order of the shares."""
        return np.concatenate([empty, *arrays])[self.layout.order]

    def rates_told(self, place: int) -> list[float | None]:
        """As they are told, None for NaN."""
        return told(rounded(self.rates[:, place]))

    @property
    def ages_ms(self) -> list[float | None]:
        """Of the oldest message, over the nodes."""
        return told(np.where(self.ages_ns == NO_AGE, np.nan, np.round(self.ages_ns / 1e6, 1)))


def told(values: Floats) -> list[float | None]:
    """None for NaN."""
    found: list[float | None] = values.tolist()
    return [None if value != value else value for value in found] if np.isnan(values).any() else found
