"""Latency ranges of nodes without histograms, such as Go's: the percentiles that they report cannot be merged.

The percentile of a channel over several such nodes lies between their lowest and their highest.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from nsqplatform.cluster.readings.matrix import Floats, Key
from nsqplatform.cluster.snapshots.layout import Layout

Range: TypeAlias = list[float]
"""Lowest and highest, in ms."""


def ranges(layout: Layout[Key], own_ms: Floats, merged_ms: Floats) -> list[Range | None]:
    """The range of each row at one quantile; None if every node has a histogram.

    ``own_ms``: the reported percentile of each share. ``merged_ms``: the merged percentile of each row. NaN: none.
    """
    lowest = np.full(len(layout.keys), np.nan)
    highest = lowest.copy()
    if len(layout.occupied):
        lowest[layout.occupied] = np.fmin.reduceat(own_ms, layout.starts)
        highest[layout.occupied] = np.fmax.reduceat(own_ms, layout.starts)
    lowest, highest = short(lowest), short(highest)
    found = ~np.isnan(lowest)
    lowest, highest = np.fmin(lowest, merged_ms), np.fmax(highest, merged_ms)
    return [
        [low, high] if known else None
        for known, low, high in zip(found.tolist(), lowest.tolist(), highest.tolist(), strict=True)
    ]


def short(values: Floats) -> Floats:
    """The values rounded to three significant digits, because a range is inexact and is sent to every browser."""
    with np.errstate(divide="ignore", invalid="ignore"):
        digits = 2 - np.floor(np.log10(values))
    digits = np.where(np.isfinite(digits), digits, 0.0)
    # Dividing by a power of ten gives the float with the fewest digits; multiplying by 0.01 does not.
    small, large = 10.0 ** np.maximum(digits, 0), 10.0 ** np.maximum(-digits, 0)
    return np.asarray(np.round(values * small / large) * large / small, np.float64)
