"""Lost messages: those damaged on disk or in a missing file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from brokerd.kernel.aside import IN_FLIGHT
from brokerd.skips import Skips

if TYPE_CHECKING:
    from brokerd.topic import Topic


class Losses:
    """Counts the lost messages of one topic, each once, however many channels find it missing."""

    def __init__(self) -> None:
        self.count = 0
        """Messages lost since the process started."""
        self.ranges = Skips()
        """The unreadable messages, whether still to be delivered or not."""
        self._counted = Skips()

    def add(self, topic: Topic, start: int, end: int) -> int:
        """Record unreadable messages. Returns how many of them were still to be delivered and not counted yet."""
        found = 0
        for first, stop in _owed(topic, start, end):
            found += stop - first - self._counted.count_between(first, stop)
            self._counted.add(first, stop)
        self.ranges.add(start, end)
        self.count += found
        return found

    def pass_over(self, start: int, end: int) -> int:
        """Note that messages cannot be read, which is no loss: they were finished. Returns 0."""
        self.ranges.add(start, end)
        return 0

    def drop_below(self, seq: int) -> None:
        """Forget the ranges below ``seq``."""
        self.ranges.drop_below(seq)
        self._counted.drop_below(seq)


def _owed(topic: Topic, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The ranges that some channel, or the topic itself, still has to deliver. Messages in flight are delivered."""
    at = max(start, min([topic.routed_end, *(channel.window.head for channel in topic.channels.values())]))
    while at < end:
        first, stop = topic.skips.next_from(at) or (end, end)
        if at < first:
            yield at, min(first, end)
        at = max(at, stop)
    for channel in topic.channels.values():
        waiting = channel.aside
        seqs = range(start, end) if end - start < len(waiting) else waiting.numbers()
        for seq in seqs:
            if start <= seq < end and (found := waiting.get(seq)) is not None and found.state != IN_FLIGHT:
                yield seq, seq + 1
    yield from topic.unrouted_between(start, end)
