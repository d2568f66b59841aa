"""Windows of time. They begin at multiples of their length since the epoch, so 1h and 1d are UTC hours and days."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from nsqanalytics.span import Span

EPOCH = datetime.fromtimestamp(0, UTC)


def window_start(taken_at: str, window: timedelta, cuts: Sequence[datetime] = ()) -> Column:
    """Return the start of the window that contains the time in column ``taken_at``; ``window`` is in whole seconds.

    Each of ``cuts`` divides the window that contains it: times from the cut on are in a window that begins there.
    """
    seconds = int(window.total_seconds())
    start = F.timestamp_seconds(F.floor(F.unix_seconds(taken_at) / seconds) * seconds)
    for cut in sorted(cuts):
        start = F.when(F.col(taken_at) >= F.lit(cut), F.greatest(start, F.lit(cut))).otherwise(start)
    return start


def covered(rows: DataFrame, span: Span, start: str = "window_start", length: timedelta | None = None) -> DataFrame:
    """Add ``covered_since`` and ``covered_until``: the part of the row's window that lies in ``span``.

    The window begins at the time in column ``start`` and lasts ``length``. Without ``length``, it is the whole span.
    """
    since, until = F.lit(span.since), F.lit(span.until)
    if length is not None:
        end = F.col(start) + F.make_dt_interval(secs=F.lit(length.total_seconds()))
        since, until = F.greatest(F.col(start), since), F.least(end, until)
    return rows.withColumns({"covered_since": since, "covered_until": until})


def floor_to_window(moment: datetime, window: timedelta) -> datetime:
    """Return the start of the window that contains a moment."""
    return moment - (moment - EPOCH) % window


def cuts(span: Span, window: timedelta) -> list[datetime]:
    """Return the ends of the span that lie inside a window, not on the boundary of two."""
    return [end for end in (span.since, span.until) if floor_to_window(end, window) != end]


def covering(slots: Iterable[int], most: int) -> list[tuple[int, int]]:
    """Return at most ``most`` ranges (first and last slot) that contain all slots and omit the widest gaps."""
    ordered = sorted(slots)
    gaps = sorted(((after - before, before, after) for before, after in pairwise(ordered)), reverse=True)[: most - 1]
    edges = sorted((before, after) for _, before, after in gaps)
    firsts = [*ordered[:1], *(after for _, after in edges)]
    lasts = [*(before for before, _ in edges), *ordered[-1:]]
    return list(zip(firsts, lasts, strict=True))
