"""Latencies of nodes that tell no histogram, such as Go's: their own percentiles, which cannot be merged.

All that is true of a channel over several such nodes is that its percentile lies between their lowest and highest.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from cluster.figures import Floats, Key
from cluster.layout import Layout

Range: TypeAlias = list[float]
"""Lowest and highest, in ms."""


def ranges(layout: Layout[Key], own_ms: Floats, merged_ms: Floats) -> list[Range | None]:
    """Of each row at one quantile, with what was merged from the other nodes' histograms; None where no node tells
    percentiles of its own. ``own_ms`` are those of each share, ``merged_ms`` of each row; NaN: nothing is told."""
    lowest = np.full(len(layout.keys), np.nan)
    highest = lowest.copy()
    if len(layout.held):
        lowest[layout.held] = np.fmin.reduceat(own_ms, layout.starts)
        highest[layout.held] = np.fmax.reduceat(own_ms, layout.starts)
    lowest, highest = short(lowest), short(highest)
    found = ~np.isnan(lowest)
    lowest, highest = np.fmin(lowest, merged_ms), np.fmax(highest, merged_ms)
    return [
        [low, high] if known else None
        for known, low, high in zip(found.tolist(), lowest.tolist(), highest.tolist(), strict=True)
    ]


def short(values: Floats) -> Floats:
    """Three digits: a range is no exact thing, and is sent to every browser."""
    with np.errstate(divide="ignore", invalid="ignore"):
        digits = 2 - np.floor(np.log10(values))
    digits = np.where(np.isfinite(digits), digits, 0.0)
    # Divided by a power of ten, a whole number becomes the one with the fewest digits; multiplied by 0.01 it does not.
    small, large = 10.0 ** np.maximum(digits, 0), 10.0 ** np.maximum(-digits, 0)
    return np.asarray(np.round(values * small / large) * large / small, np.float64)
