"""With fewer RDY than connections, every connection gets its turn."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from aionsq.ready import FRUITLESS_SECONDS, Distribution

TICK = 0.25
IDLE, HOLD = 1.0, 5.0


@settings(max_examples=60, deadline=None)
@given(
    connections=st.integers(2, 12),
    scarce=st.data(),
    handling=st.floats(0, 0.4),
    busy=st.sets(st.integers(0, 11)),
)
def test_a_backlogged_nsqd_never_waits_longer_than_a_turn_of_each_other(connections, scarce, handling, busy):
    """Some nsqds have endless messages, others none; each nsqd with messages is served repeatedly."""
    max_in_flight = scarce.draw(st.integers(1, connections - 1))
    ready = Distribution(
        max_in_flight, low_rdy_idle_timeout=timedelta(seconds=IDLE), low_rdy_timeout=timedelta(seconds=HOLD)
    )
    for key in range(connections):
        ready.joined(key, 2500, 0.0)
    done_at: dict[int, float] = {}
    served_at = dict.fromkeys(range(connections), 0.0)
    longest = connections * (HOLD + 2 * TICK + handling)
    for tick in range(int(3 * longest / TICK)):
        now = tick * TICK
        for key in [key for key, at in done_at.items() if at <= now]:
            del done_at[key]
            ready.slots[key].in_flight_count = 0
            if not ready.slots[key].ready_count:
                ready.redistribute(now)
        for key, slot in ready.slots.items():
            if slot.ready_count and key in busy and key not in done_at:
                slot.in_flight_count, slot.last_message_at = 1, now
                done_at[key] = now + handling
                served_at[key] = now
        ready.redistribute(now)
        assert ready.total <= max_in_flight
        assert sum(slot.in_flight_count for slot in ready.slots.values()) <= max_in_flight
        for key in busy & served_at.keys():
            assert now - served_at[key] <= longest, f"{key} starves"


def test_the_one_nsqd_with_messages_among_many_is_found_within_seconds():
    """Nineteen idle ones have RDY 1 for half a second each."""
    ready = Distribution(1)
    for key in range(20):
        ready.joined(key, 2500, 0.0)
    now = 0.0
    while not ready.slots[19].ready_count:
        now += TICK
        ready.redistribute(now)
    assert now <= 20 * (FRUITLESS_SECONDS + TICK)


def test_a_hand_over_is_done_as_soon_as_the_last_message_is_answered():
    """The next nsqd does not wait for the periodic redistribution."""
    ready = Distribution(1, low_rdy_timeout=timedelta(seconds=5))
    ready.joined("busy", 2500, 0.0)
    ready.joined("next", 2500, 0.0)
    ready.slots["busy"].in_flight_count = 1
    ready.slots["busy"].last_message_at = 5.0
    assert ready.redistribute(5.0) == [("busy", 0)]
    ready.slots["busy"].in_flight_count = 0
    assert ready.redistribute(5.001) == [("next", 1)]


def test_a_test_is_not_delayed_by_a_message_from_before_the_block():
    """RDY 1 still moves to an nsqd that has messages."""
    ready = Distribution(10)
    for key in "abc":
        ready.joined(key, 2500, 0.0)
    ready.slots["a"].in_flight_count, ready.slots["a"].last_message_at = 1, 1.0
    ready.block(1.0)
    ready.test(3.0)
    (holder,) = (key for key, slot in ready.slots.items() if slot.ready_count)
    visited = {holder}
    for tick in range(1, 40):
        ready.redistribute(3.0 + tick * TICK)
        assert ready.total == 1
        visited |= {key for key, slot in ready.slots.items() if slot.ready_count}
    assert visited == set("abc")


def test_the_test_message_keeps_its_place_while_it_is_handled():
    """For as long as the handler takes: a second message would not be a test."""
    ready = Distribution(10)
    ready.joined("a", 2500, 0.0)
    ready.joined("b", 2500, 0.0)
    ready.block(1.0)
    ((holder, _),) = ready.test(2.0)
    ready.slots[holder].in_flight_count, ready.slots[holder].last_message_at = 1, 2.1
    assert all(ready.redistribute(second) == [] for second in range(3, 300))
