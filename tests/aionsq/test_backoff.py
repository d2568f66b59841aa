"""Backoff, without a network or a clock."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aionsq.backoff import Backoff, Exponential, FullJitter, Outcome, State

MS = timedelta(milliseconds=1)
FINISHED, FAILED, REQUEUED, GIVEN_UP = Outcome


def at_level(level: int) -> Backoff:
    """A machine in TEST at a level, reached by failing tests."""
    backoff = Backoff(Exponential(100 * MS), timedelta(hours=1))
    trial = None
    for _ in range(level):
        backoff.answered(FAILED, trial)
        trial = backoff.expired()
    return backoff


def waits(backoff: Backoff, outcomes: list[Outcome]) -> list[int]:
    """The blocks, in ms, when the tests end with ``outcomes``."""
    result, trial = [], None
    for outcome in outcomes:
        wait = backoff.answered(outcome, trial)
        if wait is not None:
            result.append(wait // MS)
            trial = backoff.expired()
    return result


def test_blocks_double_up_to_the_maximum_and_no_further():
    """Repeated failures block for 200, 400, then always the configured 500 ms."""
    assert waits(Backoff(Exponential(100 * MS), 500 * MS), [FAILED] * 5) == [200, 400, 500, 500, 500]


def test_recovery_goes_down_one_level_per_success():
    """Three failures, then successes: each lower level blocks once more."""
    backoff = Backoff(Exponential(50 * MS), timedelta(minutes=2))
    assert waits(backoff, [FAILED] * 3 + [FINISHED] * 3) == [100, 200, 400, 200, 100]
    assert backoff.state is State.NORMAL


def test_a_maximum_of_zero_turns_backoff_off():
    """Failures do not slow such a consumer down."""
    backoff = Backoff(Exponential(100 * MS), timedelta(0))
    assert backoff.answered(FAILED, None) is None
    assert backoff.state is State.NORMAL


@pytest.mark.parametrize("outcome", [FINISHED, REQUEUED, GIVEN_UP])
def test_only_failures_start_a_block(outcome):
    """Success, neutral requeues and given-up messages leave a healthy consumer alone."""
    backoff = Backoff(Exponential(100 * MS), timedelta(minutes=2))
    assert backoff.answered(outcome, None) is None
    assert backoff.state is State.NORMAL


@pytest.mark.parametrize("outcome", list(Outcome))
@pytest.mark.parametrize("level", [1, 2, 3])
def test_answers_during_a_block_change_nothing(outcome, level):
    """They belong to messages delivered before the block."""
    backoff = at_level(level)
    assert backoff.answered(FAILED, backoff.trial) is not None
    assert backoff.answered(outcome, None) is None
    assert backoff.answered(outcome, backoff.trial) is None
    assert (backoff.state, backoff.level) == (State.BLOCKED, level + 1)


@pytest.mark.parametrize("outcome", list(Outcome))
@pytest.mark.parametrize("level", [1, 2, 3])
def test_only_the_test_message_decides_a_test(outcome, level):
    """A message from before the block, or from an earlier test, may be answered during a test."""
    backoff = at_level(level)
    assert backoff.answered(outcome, None) is None
    assert backoff.answered(outcome, backoff.trial - 1) is None
    assert (backoff.state, backoff.level) == (State.TEST, level)


@pytest.mark.parametrize("level", [1, 2, 3])
def test_results_of_a_test_message(level):
    """A success lowers the level, a failure raises it, a neutral requeue keeps it; a given-up message has no effect."""
    finished, failed, requeued, given_up = (at_level(level) for _ in range(4))
    assert finished.answered(FINISHED, finished.trial) == (100 * MS * 2 ** (level - 1) if level > 1 else None)
    assert (finished.state, finished.level) == (State.BLOCKED if level > 1 else State.NORMAL, level - 1)
    assert failed.answered(FAILED, failed.trial) == 100 * MS * 2 ** (level + 1)
    assert (failed.state, failed.level) == (State.BLOCKED, level + 1)
    assert requeued.answered(REQUEUED, requeued.trial) == 100 * MS * 2**level
    assert (requeued.state, requeued.level) == (State.BLOCKED, level)
    assert given_up.answered(GIVEN_UP, given_up.trial) is None
    assert (given_up.state, given_up.level) == (State.TEST, level)


@given(st.lists(st.sampled_from(list(Outcome)), max_size=60), st.integers(0, 5_000), st.integers(0, 60_000))
def test_a_block_is_never_longer_than_the_maximum(outcomes, multiplier_ms, maximum_ms):
    """The level also stops growing when the wait has reached the maximum."""
    for strategy in (Exponential, FullJitter):
        backoff = Backoff(strategy(multiplier_ms * MS), maximum_ms * MS)
        trial = None
        for outcome in outcomes:
            wait = backoff.answered(outcome, trial)
            assert wait is None or timedelta(0) <= wait <= maximum_ms * MS
            assert (backoff.level == 0) == (backoff.state is State.NORMAL)
            if backoff.state is State.BLOCKED:
                trial = backoff.expired()


def test_full_jitter_draws_below_the_exponential_wait():
    """Consumers that failed together do not resume together."""
    draws = {FullJitter(100 * MS).calculate(3) for _ in range(50)}
    assert len(draws) > 10
    assert all(timedelta(0) <= draw <= 800 * MS for draw in draws)


def test_a_custom_strategy_determines_the_block():
    """Any object with ``calculate(attempt)``; the maximum still applies, and a negative wait is zero."""

    class Steps:
        def calculate(self, attempt):
            return (attempt * 150 - 200) * MS

    assert waits(Backoff(Steps(), 500 * MS), [FAILED] * 6 + [FINISHED] * 2) == [0, 100, 250, 400, 500, 500, 400, 250]
