"""Objects that the topics and channels of a node share: clocks, timers, the delivery queue, settings and policies."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from brokerd.clock import NodeClock
from brokerd.delivery_queue import DeliveryQueue
from brokerd.lives import Lives
from brokerd.policies import Policies
from brokerd.policy import Policy
from brokerd.scheduler import Scheduler
from brokerd.settings import BrokerSettings
from brokerd.supervisor import Supervised, Supervisor
from brokerd.syncer import Done
from brokerd.timers import CallAt, Timers
from brokerd.topology import Topology
from nsqwire.units import Seconds


class Runtime:
    """``now`` returns monotonic seconds; ``call_soon`` and ``call_at`` run a function later on the event loop."""

    def __init__(
        self,
        settings: BrokerSettings,
        clock: NodeClock,
        *,
        now: Callable[[], Seconds],
        call_soon: Callable[[Callable[[], None]], object],
        call_at: CallAt,
    ) -> None:
        self.now = now
        self.clock = clock
        self.topology = Topology.of(settings)
        self.max_msg_timeout_s = settings.max_msg_timeout.total_seconds()
        self.mem_queue_size = settings.mem_queue_size
        self.dedup_window_s = settings.dedup_window.total_seconds()
        self.policies = Policies(Policy.of(settings), {})
        self.lives = Lives()
        self.publish: Callable[[str, Sequence[bytes], Sequence[bytes]], object]
        """Publishes bodies, each with its header block, which is empty without headers, to a topic. The topic is
        created if needed. Raises NSQError and OSError. The broker sets it."""
        self.when_stored: Callable[[Done], None]
        """Calls a function once all that was published is on the disk, or with the error. The broker sets it."""
        self.is_stopping = False
        """True once the process ends. Deliveries that this interrupts have not failed."""
        self.scheduler = Scheduler(call_soon)
        self.supervisor = Supervisor(lambda channel, when: self.timers.schedule(channel, when))
        self.timers: Timers[Supervised] = Timers(
            lambda when: call_at(when, lambda: self.timers.fire(now())), self.supervisor.tick
        )
        self.wake = DeliveryQueue(now, call_soon, self.scheduler, self.supervisor).wake
        """Schedules a delivery of a channel after the current input is handled."""
