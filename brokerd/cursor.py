"""A channel's position in its topic's log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from brokerd.kernel import Window
from brokerd.ranges import Ranges

if TYPE_CHECKING:
    from brokerd.log.segment import Segment
    from brokerd.topic_log import TopicLog


class Run(NamedTuple):
    """The messages ``[first, end)`` in their first delivery, and their frames."""

    first: int
    end: int
    frames: memoryview


class Cursor:
    """Delivers a topic's messages in order, without those in ``messages.skipped`` and ``removed``.

    Delivered messages are in ``window`` until they are acknowledged. ``skipping(first, count)`` is called before
    messages are skipped.
    """

    def __init__(self, messages: TopicLog, window: Window, skipping: Callable[[int, int], None]) -> None:
        self.removed = Ranges()
        """The messages ahead that an operator has finished. None of them is in ``messages.skipped``."""
        self._window = window
        self._messages = messages
        self._skipping = skipping
        self._segment: Segment | None = None
        self._offset = 0

    @property
    def backlog(self) -> int:
        """Number of messages that are still to be delivered for the first time."""
        return self.count_below(self._messages.routed_end)

    def count_below(self, end: int) -> int:
        """Number of messages of the backlog below ``end``, which is at most the end of the routed messages."""
        head = self._window.head
        if head >= end:
            return 0
        return end - head - self._messages.skipped.count_between(head, end) - self.removed.count_between(head, end)

    def ahead(self, offset: int = 0) -> Iterator[int]:
        """Yield the numbers of the backlog, oldest first, after the first ``offset``."""
        for first, count in self._outside(self._window.head):
            yield from range(first + offset, first + count)
            offset = max(0, offset - count)

    def ahead_from(self, seq: int) -> Iterator[int]:
        """Yield the numbers of the backlog from message ``seq`` on, oldest first."""
        for first, count in self._outside(max(seq, self._window.head)):
            yield from range(first, first + count)

    def _outside(self, start: int) -> Iterator[tuple[int, int]]:
        for first, count in self._messages.skipped.outside(start, self._messages.routed_end):
            yield from self.removed.outside(first, first + count)

    def gaps(self) -> list[tuple[int, int]]:
        """The ranges ``[start, end)`` ahead that are not in the backlog, in order."""
        start, end = self._window.head, self._messages.routed_end
        return sorted([*self._messages.skipped.inside(start, end), *self.removed.inside(start, end)])

    def is_ahead(self, seq: int) -> bool:
        """Return whether message ``seq`` is in the backlog."""
        is_routed = self._window.head <= seq < self._messages.routed_end
        return is_routed and seq not in self._messages.skipped and seq not in self.removed

    def remove(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Deliver no message of the ``(first, count)`` ranges, as far as they are ahead. The caller journals it."""
        head = self._window.head
        for first, count in ranges:
            for start, length in self._messages.skipped.outside(max(first, head), first + count):
                self.removed.add(start, start + length)

    def skipped_grew(self) -> None:
        """Leave out of ``removed`` what a range added to ``messages.skipped`` has in common with it."""
        if self.removed:
            before, self.removed = self.removed, Ranges()
            self.remove((start, end - start) for start, end in before)

    def next_run(self, limit: int, max_bytes: int, client: int, *, opens_headers: bool = False) -> Run | None:
        """Put the next messages in flight with the client number ``client``. Returns None if there are none.

        The run has at most ``limit`` messages, and at most ``max_bytes`` bytes unless its first message is longer.
        Raises OSError, with nothing put in flight, if the segment cannot be mapped, or with ``opens_headers`` if its
        headers cannot be opened.
        """
        window, messages = self._window, self._messages
        while True:
            stop = self.skip_ranges()
            first = window.head
            if first >= stop:
                return None
            segment = self._segment
            if segment is None or first >= segment.next_seq:
                segment = messages.log.segment_of(first)
            if first >= segment.checked_end:  # before anything is read from its frames
                messages.check_batches(segment, first)
                continue
            if segment is not self._segment:
                self._segment, self._offset = segment, segment.offset_of(first)
            break
        start, log = self._offset, segment.map
        if opens_headers:
            segment.open_headers()
        limit = min(limit, stop - first, segment.checked_end - first)
        count, self._offset = window.deliver(log, start, segment.end, limit, max_bytes, client)
        return Run(first, first + count, log[start : self._offset]) if count else None

    def skip_ranges(self) -> int:
        """Skip the ranges at the head that must not be delivered.

        Returns the start of the next such range, or the end of the routed messages. Deferred publishes that wait in the
        topic are not skipped yet: if their commit record is damaged, they are delivered as messages without delay.
        """
        stop = self._messages.routed_end
        skips, removed = self._messages.skipped, self.removed
        if not skips and not removed:
            return stop
        while (head := self._window.head) < stop:
            found = [skip for each in (skips, removed) if (skip := each.next_from(head)) is not None]
            if not found:
                break
            skip = min(found)
            start, end = skip
            if start > head:
                return min(stop, start)
            self.skip(min(end, stop) - head)
        return stop

    def skip(self, count: int) -> None:
        """Skip ``count`` messages."""
        self._skipping(self._window.head, count)
        self._window.skip(count)
        if self.removed:
            self.removed.drop_below(self._window.head)
        self._segment = None

    def move_to(self, seq: int) -> None:
        """Forget the messages in flight and the removed ones, and continue at ``seq``."""
        self._window.clear(seq)
        self._messages.move_count += 1
        self.removed = Ranges()
        self._segment = None
