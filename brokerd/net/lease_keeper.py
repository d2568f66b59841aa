"""Renews a primary's lease in a thread, while the event loop recovers the data path."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from brokerd.net.arbiter import Arbiter, ArbiterFailed
from nsqwire.units import Seconds


class LeaseKeeper:
    """Renews ``lease`` every ``interval_s`` until it is stopped, each time after ``check_disk`` has returned.

    As in :class:`brokerd.mirror.election.Election`, a disk that hangs stops the renewals. ``now`` returns seconds.
    """

    def __init__(
        self,
        arbiter: Arbiter,
        lease: str,
        *,
        check_disk: Callable[[], None],
        interval_s: Seconds,
        now: Callable[[], Seconds],
    ) -> None:
        self.sent_at: Seconds | None = None
        """When the last successful renewal was sent; None if there was none."""
        self.is_lost = False
        """True if the arbiter has ended the lease."""
        self._arbiter, self._lease = arbiter, lease
        self._check_disk, self._interval_s, self._now = check_disk, interval_s, now
        self._ends = threading.Event()

    def __enter__(self) -> LeaseKeeper:
        threading.Thread(target=lambda: asyncio.run(self._keep()), name="lease", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()  # the thread is not waited for: the disk may hang

    async def _keep(self) -> None:
        while not self._ends.is_set():
            began = self._now()
            try:
                self._check_disk()
                sent_at = self._now()
                if not await self._arbiter.renew(self._lease):
                    self.is_lost = True
                    return
                self.sent_at = sent_at
            except (ArbiterFailed, OSError):
                pass  # tried again, as long as the lease lasts
            self._ends.wait(max(0.0, began + self._interval_s - self._now()))  # nothing else runs in this event loop
