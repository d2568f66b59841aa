"""Sums of the figures of topics or channels over all nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic

import numpy as np
from numpy.typing import NDArray

from nsqplatform.cluster.readings.matrix import NO_AGE, FigureMatrix, Floats, Ints, Key
from nsqplatform.cluster.snapshots.layout import Layout
from nsqplatform.cluster.snapshots.rates import per_second, rounded


class Share(Generic[Key]):
    """The figures of one node and their rates since its earlier reading, NaN where they are unknown."""

    def __init__(
        self,
        node: str,
        figures: FigureMatrix[Key],
        before: FigureMatrix[Key] | None,
        elapsed: float | None,
        counters: Sequence[int],
        *,
        new_from_zero: bool,
    ) -> None:
        """``counters``: the columns whose rates are computed. Counters of a key that ``before`` does not have rose from
        zero if ``new_from_zero``; otherwise their rates are unknown."""
        self.node = node
        self.figures = figures
        self.rates: Floats = np.full((len(figures.keys), len(counters)), np.nan)
        if before is not None:
            was, known = before.numbers_of(figures.keys)
            rates = per_second(was[:, counters], figures.numbers[:, counters], elapsed)
            self.rates = rates if new_from_zero else np.where(known[:, None], rates, np.nan)


class Sums(Generic[Key]):
    """The shares of all nodes, summed by the rows of ``layout``. ``own_`` attributes are those of single shares."""

    def __init__(self, layout: Layout[Key], shares: Sequence[Share[Key]], figures: int, rates: int) -> None:
        """``figures`` and ``rates``: the number of columns."""
        self.layout = layout
        own = [share.figures for share in shares]
        self.own_numbers: Ints = self.gathered([each.numbers for each in own], np.zeros((0, figures), np.int64))
        self.own_rates: Floats = self.gathered([share.rates for share in shares], np.zeros((0, rates)))
        self.own_paused = self.gathered([each.paused for each in own], np.zeros(0, bool))
        ages = self.gathered([each.ages_ns for each in own], np.zeros(0, np.int64))

        count, rows, starts = len(layout.keys), layout.occupied, layout.starts
        self.numbers: Ints = np.zeros((count, figures), np.int64)
        self.rates: Floats = np.full((count, rates), np.nan)
        self.paused: NDArray[np.bool_] = np.zeros(count, bool)
        self.ages_ns: Ints = np.full(count, NO_AGE)
        if len(rows):
            self.numbers[rows] = np.add.reduceat(self.own_numbers, starts)
            self.ages_ns[rows] = np.maximum.reduceat(ages, starts)
            self.paused[rows] = np.logical_or.reduceat(self.own_paused, starts)
            # The sum of the known rates; NaN if none is known.
            known = np.logical_or.reduceat(~np.isnan(self.own_rates), starts)
            self.rates[rows] = np.where(known, np.add.reduceat(np.nan_to_num(self.own_rates), starts), np.nan)

    def gathered(self, arrays: Sequence[Any], empty: NDArray[Any]) -> Any:
        """The arrays of the sources as one, in the order of the shares."""
        return np.concatenate([empty, *arrays])[self.layout.order]

    def rates_column(self, place: int) -> list[float | None]:
        """One column of rates, rounded, None for NaN."""
        return none_for_nan(rounded(self.rates[:, place]))

    @property
    def ages_ms(self) -> list[float | None]:
        """For each row, the age of its oldest message on any node in milliseconds; None if unknown."""
        return none_for_nan(np.where(self.ages_ns == NO_AGE, np.nan, np.round(self.ages_ns / 1e6, 1)))


def none_for_nan(values: Floats) -> list[float | None]:
    """The values as a list, None for NaN."""
    found: list[float | None] = values.tolist()
    return [None if value != value else value for value in found] if np.isnan(values).any() else found
