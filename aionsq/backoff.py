"""Slowing down while messages fail: all connections pause, one message is tried, and success or failure decides.

One machine per consumer, over all its connections. It holds no timer and no clock: it says how long to block, and is
told when that time is over.

=============  ================================  =======================================================
state          event                             next
=============  ================================  =======================================================
NORMAL (k=0)   a message fails                   BLOCKED(1), wait D(1)
BLOCKED(k)     any answer                        BLOCKED(k): that message was under way already
BLOCKED(k)     the wait is over                  TEST(k): one message is let through
TEST(k)        the test message is finished      BLOCKED(k-1), wait D(k-1); from k = 1: NORMAL
TEST(k)        it fails                          BLOCKED(k+1), wait D(k+1); the wait is at its maximum: BLOCKED(k)
TEST(k)        it is requeued without backoff    BLOCKED(k), wait D(k)
TEST(k)        it was given up                   TEST(k): that says nothing about the handler
TEST(k)        any other message is answered     TEST(k)
=============  ================================  =======================================================

D(k) is the strategy's ``calculate(k)``, never more than ``max_duration``.
Source: go-nsq's consumer. It differs in letting the wait stop short of the maximum instead of clamping to it, in
taking any answer during a test for the test's, and in counting a message that was given up as a success.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from enum import Enum
from typing import Protocol


class BackoffStrategy(Protocol):
    """How long to block after so many failures in a row."""

    def calculate(self, attempt: int) -> timedelta:
        """The time to block at level ``attempt``, 1 and up, before the maximum is applied."""


class Exponential:
    """``multiplier × 2^attempt``."""

    def __init__(self, multiplier: timedelta) -> None:
        self._multiplier = multiplier

    def calculate(self, attempt: int) -> timedelta:
        factor: int = 2 ** min(attempt, 30)  # beyond, a timedelta overflows; every maximum is passed long before
        return self._multiplier * factor


class FullJitter:
    """A uniform draw from 0 to ``multiplier × 2^attempt``, so that many consumers do not come back together."""

    def __init__(self, multiplier: timedelta) -> None:
        self.longest = Exponential(multiplier)

    def calculate(self, attempt: int) -> timedelta:
        return self.longest.calculate(attempt) * random.random()


STRATEGIES: dict[str, Callable[[timedelta], BackoffStrategy]] = {
    "exponential": Exponential,
    "full_jitter": FullJitter,
}
"""The strategies that have a name, made from ``backoff_multiplier``."""


class State(Enum):
    """Where the machine is."""

    NORMAL = "normal"
    BLOCKED = "blocked"
    TEST = "test"


class Outcome(Enum):
    """How a message was answered."""

    FINISHED = "finished"
    FAILED = "failed"
    """Requeued because its handler could not do it now."""
    REQUEUED = "requeued"
    """Requeued for another reason; no sign of trouble."""
    GIVEN_UP = "given up"
    """Finished without being handled, after too many attempts."""


class Backoff:
    """The machine. Each method says what follows: ``answered`` through ``state`` and ``wait``, ``expired`` the test."""

    def __init__(self, strategy: BackoffStrategy, max_duration: timedelta = timedelta(minutes=2)) -> None:
        """``max_duration`` 0 turns backoff off."""
        self.state = State.NORMAL
        self.level = 0
        self.trial = 0
        """Number of the current or last test. A message delivered in state TEST carries it; only such one decides."""
        self._max_duration = max_duration
        self._strategy = strategy
        self._longest = strategy.longest if isinstance(strategy, FullJitter) else strategy

    def answered(self, outcome: Outcome, trial: int | None) -> timedelta | None:
        """Take in an answer; ``trial`` is that of the message, None when it was delivered outside a test.

        Returns how long to block from now; None when this answer starts no block. A change to NORMAL shows in
        ``state``.
        """
        if self.state is State.NORMAL:
            if outcome is not Outcome.FAILED or not self._max_duration:
                return None
            return self._block(1)
        if self.state is State.BLOCKED or trial != self.trial or outcome is Outcome.GIVEN_UP:
            return None
        if outcome is Outcome.FINISHED:
            if self.level == 1:
                self.state, self.level = State.NORMAL, 0
                return None
            return self._block(self.level - 1)
        grows = outcome is Outcome.FAILED and self._longest.calculate(self.level) < self._max_duration
        return self._block(self.level + grows)

    def expired(self) -> int:
        """The block is over and one message may pass. Returns the trial its delivery is to be marked with."""
        self.state = State.TEST
        self.trial += 1
        return self.trial

    def _block(self, level: int) -> timedelta:
        self.state, self.level = State.BLOCKED, level
        return max(timedelta(0), min(self._strategy.calculate(level), self._max_duration))
