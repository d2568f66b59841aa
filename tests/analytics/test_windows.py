"""Ranges of time that cover many moments."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from nsqanalytics.transforms.windows import covering


@given(st.sets(st.integers(-(10**6), 10**6)), st.integers(1, 12))
def test_ranges_cover_every_moment_and_leave_out_the_widest_gaps(buckets: set[int], most: int):
    """Wherever the moments lie, all are covered, ranges are within the limit, and the gaps left out are the widest."""
    ranges = covering(buckets, most)

    assert all(any(first <= bucket <= last for first, last in ranges) for bucket in buckets)
    assert len(ranges) == min(most, len(buckets))
    assert all(first in buckets and last in buckets and first <= last for first, last in ranges)
    left_out = [after[0] - before[1] for before, after in pairwise(ranges)]
    ordered = sorted(buckets)
    gaps = sorted((after - before for before, after in pairwise(ordered)), reverse=True)
    assert sorted(left_out, reverse=True) == gaps[: most - 1]
