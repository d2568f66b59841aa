"""Busy polling: after small input, the event loop polls for more for some microseconds before it sleeps.

Putting the process to sleep and waking it costs more processor time than a small publish. A client that waits for each
response before it sends the next command would also wait for the wake-up every time. For other clients polling is no
gain: a process that never sleeps waits longer for the processor when another thread, such as that of the syncer, runs.
So only input of the same client counts as a poll's success.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from nsqwire.units import Seconds

POLL_SECONDS: Final = 40e-6
"""Longest poll: about the processor time of sleeping and waking."""
PROBE_EVERY: Final = 64
"""While polls find nothing, only one input in this many is followed by a poll."""
MISS_COST: Final = 3
"""Number of successful polls that make up for one without success."""
MAX_CREDIT: Final = 8 * MISS_COST


class BusyPolling:
    """Makes the event loop poll after input, as long as most polls find more input in time.

    ``call_soon`` runs a function in the next turn of the event loop, which does not sleep before it. ``clock`` returns
    seconds.
    """

    def __init__(
        self, call_soon: Callable[[Callable[[], None]], object], clock: Callable[[], Seconds] = time.perf_counter
    ) -> None:
        self._call_soon = call_soon
        self._clock = clock
        self._source: object | None = None  # whose input started the poll; None while there is no poll
        self._deadline: Seconds = 0.0  # 0 until the first turn of the loop after input
        self._credit = 0
        self._until_probe = PROBE_EVERY

    def input_arrived(self, source: object) -> None:
        """Poll after this turn of the event loop if ``source``, a connection, is likely to send more at once.

        To be called for each input.
        """
        if self._source is not None:
            if self._deadline and source is self._source:
                self._deadline = 0.0
                self._credit = min(self._credit + 1, MAX_CREDIT)
            return
        if not self._credit:
            self._until_probe -= 1
            if self._until_probe:
                return
            self._until_probe = PROBE_EVERY
        self._source = source
        self._deadline = 0.0
        self._call_soon(self._poll)

    def _poll(self) -> None:
        now = self._clock()
        if not self._deadline:
            self._deadline = now + POLL_SECONDS
        if now < self._deadline:
            self._call_soon(self._poll)
        else:
            self._source = None
            self._credit = max(0, self._credit - MISS_COST)
