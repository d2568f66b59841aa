"""Records of a stream, batches, and rate limits."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aionsq.tools.records import Records, Throttle, batches


@given(data=st.binary(max_size=200), cuts=st.lists(st.integers(0, 200)), delimiter=st.binary(min_size=1, max_size=1))
def test_records_are_separated_by_delimiters_however_they_arrive(data, cuts, delimiter):
    """Empty records are skipped, and the last one needs no delimiter."""
    at = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    records = Records(delimiter)
    found = [record for start, end in pairwise(at) for record in records.received(data[start:end])]
    found += records.ended()
    assert found == [record for record in data.split(delimiter) if record]
    assert records.ended() == []


@given(
    records=st.lists(st.binary(min_size=1, max_size=30)),
    most=st.integers(1, 5),
    most_bytes=st.integers(1, 40),
)
def test_batches_hold_every_record_once_and_in_order(records, most, most_bytes):
    """Within both limits; a record that exceeds them is a batch of its own."""
    cut = batches(records, most=most, most_bytes=most_bytes)
    assert [record for batch in cut for record in batch] == records
    for batch in cut:
        assert 1 <= len(batch) <= most
        assert len(batch) == 1 or sum(map(len, batch)) <= most_bytes


def test_a_throttle_lets_a_second_s_worth_pass_at_once():
    """And then the rate."""
    throttle = Throttle(10, 100.0)
    assert [throttle.take(1, 100.0) for _ in range(11)] == [0.0] * 10 + [0.1]
    assert throttle.take(1, 100.1) == pytest.approx(0.1)
    assert throttle.take(10, 200.0) == 0.0


@given(rate=st.integers(1, 1000), takes=st.lists(st.tuples(st.integers(1, 50), st.floats(0, 2)), max_size=50))
def test_no_more_than_the_rate_and_one_second_s_worth_ever_pass(rate, takes):
    """If the caller waits as long as returned."""
    now = 0.0
    throttle = Throttle(rate, now)
    passed = 0
    for count, pause in takes:
        now += pause
        now += throttle.take(count, now)
        passed += count
        assert passed <= rate * now + rate + 1e-6 * max(1, passed)
