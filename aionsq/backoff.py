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

D(k) is ``multiplier × 2^k`` or, with full jitter, a uniform draw from below that; never more than ``max_duration``.
Source: go-nsq's consumer. It differs in letting the wait stop short of the maximum instead of clamping to it, in
taking any answer during a test for the test's, and in counting a message that was given up as a success.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from enum import Enum

Strategy = Callable[[timedelta, int], timedelta]
"""(multiplier, level) to the time to block at that level, before the maximum is applied."""


def exponential(multiplier: timedelta, level: int) -> timedelta:
    """``multiplier × 2^level``."""
    factor: int = 2 ** min(level, 30)  # beyond, a timedelta overflows; every maximum is passed long before
    return multiplier * factor


def full_jitter(multiplier: timedelta, level: int) -> timedelta:
    """A uniform draw from 0 to ``multiplier × 2^level``, so that many consumers do not come back together."""
    return exponential(multiplier, level) * random.random()


STRATEGIES: dict[str, Strategy] = {"exponential": exponential, "full_jitter": full_jitter}


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

    def __init__(
        self,
        multiplier: timedelta = timedelta(seconds=1),
        max_duration: timedelta = timedelta(minutes=2),
        strategy: Strategy = exponential,
    ) -> None:
        """``max_duration`` 0 turns backoff off."""
        self.state = State.NORMAL
        self.level = 0
        self.trial = 0
        """Number of the current or last test. A message delivered in state TEST carries it; only such one decides."""
        self._multiplier = multiplier
        self._max_duration = max_duration
        self._strategy = strategy

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
        grows = outcome is Outcome.FAILED and exponential(self._multiplier, self.level) < self._max_duration
        return self._block(self.level + grows)

    def expired(self) -> int:
        """The block is over and one message may pass. Returns the trial its delivery is to be marked with."""
        self.state = State.TEST
        self.trial += 1
        return self.trial

    def _block(self, level: int) -> timedelta:
        self.state, self.level = State.BLOCKED, level
        return min(self._strategy(self._multiplier, level), self._max_duration)
