"""The queue of channels that have messages to deliver."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from brokerd.scheduler import Scheduler
from brokerd.supervisor import Supervised, Supervisor
from nsqwire.units import Seconds


class DeliveryQueue:
    """Runs the deliveries of woken channels after the current input is handled, one slice of time per turn.

    ``now`` returns monotonic seconds; ``call_soon`` runs a function in the next turn of the event loop.
    """

    def __init__(
        self,
        now: Callable[[], Seconds],
        call_soon: Callable[[Callable[[], None]], object],
        scheduler: Scheduler,
        supervisor: Supervisor,
    ) -> None:
        self._now = now
        self._call_soon = call_soon
        self._scheduler = scheduler
        self._supervisor = supervisor
        self._channels: deque[Supervised] = deque()
        self._is_scheduled = False

    def wake(self, channel: Supervised) -> None:
        """Queue ``channel``, unless it is queued already."""
        if channel.awake:
            return
        channel.awake = True
        self._channels.append(channel)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self._run)

    def _run(self) -> None:
        self._is_scheduled = False
        scheduler, channels = self._scheduler, self._channels
        deadline, now = scheduler.deadline(), self._now()
        for _ in range(len(channels)):
            channel = channels.popleft()
            channel.awake = False
            self._supervisor.deliver(channel, now)
            if scheduler.clock() >= deadline:
                break
        if channels:
            self._schedule()
