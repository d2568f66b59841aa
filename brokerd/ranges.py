"""Ranges of a topic's messages: skipped by cursors, emptied, or lost."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate


class Ranges:
    """Disjoint ranges ``[start, end)`` of sequence numbers, in order."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._before: list[int] = []  # the count of numbers in the ranges before this one

    def __bool__(self) -> bool:
        return bool(self._starts)

    def add(self, start: int, end: int) -> None:
        """Add a range, which may overlap others."""
        first = bisect_left(self._ends, start)
        last = bisect_right(self._starts, end)
        if first < last:
            start = min(start, self._starts[first])
            end = max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]
        del self._before[first:]
        covered = self._before[-1] + self._ends[first - 1] - self._starts[first - 1] if first else 0
        for begin, stop in zip(self._starts[first:], self._ends[first:], strict=True):
            self._before.append(covered)
            covered += stop - begin

    def add_all(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Add ranges in any order. Many between others cost as much as one."""
        merged: list[tuple[int, int]] = []
        for start, end in sorted([*self, *ranges]):
            if merged and start <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((start, end))
        self._starts, self._ends = [start for start, _ in merged], [end for _, end in merged]
        sizes = (end - start for start, end in merged)
        self._before = list(accumulate(sizes, initial=0))[:-1]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """The ranges, in order."""
        return zip(self._starts, self._ends, strict=True)

    def __contains__(self, seq: int) -> bool:
        """Return whether ``seq`` is in a range."""
        position = bisect_right(self._ends, seq)
        return position < len(self._starts) and self._starts[position] <= seq

    def next_from(self, seq: int) -> tuple[int, int] | None:
        """The range that contains ``seq``, or else the first one above it."""
        position = bisect_right(self._ends, seq)
        if position == len(self._starts):
            return None
        return self._starts[position], self._ends[position]

    def outside(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the numbers in ``[start, end)`` that are in no range, as ``(first, count)``."""
        while start < end:
            skip_start, skip_end = self.next_from(start) or (end, end)
            if skip_start > start:
                yield start, min(skip_start, end) - start
            start = skip_end

    def inside(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of the ranges that are in ``[start, end)``."""
        for position in range(bisect_right(self._ends, start), len(self._starts)):
            if self._starts[position] >= end:
                return
            yield max(self._starts[position], start), min(self._ends[position], end)

    def covered_below(self, seq: int) -> int:
        """The count of numbers below ``seq`` that are in a range. Ranges that were dropped do not count."""
        position = bisect_left(self._starts, seq)
        if not position:
            return 0
        return self._before[position - 1] + min(seq, self._ends[position - 1]) - self._starts[position - 1]

    def count_between(self, start: int, end: int) -> int:
        """The count of numbers in ``[start, end)`` that are in a range."""
        if not self._starts or end <= start:
            return 0
        return self.covered_below(end) - self.covered_below(start)

    @property
    def end(self) -> int:
        """The number after the last range; 0 if there is none."""
        return self._ends[-1] if self._ends else 0

    def drop_below(self, seq: int) -> None:
        """Forget the ranges that end at or below ``seq``."""
        position = bisect_right(self._ends, seq)
        if position:
            del self._starts[:position], self._ends[:position], self._before[:position]
            if self._before:
                base = self._before[0]
                self._before = [before - base for before in self._before]
