"""Rates from two readings of counters."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def per_second(before: NDArray[np.int64], after: NDArray[np.int64], elapsed_s: float | None) -> NDArray[np.float64]:
    """The increase of counters per second over ``elapsed_s``; NaN if no time passed.

    The rate of a counter that decreased while its process ran is zero: the channel was deleted and created again.
    """
    if elapsed_s is None or elapsed_s <= 0:
        return np.full(after.shape, np.nan)
    return np.maximum(0.0, (after - before) / elapsed_s)


def rounded(rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """The rates rounded to two decimal places. More would be noise, sent to every browser."""
    return np.round(rates, 2)
