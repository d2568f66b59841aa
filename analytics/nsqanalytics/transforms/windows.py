"""Windows of time: whole multiples of a length since the epoch, so 1h and 1d are aligned to UTC hours and days."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from nsqanalytics.job_parameters import Span

EPOCH = datetime.fromtimestamp(0, UTC)


def window_start(taken_at: str, window: timedelta, cuts: Sequence[datetime] = ()) -> Column:
    """The start of the window that the time in column ``taken_at`` lies in; ``window`` is in whole seconds.

    Each of ``cuts`` divides the window that it lies in: times at or after it are in a window that begins there.
    """
    seconds = int(window.total_seconds())
    start = F.timestamp_seconds(F.floor(F.unix_seconds(taken_at) / seconds) * seconds)
    for cut in sorted(cuts):
        start = F.when(F.col(taken_at) >= F.lit(cut), F.greatest(start, F.lit(cut))).otherwise(start)
    return start


def covered(rows: DataFrame, span: Span, start: str = "window_start", length: timedelta | None = None) -> DataFrame:
    """Rows with ``covered_since`` and ``covered_until``: the part of ``span`` that the window has which begins in the
    column ``start``. Without ``length``, a row is about all of the span.
    """
    since, until = F.lit(span.since), F.lit(span.until)
    if length is not None:
        end = F.col(start) + F.make_dt_interval(secs=F.lit(length.total_seconds()))
        since, until = F.greatest(F.col(start), since), F.least(end, until)
    return rows.withColumns({"covered_since": since, "covered_until": until})


def floor_to_window(moment: datetime, window: timedelta) -> datetime:
    """The start of the window that a moment lies in."""
    return moment - (moment - EPOCH) % window


def cuts(span: Span, window: timedelta) -> list[datetime]:
    """The ends of the span that lie within a window, not between two."""
    return [end for end in (span.since, span.until) if floor_to_window(end, window) != end]


def covering(buckets: Iterable[int], most: int) -> list[tuple[int, int]]:
    """At most ``most`` ranges (first and last bucket) that contain all buckets and leave out the widest gaps."""
    ordered = sorted(buckets)
    gaps = sorted(((after - before, before, after) for before, after in pairwise(ordered)), reverse=True)[: most - 1]
    edges = sorted((before, after) for _, before, after in gaps)
    firsts = [*ordered[:1], *(after for _, after in edges)]
    lasts = [*(before for before, _ in edges), *ordered[-1:]]
    return list(zip(firsts, lasts, strict=True))
