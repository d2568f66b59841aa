"""Windows of time: whole multiples of a length since the epoch, so 1h and 1d begin where UTC's hours and days do."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import pairwise

from pyspark.sql import Column
from pyspark.sql import functions as F


def window_start(taken_at: str, window: timedelta) -> Column:
    """The start of the window that the time in column ``taken_at`` lies in; ``window`` is in whole seconds."""
    seconds = int(window.total_seconds())
    return F.timestamp_seconds(F.floor(F.unix_seconds(taken_at) / seconds) * seconds)


def floor_to_window(moment: datetime, window: timedelta) -> datetime:
    """The same, of one moment."""
    return moment - timedelta(seconds=moment.timestamp() % window.total_seconds())


def covering(buckets: Iterable[int], most: int) -> list[tuple[int, int]]:
    """At most ``most`` ranges, first and last bucket of each, that hold all buckets and leave out the widest gaps."""
    ordered = sorted(buckets)
    gaps = sorted(((after - before, before, after) for before, after in pairwise(ordered)), reverse=True)[: most - 1]
    edges = sorted((before, after) for _, before, after in gaps)
    firsts = [*ordered[:1], *(after for _, after in edges)]
    lasts = [*(before for before, _ in edges), *ordered[-1:]]
    return list(zip(firsts, lasts, strict=True))
