"""What a channel does with messages whose deliveries fail."""

from __future__ import annotations

from typing import NamedTuple, Self

from brokerd.settings import BrokerSettings, parse_retry_delay
from nsqwire.units import Seconds

NO_DELAY = (0.0, 0.0)


class Policy(NamedTuple):
    """``max_attempts`` 0 means no limit. ``retry_delay_s`` has the least and the greatest delay."""

    max_attempts: int = 0
    retry_delay_s: tuple[Seconds, Seconds] = NO_DELAY

    @classmethod
    def of(cls, settings: BrokerSettings) -> Self:
        """The policy of the settings."""
        return cls(settings.max_attempts, parse_retry_delay(settings.retry_delay))

    @property
    def counts_failures(self) -> bool:
        """True if failed deliveries have to be counted."""
        return self.max_attempts > 0 or self.retry_delay_s != NO_DELAY

    def is_last(self, failures: int) -> bool:
        """Return whether a message is dead after this number of failed deliveries."""
        return 0 < self.max_attempts <= failures

    def delay_s(self, failures: int) -> Seconds:
        """The delay after this number of failed deliveries; 0 for none."""
        least, most = self.retry_delay_s
        return min(least * failures, most)
