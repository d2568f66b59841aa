"""Backoff: after a failed message, all connections pause; one test message then decides how long the next pause is.

A consumer has one state machine for all its connections. The machine has no timer and no clock: it returns how long to
block, and the consumer calls :meth:`Backoff.expired` after that time.

=============  ================================  =======================================================
state          event                             next
=============  ================================  =======================================================
NORMAL (k=0)   a message fails                   BLOCKED(1), wait D(1)
BLOCKED(k)     any answer                        BLOCKED(k): the message was delivered before the block
BLOCKED(k)     the wait ends                     TEST(k): one message is requested
TEST(k)        the test message is finished      BLOCKED(k-1), wait D(k-1); from k = 1: NORMAL
TEST(k)        it fails                          BLOCKED(k+1), wait D(k+1); if D(k) is the maximum: BLOCKED(k)
TEST(k)        it is requeued without backoff    BLOCKED(k), wait D(k)
TEST(k)        it is given up                    TEST(k): the handler was not called
TEST(k)        another message is answered       TEST(k)
=============  ================================  =======================================================

D(k) is the strategy's ``calculate(k)``, at most ``max_duration``.
Source: go-nsq's consumer, with three differences. go-nsq stops growing the wait below the maximum instead of limiting
it to the maximum, accepts the answer to any message as the result of the test, and counts a message that was given up
as a success.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from enum import Enum
from typing import Protocol, runtime_checkable


@runtime_checkable
class BackoffStrategy(Protocol):
    """Computes how long to block after a number of consecutive failures."""

    def calculate(self, attempt: int) -> timedelta:
        """Return the time to block at level ``attempt`` (1 or more); the caller limits it to the maximum."""


class Exponential:
    """``multiplier × 2^attempt``."""

    def __init__(self, multiplier: timedelta) -> None:
        self._multiplier = multiplier

    def calculate(self, attempt: int) -> timedelta:
        factor: int = 2 ** min(attempt, 30)  # a larger power overflows timedelta, and exceeds every maximum anyway
        return self._multiplier * factor


class FullJitter:
    """A random time from 0 to ``multiplier × 2^attempt``, so that many consumers do not resume at the same time."""

    def __init__(self, multiplier: timedelta) -> None:
        self.longest = Exponential(multiplier)

    def calculate(self, attempt: int) -> timedelta:
        return self.longest.calculate(attempt) * random.random()


STRATEGIES: dict[str, Callable[[timedelta], BackoffStrategy]] = {
    "exponential": Exponential,
    "full_jitter": FullJitter,
}
"""Factories of the named strategies; the argument is ``backoff_multiplier``."""


class State(Enum):
    """State of the machine; see the module's table."""

    NORMAL = "normal"
    BLOCKED = "blocked"
    TEST = "test"


class Outcome(Enum):
    """How a message was answered."""

    FINISHED = "finished"
    FAILED = "failed"
    """Requeued because its handler failed."""
    REQUEUED = "requeued"
    """Requeued for another reason; does not count as a failure."""
    GIVEN_UP = "given up"
    """Finished without being processed, after too many attempts."""


class Backoff:
    """The state machine. ``answered`` processes an answer, ``expired`` the end of a block."""

    def __init__(self, strategy: BackoffStrategy, max_duration: timedelta = timedelta(minutes=2)) -> None:
        """``max_duration`` 0 turns backoff off."""
        self.state = State.NORMAL
        self.level = 0
        self.trial = 0
        """Number of the current or last test. Messages delivered during a test are marked with it, and only the answer
        to such a message decides the test."""
        self._max_duration = max_duration
        self._strategy = strategy
        self._longest = strategy.longest if isinstance(strategy, FullJitter) else strategy

    def answered(self, outcome: Outcome, trial: int | None) -> timedelta | None:
        """Process an answer. ``trial`` is the number of the test in which the message was delivered, None if in none.

        Returns how long to block from now, or None if this answer starts no block. After the call, ``state`` is NORMAL
        if backoff has ended.
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
        """End the block and start a test. Returns the trial with which the test message must be marked."""
        self.state = State.TEST
        self.trial += 1
        return self.trial

    def _block(self, level: int) -> timedelta:
        self.state, self.level = State.BLOCKED, level
        return max(timedelta(0), min(self._strategy.calculate(level), self._max_duration))
