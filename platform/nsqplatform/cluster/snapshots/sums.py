"""Figures of topics or channels over all nodes, as nsqwire.figures declares them: nsqcluster.sums, for thousands of
rows every second."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Generic

import numpy as np
from numpy.typing import NDArray

from nsqplatform.cluster.readings.matrix import NO_AGE, FigureMatrix, Floats, Ints, Key
from nsqplatform.cluster.snapshots.layout import Layout
from nsqplatform.cluster.snapshots.rates import per_second, rounded
from nsqwire.figures import Figure, Kind, OverNodes

COMBINE: Final[dict[OverNodes, np.ufunc]] = {"sum": np.add, "largest": np.maximum}


class Share(Generic[Key]):
    """The figures of one node and their rates since its earlier reading, NaN where they are unknown."""

    def __init__(
        self,
        node: str,
        figures: FigureMatrix[Key],
        before: FigureMatrix[Key] | None,
        elapsed_s: float | None,
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
            rates = per_second(was[:, counters], figures.numbers[:, counters], elapsed_s)
            self.rates = rates if new_from_zero else np.where(known[:, None], rates, np.nan)


class Sums(Generic[Key]):
    """The shares of all nodes, summed by the rows of ``layout``. ``own_`` attributes are those of single shares."""

    def __init__(
        self, layout: Layout[Key], shares: Sequence[Share[Key]], figures: Sequence[Figure], rates: int
    ) -> None:
        """``figures``: the columns. ``rates``: the number of columns of rates."""
        self.layout = layout
        own = [share.figures for share in shares]
        self.own_numbers: Ints = self.gathered([each.numbers for each in own], np.zeros((0, len(figures)), np.int64))
        self.own_rates: Floats = self.gathered([share.rates for share in shares], np.zeros((0, rates)))
        self.own_paused = self.gathered([each.paused for each in own], np.zeros(0, bool))
        ages = self.gathered([each.ages_ns for each in own], np.zeros(0, np.int64))

        count, rows, starts = len(layout.keys), layout.occupied, layout.starts
        self.numbers: Ints = np.zeros((count, len(figures)), np.int64)
        self.rates: Floats = np.full((count, rates), np.nan)
        self.paused: NDArray[np.bool_] = np.zeros(count, bool)
        self.ages_ns: Ints = np.full(count, NO_AGE)
        if len(rows):
            self.numbers[rows] = combined(self.own_numbers, figures, starts)
            self.ages_ns[rows] = COMBINE[Kind.AGE.over_nodes].reduceat(ages, starts)
            self.paused[rows] = np.logical_or.reduceat(self.own_paused, starts)
            # The sum of the known rates; NaN if none is known.
            known = np.logical_or.reduceat(~np.isnan(self.own_rates), starts)
            self.rates[rows] = np.where(
                known, COMBINE[Kind.RATE.over_nodes].reduceat(np.nan_to_num(self.own_rates), starts), np.nan
            )

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


def combined(numbers: Ints, figures: Sequence[Figure], starts: Ints) -> Ints:
    """The rows of ``numbers`` from each start to the next, combined by the declaration of each column's figure."""
    ways = [figure.kind.over_nodes for figure in figures]
    if len(set(ways)) == 1:
        found: Ints = COMBINE[ways[0]].reduceat(numbers, starts)
        return found
    return np.column_stack([COMBINE[way].reduceat(numbers[:, place], starts) for place, way in enumerate(ways)])


def none_for_nan(values: Floats) -> list[float | None]:
    """The values as a list, None for NaN."""
    found: list[float | None] = values.tolist()
    return [None if value != value else value for value in found] if np.isnan(values).any() else found
