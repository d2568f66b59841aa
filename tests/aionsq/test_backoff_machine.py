"""Backoff under any order of answers and expired waits, compared with a counting model."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from aionsq.backoff import Backoff, Exponential, Outcome, State

UNIT, MAX = timedelta(seconds=1), timedelta(seconds=20)
HIGHEST = 5
"""The first level whose wait, 32 s, is cut to the maximum."""


class BackoffModel(RuleBasedStateMachine):
    """The level changes only by one per decided test, between 0 and the highest."""

    def __init__(self) -> None:
        super().__init__()
        self.backoff = Backoff(Exponential(UNIT), MAX)
        self.level = 0
        self.testing = False
        self.trial: int | None = None

    def answer(self, outcome: Outcome, trial: int | None, level: int | None) -> None:
        """``level`` is the expected level; None if the answer has no effect."""
        wait = self.backoff.answered(outcome, trial)
        if level is None:
            assert wait is None
            return
        self.level, self.testing = level, False
        assert wait == (min(UNIT * 2**level, MAX) if level else None)

    @precondition(lambda self: self.level == 0)
    @rule(outcome=st.sampled_from(Outcome))
    def answer_in_peace(self, outcome):
        self.answer(outcome, None, 1 if outcome is Outcome.FAILED else None)

    @precondition(lambda self: self.level and not self.testing)
    @rule(outcome=st.sampled_from(Outcome), of_a_test=st.booleans())
    def answer_during_a_block(self, outcome, of_a_test):
        self.answer(outcome, self.trial if of_a_test else None, None)

    @precondition(lambda self: self.level and not self.testing)
    @rule()
    def the_wait_is_over(self):
        before, self.trial, self.testing = self.trial, self.backoff.expired(), True
        assert self.trial != before

    @precondition(lambda self: self.testing)
    @rule(outcome=st.sampled_from(Outcome), ago=st.integers(1, 3))
    def another_message_is_answered_during_a_test(self, outcome, ago):
        assert self.trial is not None
        self.answer(outcome, None if ago == 3 else self.trial - ago, None)

    @precondition(lambda self: self.testing)
    @rule(outcome=st.sampled_from(Outcome))
    def the_test_message_is_answered(self, outcome):
        leads_to = {
            Outcome.FINISHED: self.level - 1,
            Outcome.FAILED: min(self.level + 1, HIGHEST),
            Outcome.REQUEUED: self.level,
            Outcome.GIVEN_UP: None,
        }
        self.answer(outcome, self.trial, leads_to[outcome])

    @invariant()
    def state_and_level_are_the_models(self):
        expected = State.TEST if self.testing else State.BLOCKED if self.level else State.NORMAL
        assert (self.backoff.state, self.backoff.level) == (expected, self.level)


def test_any_order_of_answers_and_waits():
    """The machine agrees with the model after every step."""
    run_state_machine_as_test(BackoffModel)
