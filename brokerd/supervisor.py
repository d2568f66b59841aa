"""Runs the deliveries and timers of channels; logs, counts and retries those that fail."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Literal, Protocol

from nsqwire.units import Seconds

logger = logging.getLogger("brokerd")

FIRST_DELAY_S = 0.1
MAX_DELAY_S = 5.0

Work = Literal["delivery", "timer"]


class Supervised(Protocol):
    """The part of a channel that the supervisor, the delivery queue and the timers use.

    Only the delivery queue sets ``awake``, and only the timers set ``wake_at``.
    """

    name: str
    topic_name: str
    gone: bool
    awake: bool
    wake_at: Seconds

    def pump(self, now: Seconds) -> None:
        """Deliver messages."""
        ...

    def tick(self, now: Seconds) -> None:
        """Handle timeouts and due times, then wake the channel."""
        ...


class Supervisor:
    """Runs deliveries and timers, and schedules a retry of those that fail.

    ``run_at(channel, when)`` schedules a channel's timer at ``when``, monotonic seconds. The timer wakes its channel,
    so it also retries a failed delivery.
    """

    def __init__(self, run_at: Callable[[Supervised, float], None]) -> None:
        self.failure_count = 0
        """Deliveries and timers that failed since the process started."""
        self._run_at = run_at
        self._failing: dict[tuple[Supervised, Work], tuple[int, float]] = {}  # consecutive failures, time of the retry

    def deliver(self, channel: Supervised, now: Seconds) -> None:
        """Deliver messages of ``channel``, unless it waits for a retry."""
        self._run(channel, "delivery", channel.pump, now)

    def tick(self, channel: Supervised, now: Seconds) -> None:
        """Run the timer of ``channel``, unless it waits for a retry."""
        self._run(channel, "timer", channel.tick, now)

    def _run(self, channel: Supervised, work: Work, run: Callable[[float], None], now: Seconds) -> None:
        failures, retry_at = self._failing.get((channel, work), (0, now)) if self._failing else (0, now)
        if now < retry_at:
            self._run_at(channel, retry_at)
            return
        try:
            run(now)
        except Exception as error:
            delay_s = min(FIRST_DELAY_S * 2**failures, MAX_DELAY_S)
            self._failing = {key: state for key, state in self._failing.items() if not key[0].gone}
            self._failing[channel, work] = failures + 1, now + delay_s
            self.failure_count += 1
            self._log(channel, work, error, delay_s, is_first=not failures)
            self._run_at(channel, now + delay_s)
        else:
            if failures:
                del self._failing[channel, work]

    @staticmethod
    def _log(channel: Supervised, work: Work, error: Exception, delay_s: float, *, is_first: bool) -> None:
        # A system error needs no traceback. Anything else is a bug; its traceback is logged once.
        expected = isinstance(error, OSError)
        logger.error(
            "TOPIC(%s): CHANNEL(%s): %s failed: %s; next attempt in %.1f s",
            channel.topic_name,
            channel.name,
            work,
            error if expected else repr(error),
            delay_s,
            exc_info=error if is_first and not expected else None,
        )
