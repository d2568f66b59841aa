"""The plain twin of ``Runs``: the runs of first deliveries to one client, with their times."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from nsqwire.units import Seconds

NEVER = float("inf")


class Run(NamedTuple):
    """The messages ``[first, end)``, which were sent together. Times are monotonic seconds."""

    first: int
    end: int
    sent_at: Seconds
    deadline: Seconds


class Runs:
    """The runs of one client. Messages, send times and deadlines all increase from run to run."""

    def __init__(self) -> None:
        self._runs: deque[Run] = deque()

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def next_deadline(self) -> Seconds:
        """When the oldest run times out; infinity if there is none."""
        return self._runs[0].deadline if self._runs else NEVER

    def add(self, first: int, end: int, sent_at: Seconds, deadline: Seconds, floor: int) -> None:
        """Add a run, and forget the oldest ones below ``floor``: no message of these is in the window any more."""
        runs = self._runs
        while runs and runs[0].end <= floor:
            runs.popleft()
        runs.append(Run(first, end, sent_at, deadline))

    def pop(self) -> tuple[int, int]:
        """Remove the oldest run and return its ``(first, end)``. Raises IndexError if there is none."""
        run = self._runs.popleft()
        return run.first, run.end

    def sent_at(self, seq: int) -> Seconds:
        """When message ``seq`` was sent; 0 if it is in no run."""
        return next((run.sent_at for run in self._runs if run.first <= seq < run.end), 0.0)

    def clear(self) -> None:
        """Forget all runs."""
        self._runs.clear()
