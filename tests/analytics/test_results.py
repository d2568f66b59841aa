"""Results read page by page: filters, orders and charts over all their rows."""

from __future__ import annotations

import csv
import os
import random
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsqanalytics.parameters import BadParameter
from nsqanalytics.results import ARROW_TYPES, UNFINISHED_AGE, Result, Selection, natural_key, replace_table
from nsqanalytics.series import calendar, groups, series
from nsqanalytics.tables import LATENCY, MAINTENANCE, OBJECTIVES, THROUGHPUT, Figure

BEGAN = datetime(2026, 3, 14, tzinfo=UTC)


def a_result(folder: Path, figures: list[Figure], rows: list[dict[str, Any]]) -> Result:
    """A result as a job writes one, in several row groups."""
    folder.mkdir()
    schema = pa.schema([pa.field(f.name, ARROW_TYPES[f.type], metadata={"unit": f.unit}) for f in figures])
    table = pa.Table.from_pylist([{f.name: row.get(f.name) for f in figures} for row in rows], schema=schema)
    pq.write_table(table, folder / "part-0.parquet", row_group_size=1000)
    return Result(folder)


def window(n: int, **figures: Any) -> dict[str, Any]:
    return {"window_start": BEGAN + n * timedelta(minutes=5)} | figures


def unix_ms(n: int) -> int:
    return int(window(n)["window_start"].timestamp() * 1000)


@pytest.fixture
def long(tmp_path: Path) -> Result:
    """15,000 rows of latency: 5,000 windows of three channels, in the order of time."""
    rng = random.Random(8)
    return a_result(
        tmp_path / "long",
        LATENCY,
        [
            window(n, topic="orders", channel=channel, count=n, p50_ms=1.0, p99_ms=rng.choice([None, 1.0 + n % 977]))
            for n in range(5000)
            for channel in ("node-2", "node-10", "mail")
        ],
    )


def test_the_rows_beyond_the_first_ten_thousand_are_a_page_like_any_other(long):
    """The newest windows of a long result are found by channel and time, with their number."""
    since = window(4990)["window_start"]
    newest = Selection(topic="orders", channel="mail", since=since)

    assert long.count(newest) == 10
    assert [row[0] for row in long.page(0, 100, newest, columns=["count"])] == list(range(4990, 5000))
    assert [row[0] for row in long.page(8, 100, newest, columns=["count"])] == [4998, 4999]
    assert long.count(Selection(until=since)) == 3 * 4990
    assert long.page(14_999, 10, columns=["count", "channel"]) == [[4999, "mail"]]
    assert long.page(15_000, 10) == []


def test_a_page_is_sorted_over_all_rows_with_empty_ones_last_and_names_as_people_count(long):
    """Equal rows keep the order of the result; a filter and an order can be combined."""
    [highest, *_] = long.page(0, 3, sort="-count", columns=["count", "channel"])
    assert highest == [4999, "node-2"]
    assert [row[0] for row in long.page(0, 15_000, sort="channel", columns=["channel"])] == (
        ["mail"] * 5000 + ["node-2"] * 5000 + ["node-10"] * 5000
    )
    for sort in ("p99_ms", "-p99_ms"):
        found = [row[0] for row in long.page(0, 15_000, Selection(channel="mail"), sort=sort, columns=["p99_ms"])]
        known = [value for value in found if value is not None]
        assert known == sorted(known, reverse=sort.startswith("-"))
        assert found == known + [None] * (5000 - len(known))


def test_words_are_searched_in_the_rows_texts(tmp_path):
    """Each word in any column and case; a row without a channel belongs to the topic and can be selected."""
    result = a_result(
        tmp_path / "result",
        THROUGHPUT,
        [
            window(0, topic="Orders", channel="mail"),
            window(0, topic="orders", channel=None),
            window(0, topic="clicks", channel="mail"),
        ],
    )

    def found(selection: Selection) -> list[list[Any]]:
        return result.page(0, 10, selection, columns=["topic", "channel"])

    assert found(Selection(words="mail ORD")) == [["Orders", "mail"]]
    assert found(Selection(words="mail")) == [["Orders", "mail"], ["clicks", "mail"]]
    assert found(Selection(words="nothing")) == []
    assert found(Selection(topic="orders", channel="")) == [["orders", None]]
    assert found(Selection(topic="orders")) == [["orders", None]]
    assert groups(result) == [("clicks", "mail", None), ("orders", None, None), ("Orders", "mail", None)]
    assert groups(result, selection=Selection(words="click")) == [("clicks", "mail", None)]


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ({"sort": "p98_ms"}, "sort: there is no column 'p98_ms'; there are window_start, topic"),
        ({"columns": ["p99_ms", "x"]}, "columns: there is no column 'x'"),
    ],
)
def test_a_column_that_is_not_there_is_refused_by_name(long, asked, complaint):
    with pytest.raises(BadParameter, match=complaint):
        long.page(0, 10, **asked)


def test_a_chart_shows_every_window_up_to_its_number_of_points(long):
    """With fewer windows than points, each window is a point; the last is the newest."""
    found = series(long, Selection(topic="orders", channel="mail"), ["count", "p99_ms"], most=5000)

    assert (found.step_ms, found.window_count, len(found.points)) == (300_000, 5000, 5000)
    assert [point[:2] for point in found.points[-2:]] == [[unix_ms(4998), 4998], [unix_ms(4999), 4999]]


def test_a_chart_of_many_windows_loses_none_of_them(long):
    """Counts add up to the result's, a percentile is the highest among its windows, the last point includes the
    newest."""
    channel = Selection(topic="orders", channel="mail")
    rows = long.page(0, 15_000, channel, columns=["window_start", "count", "p99_ms"])

    found = series(long, channel, ["count", "p99_ms"], most=100)

    assert len(found.points) <= 100 < 2 * len(found.points) + 100
    assert found.window_count == 5000
    assert sum(point[1] for point in found.points) == sum(range(5000))
    for at, _, highest in found.points:
        inside = [p99 for time, _, p99 in rows if at <= time < at + found.step_ms and p99 is not None]
        assert highest == max(inside, default=None)
    assert found.points[-1][0] <= unix_ms(4999) < found.points[-1][0] + found.step_ms


def test_rates_over_several_windows_are_weighted_by_covered_time(tmp_path):
    """Ten per second over a minute and forty over three minutes are 32.5; a window without a rate does not count."""
    rows = [
        window(0, topic="t", channel="c", in_rate=10.0, observed_s=60.0, depth_last=5),
        window(1, topic="t", channel="c", in_rate=40.0, observed_s=180.0, depth_last=7),
        window(2, topic="t", channel="c", in_rate=None, observed_s=30.0, depth_last=None),
        window(3, topic="t", channel="c", in_rate=None, observed_s=0.0, depth_last=9),
    ]
    result = a_result(tmp_path / "result", THROUGHPUT, rows)

    [point] = series(result, Selection(), ["in_rate", "depth_last"], most=1).points

    assert point == [unix_ms(0), 32.5, 9]


@settings(deadline=None, max_examples=40)
@given(st.sets(st.integers(0, 100_000), min_size=1, max_size=300), st.integers(1, 40))
def test_a_chart_has_at_most_the_points_asked_for_and_every_message(tmp_path_factory, windows: set[int], most: int):
    """Wherever the windows lie."""
    folder = tmp_path_factory.mktemp("results") / "result"
    rows = [window(n, topic="t", channel="c", count=n) for n in sorted(windows)]

    found = series(a_result(folder, LATENCY, rows), Selection(), ["count"], most=most)

    assert 1 <= len(found.points) <= most
    assert sum(point[1] for point in found.points) == sum(windows)
    assert found.points[-1][0] <= unix_ms(max(windows))


@pytest.mark.parametrize(
    ("figures", "most", "complaint"),
    [
        (["error_percent"], 10, "figures: 'error_percent' has no sum, mean or maximum over windows"),
        (["x"], 10, "figures: there is no column 'x'"),
        (["count"], 0, "points: 0 is not between 1 and 10000"),
    ],
)
def test_a_chart_that_cannot_be_drawn_is_refused_by_name(long, figures, most, complaint):
    with pytest.raises(BadParameter, match=complaint):
        series(long, Selection(), figures, most)


def test_a_calendar_adds_up_all_topics_and_channels_of_a_day(tmp_path):
    rows = [
        {"span": span, "span_start": BEGAN + n * timedelta(days=1), "topic": "t", "channel": channel}
        | {"objective": objective, "held_count": 3 + n, "message_count": 4 + n}
        for span in ("day", "period")
        for n in range(2)
        for channel in ("a", "b")
        for objective in ("latency", "backlog")
    ]
    result = a_result(tmp_path / "result", OBJECTIVES, rows)

    assert calendar(result, "latency") == [[unix_ms(0), 6, 8], [unix_ms(288), 8, 10]]


def test_csv_names_the_units_in_its_heading(long):
    """A unit that the name already ends with is not repeated."""
    heading = next(csv.reader(long.csv()))

    assert heading[:5] == ["window_start", "topic", "channel", "count (messages)", "p50_ms"]
    assert heading[-3:] == ["error_percent", "covered_since", "covered_until"]


def test_texts_compare_as_people_count():
    assert sorted(["node-10", "Node-2", "node-1"], key=natural_key) == ["node-1", "Node-2", "node-10"]


def test_leftovers_of_killed_runs_are_removed_with_the_next_result(tmp_path: Path):
    """Two hours after the last write; files that another run may be writing stay, and so does everything else."""
    left, replaced, busy, other = (
        tmp_path / name
        for name in ("result.0badcafe.writing", "result.0badcafe.writing.old", "result.0badf00d.writing", "result.2")
    )
    long_ago = time.time() - UNFINISHED_AGE.total_seconds() - 60
    for folder in (left, replaced, busy, other):
        folder.mkdir()
        (folder / "part-0.parquet").write_bytes(b"PAR1")
        for path in (folder / "part-0.parquet", folder):
            os.utime(path, (long_ago, long_ago))
    os.utime(busy / "part-0.parquet")

    replace_table([], MAINTENANCE, str(tmp_path / "result"))

    assert sorted(path.name for path in tmp_path.iterdir()) == ["result", busy.name, other.name]
