"""A channel's position in its topic's log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from brokerd.kernel import Window

if TYPE_CHECKING:
    from brokerd.log.segment import Segment
    from brokerd.topic import Topic


class Run(NamedTuple):
    """Messages ``first`` up to ``end`` in their first delivery, and their frames."""

    first: int
    end: int
    frames: memoryview


class Cursor:
    """Delivers a topic's messages in order, without those in ``topic.skips``.

    Delivered messages are in ``window`` until they are answered. ``skipping(first, count)`` is called before messages
    are skipped.
    """

    def __init__(self, topic: Topic, head: int, skipping: Callable[[int, int], None]) -> None:
        self.window = Window(head)
        self._topic = topic
        self._skipping = skipping
        self._segment: Segment | None = None
        self._offset = 0

    @property
    def backlog(self) -> int:
        """Number of messages that are still to be delivered for the first time."""
        head, end = self.window.head, self._topic.routed_end
        return end - head - self._topic.skips.count_between(head, end) if head < end else 0

    def ahead(self, offset: int = 0) -> Iterator[int]:
        """The numbers of the backlog, oldest first, without the first ``offset``."""
        head, end, skips = self.window.head, self._topic.routed_end, self._topic.skips
        while head < end:
            start, stop = skips.next_from(head) or (end, end)
            yield from range(head + offset, min(start, end))
            offset = max(0, offset - max(0, min(start, end) - head))
            head = stop

    def next_run(self, limit: int, max_bytes: int, client: int) -> Run | None:
        """Put messages in flight with the client of this number; None if there are none.

        At most ``limit``, and as many as fit in ``max_bytes`` but at least one. Raises OSError, with nothing put in
        flight, if their segment is not mapped and cannot be.
        """
        window, topic = self.window, self._topic
        while True:
            stop = self.step_over_skips()
            first = window.head
            if first >= stop:
                return None
            segment = self._segment
            if segment is None or first >= segment.next_seq:
                segment = topic.log.segment_of(first)
            if first >= segment.checked_end:  # before anything is read from its frames
                topic.check_batches(segment, first)
                continue
            if segment is not self._segment:
                self._segment, self._offset = segment, segment.offset_of(first)
            break
        start, log = self._offset, segment.map
        limit = min(limit, stop - first, segment.checked_end - first)
        count, self._offset = window.deliver(log, start, segment.end, limit, max_bytes, client)
        return Run(first, first + count, log[start : self._offset]) if count else None

    def step_over_skips(self) -> int:
        """Skip the ranges at the head that must not be delivered. Returns the start of the next one, or the end."""
        stop = self._topic.routed_end
        skips = self._topic.skips
        if not skips:
            return stop
        while (skip := skips.next_from(self.window.head)) is not None:
            start, end = skip
            if start > self.window.head:
                return min(stop, start)
            self.skip(end - self.window.head)
        return stop

    def skip(self, count: int) -> None:
        """Skip ``count`` messages."""
        self._skipping(self.window.head, count)
        self.window.skip(count)
        self._segment = None

    def move_to(self, seq: int) -> None:
        """Forget the messages in flight and continue at ``seq``."""
        self.window.clear(seq)
        self._segment = None
