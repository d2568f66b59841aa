"""Points in time in the formats that people use."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqdaemon.moments import past_ns

NOW_NS = 1_795_184_228_805_123_456
NOW = datetime.fromtimestamp(NOW_NS // 1_000_000_000, UTC)

zones = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(st.datetimes(datetime(1970, 1, 2), NOW.replace(tzinfo=None) - timedelta(days=1)), zones)
def test_a_time_means_the_same_in_every_zone(moment: datetime, zone: timezone) -> None:
    """To the microsecond, which is the precision of the format."""
    aware = moment.replace(tzinfo=UTC)
    expected = (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000
    assert abs(past_ns(aware.astimezone(zone).isoformat(), NOW_NS) - expected) < 1000


def test_a_duration_is_so_long_ago() -> None:
    """In Go's format."""
    assert past_ns("90m", NOW_NS) == NOW_NS - 90 * 60 * 1_000_000_000
    assert past_ns("0s", NOW_NS) == NOW_NS


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "neither a duration"),
        ("yesterday", "neither a duration"),
        ("90", "neither a duration"),
        ("-1s", "in the future"),
        ("2026-11-22T06:30:00", "zone"),
        ("9999-12-31T23:59:59.999999Z", "in the future"),
    ],
)
def test_anything_else_is_refused_with_a_reason(text: str, reason: str) -> None:
    """With a sentence for the user."""
    with pytest.raises(ValueError, match=reason):
        past_ns(text, NOW_NS)
