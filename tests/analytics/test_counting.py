"""ACTIVITY of a few readings, computed by NumPy without Spark."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from nsqanalytics.counting import activity
from nsqanalytics.counting.computing import AllAtOnce
from nsqanalytics.counting.ends import Rules
from nsqanalytics.counting.validation import InvalidReading
from nsqanalytics.schema import Sample, as_table
from tests.analytics.conftest import MIDNIGHT

MINUTE = timedelta(minutes=1)
WINDOW = 5 * MINUTE


def checkable(table: pa.Table, topic: str) -> pa.Table:
    """The rows with the columns that Spark adds; those of other topics than ``topic`` are not wanted."""
    channel = pc.fill_null(table["channel"], "")
    table = table.set_column(table.schema.get_field_index("channel"), "channel", channel)
    added = {
        "is_wanted": [topic in ("", name) for name in table["topic"].to_pylist()],
        "is_in_own_hour": [True] * len(table),
        "file": ["f"] * len(table),
    }
    for name, values in added.items():
        table = table.append_column(name, pa.array(values))
    return table


def activity_of(samples: Iterable[Sample] | pa.Table, topic: str = "") -> pa.Table:
    """ACTIVITY, in the order of the windows."""
    table = samples if isinstance(samples, pa.Table) else as_table(list(samples))
    batches = checkable(table, topic).to_batches()
    return pa.Table.from_batches(list(AllAtOnce(Rules(WINDOW))(batches))).sort_by("window_start")


def of_go(minute: float, message_count: int, depth: int, boot_id: str = "1") -> Sample:
    """A reading of a channel of a Go node, which has no total of finished messages."""
    return Sample(
        taken_at=MIDNIGHT + minute * MINUTE,
        node="go:4151",
        boot_id=boot_id,
        started_at=MIDNIGHT - MINUTE,
        topic="t",
        channel="c",
        message_count=message_count,
        depth=depth,
    )


def test_messages_of_a_go_node_are_not_counted_again_if_its_figures_were_read_at_two_instants():
    """Its depth was read before a publish, and its total after: one message too many seems finished."""
    total = 1_000_000
    rows = activity_of([of_go(1, total, 0), of_go(4, total + 1, 0), of_go(6, total + 1, 1), of_go(11, total + 4, 0)])

    assert rows["out_count"].to_pylist() == [1, -1, 4]
    assert rows["in_count"].to_pylist() == [1, 0, 3]


def test_a_report_shows_no_negative_number_of_finished_messages():
    """The windows of a rollup keep it, so that the sum over them is exact."""
    rows = activity_of([of_go(1, 100, 0), of_go(4, 101, 0), of_go(6, 101, 1)])

    assert activity.over_nodes(rows)["out_count"].to_pylist() == [1, 0]
    day = rows.set_column(0, rows.schema.field(0), pa.array([MIDNIGHT] * 2, rows.schema.field(0).type))
    assert activity.over_nodes(activity.added_up(day))["out_count"].to_pylist() == [0]


def test_a_topic_has_no_number_of_finished_messages():
    topic = replace(of_go(1, 100, 3), channel=None)

    assert activity.over_nodes(activity_of([topic]))["out_count"].to_pylist() == [None]


@pytest.mark.parametrize(
    ("minutes", "counts"), [((6, 7), [0, 1100]), ((4, 6), [0, 1100]), ((6, 11), [0, 0, 1100])], ids=str
)
def test_a_backlog_from_before_a_restart_of_a_go_node_is_finished(minutes, counts):
    """5,000 messages wait after the restart, 100 are published and 1,100 finished."""
    before = [of_go(1, 20_000, 5000), of_go(2, 20_000, 5000)]
    after = [of_go(minutes[0], 0, 5000, boot_id="2"), of_go(minutes[1], 100, 4000, boot_id="2")]

    rows = activity_of([*before, *after])

    assert rows["out_count"].to_pylist() == counts


@pytest.mark.parametrize("value", [-1, -(2**63), 10**18 + 1, 2**63 - 1])
@pytest.mark.parametrize(
    "name", ["depth", "in_flight_count", "deferred_count", "client_count", "dead_count", "message_count", "died_count"]
)
def test_a_count_that_no_node_has_fails_the_report(name, value):
    """Also the number that stands for null in NumPy."""
    with pytest.raises(InvalidReading, match=f"{name} is {value}, not between 0 and {10**18}: f"):
        activity_of([of_go(1, 5, 0), replace(of_go(2, 5, 0), **{name: value})])


def test_the_highest_counts_are_exact():
    most = 10**18
    full = replace(
        of_go(2, most, most), in_flight_count=most, deferred_count=most, requeue_count=most, timeout_count=most
    )

    rows = activity_of([of_go(1, 0, 0), full, replace(full, taken_at=MIDNIGHT + 6 * MINUTE, depth=0)])

    assert rows["out_count"].to_pylist() == [-2 * most, most]


UNCHECKED = {
    "null, then 0": [{"message_count": None}, {"message_count": 0}],
    "negative, then 0": [{"message_count": -1}, {"message_count": 0}],
    "a sum beyond 64 bits, then a lower one": [{"message_count": 2**63 - 1}, {"message_count": 10**18}],
}


def beside_readings_of_another_topic(others: list[dict[str, Any]]) -> pa.Table:
    """A channel's total is lower once, which only another series could explain, and readings of another topic."""
    here = [of_go(1, 100, 0), of_go(2, 50, 0), of_go(3, 120, 0)]
    there = [replace(of_go(n, 0, 0), topic="u", requeue_count=1) for n in range(1, len(others) + 1)]
    table = as_table([*here, *there])
    for name in {name for given in others for name in given}:
        values = table[name].to_pylist()
        for row, given in enumerate(others, len(here)):
            values[row] = given.get(name, values[row])
        field = table.schema.field(name).with_nullable(True)
        table = table.set_column(table.schema.get_field_index(name), field, pa.array(values, field.type))
    return table


@pytest.mark.parametrize("others", UNCHECKED.values(), ids=UNCHECKED)
def test_unchecked_readings_of_other_topics_explain_no_fall(others):
    """A report on one topic checks its own readings only. Counts that no node has stand for the nearest valid ones."""
    rows = activity_of(beside_readings_of_another_topic(others), topic="t")

    assert (rows["in_count"].to_pylist(), rows["uncertain_count"].to_pylist()) == ([20], [1])
