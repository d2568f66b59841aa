"""The journal records of one channel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from brokerd.journal import records
from brokerd.journal.records import WAITING_RANGE


class ChannelJournal:
    """Appends the changes of the channel ``number`` with ``append``. Journals nothing after ``stop``."""

    def __init__(self, number: int, append: Callable[[bytes], None]) -> None:
        self.number = number
        self.append = append

    def stop(self) -> None:
        """Journal nothing any more: the channel was deleted."""
        self.append = journal_nothing

    def delivered(self, head: int) -> None:
        """All messages below ``head`` were delivered or skipped."""
        self.append(records.delivered(self.number, head))

    def finished(self, ranges: Sequence[tuple[int, int]]) -> None:
        """The ranges ``(first, count)`` were finished."""
        self.append(records.finished(self.number, ranges))

    def skipped(self, first: int, count: int) -> None:
        """``count`` messages from ``first`` on were skipped by the cursor."""
        self.append(records.skipped(self.number, first, count))

    def waiting(self, ranges: bytes) -> None:
        """The attempts and due times in ``ranges``, packed WAITING_RANGE."""
        for record in records.waiting_ranges(self.number, ranges):
            self.append(record)


def journal_nothing(record: bytes) -> None:
    """The ``append`` of topics and channels that are not journalled: ephemeral and deleted ones."""


def packed(seqs: Iterable[int], *, attempts: int) -> bytes:
    """Pack ascending numbers as WAITING_RANGE without a due time."""
    ranges: list[tuple[int, int]] = []
    for seq in seqs:
        if ranges and sum(ranges[-1]) == seq:
            ranges[-1] = ranges[-1][0], ranges[-1][1] + 1
        else:
            ranges.append((seq, 1))
    return b"".join(WAITING_RANGE.pack(first, count, attempts, 0) for first, count in ranges)
