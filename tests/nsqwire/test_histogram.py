"""Latency histograms: the error of quantiles, and exact merging and differences."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqwire.histogram import (
    MAX_BUCKETS,
    RELATIVE_ERROR,
    UPPER_BOUNDS,
    ZERO_THRESHOLD_NS,
    Histogram,
    bucket_of,
)

latencies = st.lists(st.integers(0, 10**14) | st.integers(900, 1100), min_size=1, max_size=60)


def recorded(values: list[int]) -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    return histogram


def test_a_bucket_ends_at_its_power_of_two() -> None:
    """Bucket i counts exactly the integers in (2^(i/32), 2^((i+1)/32)]."""
    assert [UPPER_BOUNDS[32 * octave - 1] for octave in range(1, 63)] == [2**octave for octave in range(1, 63)]
    for index in range(320, MAX_BUCKETS - 1):
        bound = UPPER_BOUNDS[index]
        assert bound**32 <= 2 ** (index + 1) < (bound + 1) ** 32
        assert (bucket_of(bound), bucket_of(bound + 1)) == (index, index + 1)


@given(latencies, st.floats(0, 1))
def test_a_quantile_is_within_the_stated_error_of_the_exact_one(values: list[int], q: float) -> None:
    """The quantile is within 1.09 % of the sample of that rank; values counted as zero give zero."""
    exact = sorted(values)[max(1, math.ceil(q * len(values))) - 1]
    read = recorded(values).quantile(q)
    assert read is not None
    if exact <= ZERO_THRESHOLD_NS:
        assert read == 0
    else:
        assert abs(read - exact) <= exact * RELATIVE_ERROR * (1 + 1e-9)


@given(st.lists(latencies, min_size=1, max_size=4))
def test_merging_nodes_gives_the_histogram_of_all_their_messages(nodes: list[list[int]]) -> None:
    """In any order, because buckets are added."""
    whole = recorded([value for node in nodes for value in node])
    for order in (nodes, nodes[::-1]):
        merged = Histogram()
        for node in order:
            merged.merge(recorded(node))
        assert merged.to_json() == whole.to_json()


@given(latencies, latencies)
def test_the_difference_of_two_readings_has_the_values_between(before: list[int], between: list[int]) -> None:
    """A reading with smaller counts is recognized as a restart."""
    earlier, later = recorded(before), recorded(before + between)
    assert later.difference(earlier).to_json() == recorded(between).to_json()
    with pytest.raises(ValueError, match="restarted"):
        earlier.difference(later)


@given(latencies)
def test_a_histogram_survives_json(values: list[int]) -> None:
    """In the format of ``/stats``."""
    histogram = recorded(values)
    again = Histogram.from_json(json.loads(json.dumps(histogram.to_json())))
    assert again.to_json() == histogram.to_json()
    assert again.count == len(values)


@pytest.mark.parametrize(
    ("data", "named"),
    [({}, "scale"), ({"scale": 3, "zero_count": 0, "offset": 0, "counts": []}, "scale 3"), (None, "histogram")],
)
def test_a_foreign_histogram_is_refused_by_name(data: object, named: str) -> None:
    """Buckets of another scale must never be added."""
    with pytest.raises(ValueError, match=named):
        Histogram.from_json(data)  # type: ignore[arg-type]
