"""A client that behaves well while a fuzzer sends anything, and what a fuzzer found."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

from tests.harness.waiting import DEADLINE_S


class Fuzzed(NamedTuple):
    """The result of a fuzzer. ``failures`` has a line for each thing that went wrong."""

    target: str
    seed: int
    conversations: int
    asked: int
    """Messages that the bystander published, or questions that it asked."""
    answered: int
    """Those of them that it received, or was answered."""
    unexpected: int
    """Messages that it received without having published them, or more than once."""
    failures: list[str]


class Bystander(threading.Thread):
    """A client that behaves well. It takes turns until it is stopped; ``failure`` is what ended it before."""

    def __init__(self, turn: Callable[[], bool]) -> None:
        super().__init__(daemon=True)
        self._turn = turn
        self._stop_asked = threading.Event()
        self.asked = self.answered = self.unexpected = 0
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            while not self._stop_asked.is_set():
                self.asked += 1
                if self._turn():
                    self.answered += 1
                else:
                    self.unexpected += 1
                    return
        except Exception as error:  # whatever it is, it is reported with the seed
            self.failure = error

    def end(self) -> None:
        """Let it finish its turn."""
        self._stop_asked.set()
        self.join(2 * DEADLINE_S)
