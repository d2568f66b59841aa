"""Lost messages: those damaged on disk or in a missing file."""

from __future__ import annotations

from collections.abc import Iterable

from brokerd.ranges import Ranges


class Losses:
    """Counts the lost messages of one topic. Each counts once, even if several channels still had to deliver it."""

    def __init__(self) -> None:
        self.count = 0
        """Messages lost since the process started."""
        self.ranges = Ranges()
        """The unreadable messages, whether still to be delivered or not."""
        self.undelivered = Ranges()
        """The messages that are counted: they were still to be delivered."""

    def add(self, start: int, end: int, undelivered: Iterable[tuple[int, int]]) -> int:
        """Record the unreadable messages ``[start, end)``; the ranges ``undelivered`` were still to be delivered.

        Returns the number of undelivered messages that were not counted before.
        """
        found = 0
        for first, stop in undelivered:
            found += stop - first - self.undelivered.count_between(first, stop)
            self.undelivered.add(first, stop)
        self.ranges.add(start, end)
        self.count += found
        return found

    def add_finished(self, start: int, end: int) -> None:
        """Record unreadable messages that were finished, which is no loss."""
        self.ranges.add(start, end)

    def drop_below(self, seq: int) -> None:
        """Forget the ranges below ``seq``."""
        self.ranges.drop_below(seq)
        self.undelivered.drop_below(seq)
