"""Windows of time: whole multiples of a length since the epoch, so 1h and 1d begin where UTC's hours and days do."""

from __future__ import annotations

from datetime import datetime, timedelta

from pyspark.sql import Column
from pyspark.sql import functions as F


def window_start(taken_at: str, window: timedelta) -> Column:
    """The start of the window that the time in column ``taken_at`` lies in; ``window`` is in whole seconds."""
    seconds = int(window.total_seconds())
    return F.timestamp_seconds(F.floor(F.unix_seconds(taken_at) / seconds) * seconds)


def floor_to_window(moment: datetime, window: timedelta) -> datetime:
    """The same, of one moment."""
    return moment - timedelta(seconds=moment.timestamp() % window.total_seconds())
