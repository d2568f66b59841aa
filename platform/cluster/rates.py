"""Rates from two readings of counters."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def per_second(before: NDArray[np.int64], after: NDArray[np.int64], elapsed: float | None) -> NDArray[np.float64]:
    """How fast counters rose over ``elapsed`` seconds; NaN where no time went by.

    A counter that fell within one life of its process (a channel deleted and made again, messages removed by
    ``empty`` after they were counted) reads as zero: nothing is known to have happened.
    """
    if elapsed is None or elapsed <= 0:
        return np.full(after.shape, np.nan)
    return np.maximum(0.0, (after - before) / elapsed)


def rounded(rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """To two places: more is noise, and would be sent to every browser."""
    return np.round(rates, 2)
