"""The status lines of nsq_to_http and nsq_to_nsq."""

from __future__ import annotations

from aionsq.tools.timings import AddressTimings, Timings, line


def test_a_line_contains_percentiles_and_the_mean():
    """In the reference's format and units."""
    seconds = [number / 1000 for number in range(1, 251)]
    assert line("[x]:", seconds) == "[x]: finished 250 - 99th: 249.00ms - 95th: 239.00ms - avg: 125.50ms"
    assert line("[x]:", [0.0022]) == "[x]: finished 1 - 99th: 2.20ms - 95th: 2.20ms - avg: 2.20ms"


def test_a_status_line_is_logged_once_for_that_many_successes():
    """Each line covers only these; 0 means never."""
    lines: list[str] = []
    timings = Timings(3, "[x]:", lines.append)
    for second in (1, 1, 1, 2, 2):
        timings.succeeded(second)
    assert lines == ["[x]: finished 3 - 99th: 1000.00ms - 95th: 1000.00ms - avg: 1000.00ms"]
    timings.succeeded(2)
    assert lines[1].endswith("avg: 2000.00ms")
    never = Timings(0, "[x]:", lines.append)
    never.succeeded(1)
    assert len(lines) == 2


def test_several_addresses_have_a_line_each_and_one_together():
    """A single address has only the common line."""
    lines: list[str] = []
    several = AddressTimings(2, ["a", "b"], lines.append)
    for _ in range(2):
        several.succeeded("a", 0.001)
        several.succeeded("b", 0.003)
    assert [text.partition(" finished")[0] for text in lines] == ["[aggregate]:", "[a]:", "[b]:", "[aggregate]:"]
    lines.clear()
    alone = AddressTimings(1, ["a"], lines.append)
    alone.succeeded("a", 0.001)
    assert lines == ["[aggregate]: finished 1 - 99th: 1.00ms - 95th: 1.00ms - avg: 1.00ms"]
