"""Durations in Go's format."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqwire.durations import format_duration, nanoseconds, parse_duration


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("300ms", timedelta(milliseconds=300)),
        ("1h30m", timedelta(hours=1, minutes=30)),
        ("0", timedelta(0)),
        ("-1.5s", timedelta(seconds=-1.5)),
        ("+2s", timedelta(seconds=2)),
        (".5ms", timedelta(microseconds=500)),
        ("1us", timedelta(microseconds=1)),
        ("1µs", timedelta(microseconds=1)),
        ("1μs", timedelta(microseconds=1)),
        ("1500ns", timedelta(microseconds=1)),
    ],
)
def test_gos_notation_is_read(text: str, expected: timedelta) -> None:
    """A duration from an nsqd command line has the same value here."""
    assert parse_duration(text) == expected


@pytest.mark.parametrize("text", ["", "5", "s", "1x", "1s ", "1d", "1.2.3s", "--1s", "٣s", "9999999999h"])
def test_durations_invalid_in_go_are_refused_by_name(text: str) -> None:
    """A bare number or an unknown unit is an error that quotes it."""
    with pytest.raises(ValueError, match=r"duration|too long") as caught:
        parse_duration(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("ns", "expected"),
    [
        (0, "0s"),
        (1, "1ns"),
        (1_743, "1.743µs"),
        (250_000_000, "250ms"),
        (1_007_966_954, "1.007966954s"),
        (60_000_000_000, "1m0s"),
        (3_723_500_000_000, "1h2m3.5s"),
        (-1_500_000, "-1.5ms"),
    ],
)
def test_durations_print_as_gos_do(ns: int, expected: str) -> None:
    """Log lines and /stats show durations in Go's form."""
    assert format_duration(ns) == expected


@given(st.timedeltas(min_value=timedelta(days=-3650), max_value=timedelta(days=3650)))
def test_printed_durations_are_read_back(duration: timedelta) -> None:
    """A printed duration is read back exactly, to the microsecond."""
    assert abs(parse_duration(format_duration(nanoseconds(duration))) - duration) <= timedelta(microseconds=1)
