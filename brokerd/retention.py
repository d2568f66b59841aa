"""How long a log keeps what nobody needs any more, so that a channel can be taken back to it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from nsqwire.durations import nanoseconds

if TYPE_CHECKING:
    from brokerd.log.log import Log


class Retention(NamedTuple):
    """``age_ns`` is counted from when a segment's last message was accepted. ``max_bytes`` is of the files of one
    topic, 0 for any number."""

    age_ns: int
    max_bytes: int

    @classmethod
    def of(cls, age: timedelta, max_bytes: int) -> Retention | None:
        """None where nothing is kept for its own sake."""
        return cls(nanoseconds(age), max_bytes) if age else None

    def first_kept(self, log: Log, now_ns: int) -> int:
        """The number of the oldest message that is to be kept; segments go as a whole."""
        nbytes = 0
        kept = log.next_seq
        for segment in reversed(log.segments):
            nbytes += segment.capacity
            is_empty = segment.next_seq == segment.first_seq
            if (not is_empty and segment.last_timestamp < now_ns - self.age_ns) or 0 < self.max_bytes < nbytes:
                break
            kept = segment.first_seq
        return kept
