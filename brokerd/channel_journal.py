"""The journal records of one channel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from brokerd.dead import DeadMessage
from brokerd.journal import records
from brokerd.kernel.waiting import WAITING_RANGE


class ChannelJournal:
    """Journals the changes of channel ``number`` by calling ``append``. After ``stop`` it journals nothing."""

    def __init__(self, number: int, append: Callable[[bytes], None]) -> None:
        self.number = number
        self.append = append

    def stop(self) -> None:
        """Stop journalling, because the channel was deleted."""
        self.append = journal_nothing

    def delivered(self, head: int) -> None:
        """Journal that all messages below ``head`` were delivered or skipped."""
        self.append(records.delivered(self.number, head))

    def finished(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Journal that the ranges ``(first, count)`` were finished."""
        self.append(records.finished(self.number, ranges))

    def skipped(self, first: int, count: int) -> None:
        """Journal that the cursor skipped ``count`` messages from ``first`` on."""
        self.append(records.skipped(self.number, first, count))

    def waiting(self, ranges: bytes) -> None:
        """Journal the attempts and due times in ``ranges``, packed WAITING_RANGE."""
        for record in records.waiting_ranges(self.number, ranges):
            self.append(record)

    def failed(self, failures: Sequence[tuple[int, int, int]]) -> None:
        """Journal failed deliveries: ``(seq, number of failures, Unix ns of the first)``."""
        for record in records.failed(self.number, failures):
            self.append(record)

    def dead(self, messages: Sequence[DeadMessage]) -> None:
        """Journal that messages died."""
        for record in records.dead(self.number, messages):
            self.append(record)


def journal_nothing(record: bytes) -> None:
    """Do nothing. The ``append`` of ephemeral and of deleted topics and channels."""


def packed(seqs: Iterable[int], *, attempts: int) -> bytes:
    """Pack ascending numbers as WAITING_RANGE without a due time."""
    return b"".join(WAITING_RANGE.pack(first, count, attempts, 0) for first, count in ranges_of(seqs))


def ranges_of(seqs: Iterable[int]) -> list[tuple[int, int]]:
    """Ascending numbers as ``(first, count)`` ranges."""
    ranges: list[tuple[int, int]] = []
    for seq in seqs:
        if ranges and sum(ranges[-1]) == seq:
            ranges[-1] = ranges[-1][0], ranges[-1][1] + 1
        else:
            ranges.append((seq, 1))
    return ranges
