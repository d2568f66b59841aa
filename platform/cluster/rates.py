"""Rates from two readings of counters."""

from __future__ import annotations

from collections.abc import Iterable


def per_second(before: int | None, after: int, elapsed: float | None) -> float | None:
    """How fast a counter rose over ``elapsed`` seconds; None without an earlier reading.

    A counter that fell within one life of its process (a channel deleted and made again, messages removed by
    ``empty`` after they were counted) reads as zero: nothing is known to have happened.
    """
    if before is None or elapsed is None or elapsed <= 0:
        return None
    return max(0.0, (after - before) / elapsed)


def total(rates: Iterable[float | None]) -> float | None:
    """Sum over nodes of those that are known, to two places; None if none is."""
    known = [rate for rate in rates if rate is not None]
    return round(sum(known), 2) if known else None
