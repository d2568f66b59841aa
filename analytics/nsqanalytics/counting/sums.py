"""Sums of 64-bit integers that are exact or fail: NumPy's own sums wrap around silently."""

from __future__ import annotations

import numpy as np

from nsqanalytics.counting.columns import Floats, Integers

_MOST = 2**63 - 1
_WRAPPED = 2.0**62
"""A sum that wrapped around is off by 2^64 or a multiple; the one in floating point by much less than this."""


class TooLarge(ValueError):
    """A sum does not fit into 64 bits."""


def may_wrap(values: Integers) -> bool:
    """Return whether some of the values together may not fit into 64 bits. It is False for all but absurd counts."""
    if not len(values):
        return False
    most = max(int(values.max()), -int(values.min()))
    return most > _MOST // len(values)


def exact(total: Integers, rough: Floats) -> Integers:
    """Return ``total``. Raises TooLarge if it wrapped around: ``rough`` has the same sums in floating point."""
    if (np.abs(rough - total) > _WRAPPED).any():
        raise TooLarge("a sum of counts is above 2^63: the archive has readings with counts that no node has")
    return total


def sums_at(places: Integers, values: Integers, length: int) -> Floats:
    """Return for each place below ``length`` the sum of its values in floating point."""
    return np.asarray(np.bincount(places, values.astype(np.float64), length), np.float64)
