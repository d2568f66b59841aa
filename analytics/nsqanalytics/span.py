"""A span of time, and the lengths of which it is made."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

HOUR, DAY, WEEK = timedelta(hours=1), timedelta(days=1), timedelta(weeks=1)
HOURS_OF_DAY, HOURS_OF_WEEK = 24, 168


@dataclass(frozen=True)
class Span:
    """A span of time, [since, until)."""

    since: datetime
    until: datetime

    def earlier(self, by: timedelta) -> Span:
        """Return the span of the same length that begins earlier by ``by``."""
        return Span(self.since - by, self.until - by)
