"""Background threads that delay the event loop as little as possible.

Many Linux kernels let a thread finish its system call before another gets the same processor. A call that takes
milliseconds stops the event loop for as long, if both share a processor. So long calls are made in pieces.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

PIECE_BYTES = 128 * 1024
"""The system writes or frees this many bytes in about ten microseconds."""
MAX_PIECES = 64
"""More bytes are divided into larger pieces, so that the pauses add up to little."""
PAUSE_S = 0.000_5


def use_batch_scheduling() -> None:
    """On Linux, schedule this thread as SCHED_BATCH: it does not interrupt the event loop's thread when it wakes up.

    Otherwise clients would wait for it.
    """
    if sys.platform == "linux":
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def pieces(start: int, end: int) -> Iterator[tuple[int, int]]:
    """Divide the bytes ``[start, end)`` into ranges ``[start, end)``, with a pause after each.

    All but the last have the same length, a multiple of PIECE_BYTES: those of a map must begin at pages.
    """
    nbytes = PIECE_BYTES * max(1, -(-(end - start) // (PIECE_BYTES * MAX_PIECES)))
    for offset in range(start, end, nbytes):
        yield offset, min(offset + nbytes, end)
        time.sleep(PAUSE_S)
