"""A client of a mirrored pair that publishes one message after the other while members come and go, and its pace."""

from __future__ import annotations

import threading
import time
from array import array
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np

from bench import load
from bench.errors import BenchError
from bench.links import connect
from bench.pair import until
from bench.server import Address


@dataclass(frozen=True)
class Pace:
    """How fast publishes were answered in some span of time."""

    per_second: float
    p99_ms: float
    longest_ms: float


class Publisher:
    """A thread that publishes one message after the other, each when the last is answered."""

    def __init__(self, address: Address, command: bytes) -> None:
        self._sock, self._replies = load.publisher(address)
        self._command = command
        self._ends = threading.Event()
        self._answered, self._latencies = array("d"), array("d")  # seconds, by perf_counter
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._publish, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ends.set()
        self._thread.join()
        self._sock.close()

    def _publish(self) -> None:
        sent = time.perf_counter()
        try:
            while not self._ends.is_set():
                self._sock.sendall(self._command)
                self._replies.wait(1)
                answered = time.perf_counter()
                self._latencies.append(answered - sent)
                self._answered.append(answered)
                sent = answered
        except (OSError, BenchError) as error:
            self._error = error

    def stop(self) -> int:
        """End it. Returns how many messages were acknowledged. Raises BenchError if one was not."""
        self._ends.set()
        self._thread.join()
        if self._error is not None:
            raise BenchError(f"a publish failed: {self._error}")
        return len(self._answered)

    def pace(self, begin: float, end: float) -> Pace:
        """Its pace between two times, by ``perf_counter``."""
        answered = np.array(self._answered[:])  # of copies: an array cannot grow while it is looked at
        latencies = np.array(self._latencies[: len(answered)])
        chosen = latencies[(answered >= begin) & (answered < end)] * 1000
        if not len(chosen):
            return Pace(0.0, (end - begin) * 1000, (end - begin) * 1000)
        return Pace(len(chosen) / (end - begin), float(np.percentile(chosen, 99)), float(chosen.max()))


def first_answer(address: Address, command: bytes) -> float:
    """Publish until a publish is answered. Returns the time, by ``perf_counter``."""

    def is_answered() -> bool:
        with suppress(OSError, BenchError), connect(address) as sock:
            sock.sendall(load.GREETING + command)
            load.Replies(sock).wait(2)
            return True
        return False

    until(is_answered, "a publish is answered")
    return time.perf_counter()
