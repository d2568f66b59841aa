"""Rates from two readings of counters."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def per_second(before: NDArray[np.int64], after: NDArray[np.int64], elapsed: float | None) -> NDArray[np.float64]:
    """The increase of counters per second over ``elapsed`` seconds; NaN if no time passed.

    A counter that fell within one life of its process (a channel deleted and made again, messages removed by
    ``empty`` after they were counted) has the rate zero.
    """
    if elapsed is None or elapsed <= 0:
        return np.full(after.shape, np.nan)
    return np.maximum(0.0, (after - before) / elapsed)


def rounded(rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rounded to two decimal places. More would be noise, sent to every browser."""
    return np.round(rates, 2)
