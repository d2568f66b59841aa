"""Runs of equal keys in sorted arrays, and figures of each run: of a series, a window or a row of a result."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nsqanalytics.counting.columns import NULL, Flags, Floats, Integers
from nsqanalytics.counting.sums import exact, may_wrap

_HIGHEST = 2**63 - 1


class Runs:
    """The runs of consecutive rows that are equal in all ``keys``.

    ``starts`` are the first rows of the runs, ``of`` is the number of each row's run.
    """

    def __init__(self, *keys: Integers) -> None:
        self.size = len(keys[0])
        is_first = np.ones(self.size, bool)
        if self.size:
            is_first[1:] = np.logical_or.reduce([key[1:] != key[:-1] for key in keys])
        self.is_first: Flags = is_first
        self.is_last: Flags = np.append(is_first[1:], True) if self.size else is_first
        self.starts: Integers = np.flatnonzero(is_first)
        self.ends: Integers = np.flatnonzero(self.is_last)
        self.of: Integers = np.cumsum(is_first, dtype=np.int64) - 1

    @property
    def count(self) -> int:
        """The number of runs."""
        return len(self.starts)

    def lengths(self) -> Integers:
        """Return the number of rows of each run."""
        return self.ends - self.starts + 1

    def before(self, values: Integers) -> Integers:
        """Return for each row the value of the row before it in its run; NULL for the first."""
        if not self.size:
            return values
        return np.where(self.is_first, NULL, np.concatenate([values[:1], values[:-1]]))

    def after(self, values: Integers) -> Integers:
        """Return for each row the value of the row after it in its run; NULL for the last."""
        if not self.size:
            return values
        return np.where(self.is_last, NULL, np.concatenate([values[1:], values[-1:]]))

    def highest_before(self, values: Integers) -> Integers:
        """Return for each row the highest value of the rows before it in its run; NULL if there is none."""
        before = self.before(values)
        ordered, rank = np.unique(before, return_inverse=True)
        # Runs are in order, so the maximum over all rows so far is that of the row's own run.
        highest = np.maximum.accumulate(self.of * len(ordered) + rank)
        return ordered[highest - self.of * len(ordered)]

    def sum(self, values: Integers) -> Integers:
        """Return the sum of each run without NULL; NULL if the run has no other value. Raises TooLarge."""
        terms = np.where(values == NULL, 0, values)
        total = self._reduced(np.add, terms)
        if may_wrap(terms):
            total = exact(total, self._reduced(np.add, terms.astype(np.float64)))
        return np.where(self._reduced(np.logical_or, values != NULL), total, NULL)

    def total(self, values: Floats) -> Floats:
        """Return the sum of each run without NaN; NaN if the run has no other value."""
        known = ~np.isnan(values)
        return np.where(
            self._reduced(np.logical_or, known), self._reduced(np.add, np.where(known, values, 0.0)), np.nan
        )

    def count_of(self, is_counted: Flags) -> Integers:
        """Return how many rows of each run are counted."""
        found: Integers = self._reduced(np.add, is_counted.astype(np.int64))
        return found

    def highest(self, values: Integers) -> Integers:
        """Return the highest value of each run; NULL if it has none."""
        found: Integers = self._reduced(np.maximum, values)
        return found

    def lowest(self, values: Integers) -> Integers:
        """Return the lowest value of each run without NULL; NULL if it has no other."""
        lowest = self._reduced(np.minimum, np.where(values == NULL, _HIGHEST, values))
        return np.where(self._reduced(np.logical_or, values != NULL), lowest, NULL)

    def any(self, is_true: Flags) -> Flags:
        """Return whether it is true for any row of each run."""
        found: Flags = self._reduced(np.logical_or, is_true)
        return found

    def _reduced(self, function: np.ufunc, values: NDArray[Any]) -> Any:
        return function.reduceat(values, self.starts) if self.size else values[:0]
