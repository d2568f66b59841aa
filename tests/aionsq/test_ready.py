"""RDY arithmetic, without a network."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aionsq.ready import Distribution, Mode, ReadyCount, shares


@given(st.integers(0, 500), st.lists(st.integers(0, 200), max_size=20))
def test_shares_use_all_that_can_be_used(max_in_flight, maxima):
    """The total is used exactly, as far as possible, and no nsqd gets more than it accepts."""
    given_out = shares(max_in_flight, maxima)
    assert sum(given_out) == min(max_in_flight, sum(maxima))
    assert all(0 <= share <= most for share, most in zip(given_out, maxima, strict=True))


@given(st.integers(0, 500), st.integers(1, 20))
def test_shares_differ_by_one_at_most(max_in_flight, connections):
    """Equal connections get equal shares, earlier ones the remainder."""
    given_out = shares(max_in_flight, [2500] * connections)
    assert given_out == sorted(given_out, reverse=True)
    assert given_out[0] - given_out[-1] <= 1


def test_a_second_nsqd_takes_its_share_only_after_the_first_gave_it_up():
    """With 5 to share the first nsqd goes from 5 to 3, and then the second gets 2."""
    ready = Distribution(5)
    assert ready.joined("a", 2500, 0.0) == [("a", 5)]
    assert ready.joined("b", 2500, 1.0) == [("a", 3), ("b", 2)]


@pytest.mark.parametrize(("before", "after"), [(200, 5), (5, 200), (200, 0), (0, 3), (7, 1)])
def test_a_new_maximum_applies_at_once_to_every_nsqd(before, after):
    """Lowering takes effect everywhere, with several connections too."""
    ready = Distribution(before)
    ready.joined("a", 2500, 0.0)
    ready.joined("b", 2500, 0.0)
    ready.change_max_in_flight(after, 1.0)
    assert ready.total == after


def test_the_rdy_of_a_lost_nsqd_goes_to_the_others():
    """Capacity does not vanish with a connection."""
    ready = Distribution(10)
    ready.joined("a", 2500, 0.0)
    ready.joined("b", 2500, 0.0)
    assert ready.left("a", 1.0) == [("b", 10)]


def test_an_nsqd_with_a_low_limit_leaves_the_rest_to_others():
    """A small max_rdy_count costs no capacity."""
    ready = Distribution(100)
    ready.joined("small", 10, 0.0)
    ready.joined("big", 2500, 0.0)
    assert {key: slot.ready_count for key, slot in ready.slots.items()} == {"small": 10, "big": 90}


def test_scarce_rdy_visits_every_idle_nsqd():
    """With max_in_flight 2 and three idle nsqds, none waits for ever, and never more than two have RDY 1."""
    ready = Distribution(2, low_rdy_idle_timeout=timedelta(seconds=1))
    for key in "abc":
        ready.joined(key, 2500, 0.0)
    visited = set()
    for tick in range(20):
        ready.redistribute(0.5 * tick)
        assert ready.total == 2
        visited |= {key for key, slot in ready.slots.items() if slot.ready_count}
    assert visited == set("abc")


def test_a_busy_nsqd_keeps_scarce_rdy_until_its_time_is_up():
    """An nsqd with messages keeps RDY 1, but not for ever: others wait too."""
    ready = Distribution(1, low_rdy_idle_timeout=timedelta(seconds=1), low_rdy_timeout=timedelta(seconds=30))
    ready.joined("busy", 2500, 0.0)
    ready.joined("other", 2500, 0.0)
    for second in range(1, 30):
        ready.slots["busy"].last_message_at = second
        assert ready.redistribute(second) == []
    ready.slots["busy"].last_message_at = 30
    assert ready.redistribute(30.0) == [("busy", 0), ("other", 1)]


def test_a_message_still_handled_counts_when_scarce_rdy_moves():
    """max_in_flight 1 means one message at a time, over all nsqds."""
    ready = Distribution(1, low_rdy_idle_timeout=timedelta(seconds=1))
    ready.joined("a", 2500, 0.0)
    ready.joined("b", 2500, 0.0)
    ready.slots["a"].in_flight_count = 1
    assert ready.redistribute(5.0) == [("a", 0)]
    ready.slots["a"].in_flight_count = 0
    assert [change.ready_count for change in ready.redistribute(6.0)] == [1]


def test_the_single_test_of_backoff_moves_on_from_an_idle_nsqd():
    """Otherwise a test at an nsqd without messages would never end."""
    ready = Distribution(10, low_rdy_idle_timeout=timedelta(seconds=1))
    ready.joined("a", 2500, 0.0)
    ready.joined("b", 2500, 0.0)
    ready.block(1.0)
    (first,) = ready.test(2.0)
    assert ready.redistribute(3.0) == [ReadyCount(first.key, 0), ReadyCount("b" if first.key == "a" else "a", 1)]


class AnyHistory(RuleBasedStateMachine):
    """Connections come and go, the maximum changes, backoff blocks and tests: in any order."""

    def __init__(self):
        super().__init__()
        self.now = 0.0
        self.ready = Distribution(10, low_rdy_idle_timeout=timedelta(seconds=1), low_rdy_timeout=timedelta(seconds=3))
        self.sent: dict[int, int] = {}
        self.names = iter(range(10_000))

    def take(self, changes):
        """Apply the commands one by one, as nsqds would receive them."""
        limit = {Mode.FULL: self.ready.max_in_flight, Mode.BLOCKED: 0, Mode.TEST: 1}[self.ready.mode]
        before = sum(self.sent.values())
        for key, count in changes:
            assert self.sent[key] != count, "a command that changes nothing"
            self.sent[key] = count
            assert sum(self.sent.values()) <= max(limit, before)

    @rule(maximum=st.sampled_from([0, 1, 5, 2500]))
    def join(self, maximum):
        name = next(self.names)
        self.sent[name] = 0
        self.take(self.ready.joined(name, maximum, self.now))

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def leave(self, data):
        name = data.draw(st.sampled_from(sorted(self.sent)))
        del self.sent[name]
        self.take(self.ready.left(name, self.now))

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), in_flight=st.integers(0, 3))
    def deliver(self, data, in_flight):
        slot = self.ready.slots[data.draw(st.sampled_from(sorted(self.sent)))]
        slot.in_flight_count, slot.last_message_at = in_flight, self.now

    @rule(maximum=st.integers(0, 30))
    def change(self, maximum):
        self.take(self.ready.change_max_in_flight(maximum, self.now))

    @rule(what=st.sampled_from(["block", "test", "resume", "redistribute"]), later=st.floats(0, 5))
    def act(self, what, later):
        self.now += later
        self.take(getattr(self.ready, what)(self.now))

    @invariant()
    def never_more_than_allowed(self):
        assert self.sent == {key: slot.ready_count for key, slot in self.ready.slots.items()}
        limit = {Mode.FULL: self.ready.max_in_flight, Mode.BLOCKED: 0, Mode.TEST: 1}[self.ready.mode]
        assert self.ready.total <= limit
        assert all(count <= self.ready.slots[key].max_rdy_count for key, count in self.sent.items())

    @invariant()
    def enough_for_all_means_something_for_all(self):
        takers = [slot for slot in self.ready.slots.values() if slot.max_rdy_count]
        if self.ready.mode is Mode.FULL and len(takers) <= self.ready.max_in_flight:
            assert all(slot.ready_count for slot in takers)


TestAnyHistory = AnyHistory.TestCase
