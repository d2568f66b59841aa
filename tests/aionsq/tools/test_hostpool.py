"""Choice of the address for the next message."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aionsq.tools.hostpool import MODES, EpsilonGreedy, HostPool, RoundRobin, pool_of

ADDRESSES = ("a", "b", "c")


def test_round_robin_takes_each_host_in_turn():
    """Failures change nothing."""
    pool = RoundRobin(ADDRESSES)
    picked = []
    for _ in range(6):
        picked.append(pool.pick(0.0))
        pool.failed(picked[-1], 0.0)
    assert picked == ["a", "b", "c"] * 2


def test_a_dead_host_is_left_alone_for_30_s_then_twice_as_long_each_time():
    """Up to 900 s; each trial uses one message, and a success revives the host."""
    pool = HostPool(ADDRESSES)
    assert pool.pick(0.0) == "a"
    pool.failed("a", 0.0)
    tried_at = []
    for second in range(6000):
        if pool.pick(float(second)) == "a":
            tried_at.append(second)
            pool.failed("a", float(second))
    waits = [later - earlier for earlier, later in pairwise([0, *tried_at])]
    assert waits == [pytest.approx(wait, abs=3) for wait in (30, 60, 120, 240, 480, 900, 900, 900, 900, 900)]
    pool.succeeded("a", 0.1, 6000.0)
    assert [pool.pick(6000.0) for _ in range(3)].count("a") == 1


def test_when_all_are_dead_all_are_tried_again_from_the_first():
    """All are marked live again."""
    pool = HostPool(ADDRESSES)
    for address in ADDRESSES:
        pool.failed(address, 0.0)
    assert [pool.pick(1.0) for _ in range(3)] == ["a", "b", "c"]


def test_epsilon_greedy_prefers_fast_hosts():
    """In proportion to 1 / response time, once each was measured."""
    dice = random.Random(4)
    pool = EpsilonGreedy(ADDRESSES, dice.random)
    seconds = {"a": 0.01, "b": 0.02, "c": 0.04}
    picked: Counter[str] = Counter()
    for step in range(20_000):
        now = step / 100
        address = pool.pick(now)
        pool.succeeded(address, seconds[address], now)
        picked[address] += 1
    assert pool.epsilon == 0.01
    assert picked["a"] / picked["b"] == pytest.approx(2, rel=0.1)
    assert picked["b"] / picked["c"] == pytest.approx(2, rel=0.1)


def test_epsilon_greedy_weights_recent_times_and_forgets_old_ones():
    """A host that was slow five minutes ago and is fast now is found again."""
    draws = iter([0.99] + [0.99, 0.5] * 2)  # no exploration, then the middle
    pool = EpsilonGreedy(("slow", "fast"), lambda: next(draws))
    pool.succeeded("slow", 10.0, 0.0)
    pool.succeeded("fast", 0.1, 0.0)
    assert pool.pick(301.0) == "slow", "nothing is known any more: the first in turn"
    pool.succeeded("slow", 10.0, 301.0)
    pool.succeeded("fast", 0.1, 301.0)
    assert pool.pick(302.0) == "fast"
    for now in range(303, 590, 3):
        pool.succeeded("slow", 0.001, float(now))
    assert pool.pick(590.0) == "slow"


def test_epsilon_greedy_explores_less_and_less():
    """ε falls from 0.3 by a tenth with each exploration, to 0.01."""
    pool = EpsilonGreedy(ADDRESSES, lambda: 0.0)
    seen = []
    for _ in range(50):
        pool.pick(0.0)
        seen.append(pool.epsilon)
    assert seen[:2] == pytest.approx([0.27, 0.243])
    assert seen[-1] == 0.01


@given(
    mode=st.sampled_from(MODES),
    seed=st.integers(0, 10_000),
    steps=st.lists(st.tuples(st.floats(0, 400), st.booleans(), st.floats(0, 5)), max_size=60),
)
def test_some_address_is_always_picked_and_a_lone_live_one_always_it(mode, seed, steps):
    """For any sequence of failures, successes and times."""
    pool = pool_of(mode, ADDRESSES, random.Random(seed).random)
    now = 0.0
    for passed, ok, seconds in steps:
        now += passed
        address = pool.pick(now)
        assert address in ADDRESSES
        if ok:
            pool.succeeded(address, seconds, now)
        else:
            pool.failed(address, now)
    if mode != "round-robin":
        fresh = pool_of(mode, ADDRESSES, random.Random(seed).random)
        fresh.failed("a", now)
        fresh.failed("b", now)
        assert {fresh.pick(now + 1) for _ in range(20)} == {"c"}
