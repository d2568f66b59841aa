"""Retention of messages that no channel needs, so that a channel can be rewound to them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from nsqwire.durations import nanoseconds

if TYPE_CHECKING:
    from brokerd.log.log import Log


class Retention(NamedTuple):
    """Segments are kept for ``age_ns`` after their last message was accepted, up to ``max_bytes`` per topic.

    ``max_bytes`` 0 means no limit.
    """

    age_ns: int
    max_bytes: int

    @classmethod
    def of(cls, age: timedelta, max_bytes: int) -> Retention | None:
        """The retention of these settings; None if it is off."""
        return cls(nanoseconds(age), max_bytes) if age else None

    def first_kept(self, log: Log, now_ns: int) -> int:
        """The number of the oldest message to keep; segments are removed as a whole."""
        nbytes = 0
        kept = log.next_seq
        for segment in reversed(log.segments):
            nbytes += segment.allocated_bytes
            is_empty = segment.next_seq == segment.first_seq
            if (not is_empty and segment.last_timestamp < now_ns - self.age_ns) or 0 < self.max_bytes < nbytes:
                break
            kept = segment.first_seq
        return kept
