"""Windows of time over arrays of times in microseconds since the epoch, as in nsqanalytics/transforms/windows.py."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import numpy as np

from nsqanalytics.counting.columns import Integers

_EPOCH = datetime.fromtimestamp(0, UTC)
_MICROSECOND = timedelta(microseconds=1)


def window_starts(times: Integers, window: timedelta, cuts: Sequence[datetime] = ()) -> Integers:
    """Return the start of the window that contains each time. ``window`` is in whole seconds.

    Each of ``cuts`` divides the window that contains it: times from the cut on are in a window that begins there.
    """
    length = window // _MICROSECOND
    starts = times // length * length
    for cut in sorted((cut - _EPOCH) // _MICROSECOND for cut in cuts):
        starts = np.where(times >= cut, np.maximum(starts, cut), starts)
    return starts
