"""Dead and dropped messages in reports, also of archives whose first part does not have them."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from nsqanalytics.compaction import compact
from nsqanalytics.job_list import JOBS
from nsqanalytics.locations import Locations
from nsqanalytics.progress import Progress
from nsqanalytics.results import Result
from nsqanalytics.rollups import Rollups
from nsqanalytics.schema import VERSION_KEY, Sample
from nsqanalytics.series import series

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

MINUTES, HOURS = timedelta(minutes=1), timedelta(hours=1)
COUNTS = ("died_count", "dropped_count", "dead_last")
LATER = ("dead_count", "died_count", "dropped_count")
Row = dict[str, Any]


@pytest.fixture
def reading(midnight) -> Callable[..., Sample]:
    """One channel's figures on one node, of a process that started at midnight, some minutes later."""

    def make(minute: float, **figures: Any) -> Sample:
        of = {"node": "10.0.0.1:4151", "channel": "c", "dead_count": 0, "died_count": 0, "dropped_count": 0} | figures
        return Sample(taken_at=midnight + minute * MINUTES, boot_id="01", started_at=midnight, topic="t", **of)

    return make


@pytest.fixture
def result(spark, archive: Path, tmp_path: Path, midnight) -> Callable[..., Result]:
    """Runs a job over the first hours of the archive."""

    def run(name: str, hours: float = 3, **given: str) -> Result:
        output = tmp_path / f"result-{random.randrange(1 << 40)}"
        parameters = {"until": (midnight + hours * HOURS).isoformat(), "period": f"{hours}h"} | given
        job = JOBS[name]
        spark.catalog.clearCache()
        job.run(spark, Locations(str(archive), str(output)), job.checked(parameters), midnight, Progress(io.StringIO()))
        return Result(output)

    return run


@pytest.fixture
def rows(result) -> Callable[..., list[Row]]:
    """The rows of a job's result."""

    def run(name: str, hours: float = 3, **given: str) -> list[Row]:
        found = result(name, hours, **given)
        names = [column.name for column in found.columns]
        return [dict(zip(names, row, strict=True)) for row in found.page(0, 1000)]

    return run


def as_of_version_3(file: Path) -> None:
    """Rewrite a file of samples as the release before wrote it."""
    table = pq.ParquetFile(file).read().drop_columns(list(LATER))
    pq.write_table(table.replace_schema_metadata({**table.schema.metadata, VERSION_KEY: b"3"}), file)


def counts(rows: list[Row]) -> list[tuple[int | None, ...]]:
    """The counts of each of the channel's rows."""
    return [tuple(row[name] for name in COUNTS) for row in rows if row["channel"]]


def test_throughput_counts_what_died_and_was_dropped_in_each_window(rows, result, write, reading):
    """Over two nodes, with the number of dead messages at the end of the window. The topic's own row has none of them:
    messages die in channels."""
    for node, factor in (("10.0.0.1:4151", 1), ("10.0.0.2:4151", 10)):
        for minute, (dead, died, dropped) in ((1, (0, 0, 0)), (4, (2, 2, 1)), (6, (3, 4, 1)), (9, (1, 4, 5))):
            figures = {"dead_count": dead, "died_count": died, "dropped_count": dropped}
            write([reading(minute, node=node, **{name: factor * value for name, value in figures.items()})])
            write([reading(minute, node=node, channel=None)])

    found = rows("throughput", window="5m")

    assert counts(found) == [(22, 11, 22), (22, 44, 11)]
    assert {row[name] for row in found if row["channel"] is None for name in COUNTS} == {None}
    # A point of a chart is both windows.
    [point] = series(result("throughput", window="5m"), selection_of("c"), COUNTS, most=1).points
    assert point[1:] == [44, 55, 11]


def selection_of(channel: str) -> Any:
    from nsqanalytics.results import Selection

    return Selection(channel=channel)


def test_the_report_names_the_channels_in_which_messages_die(rows, write, reading):
    """Most deaths first, with their share of the messages that left the channel."""
    figures = {
        "fine": {"message_count": 50, "finish_count": 50},
        "poisoned": {"message_count": 100, "finish_count": 60, "died_count": 20, "dead_count": 12},
        "slow": {"message_count": 100, "finish_count": 75, "dropped_count": 25},
    }
    for channel, of in figures.items():
        write([reading(1, channel=channel, finish_count=0, hist_zero_count=0, hist_offset=0, hist_counts=[])])
        write([reading(70, channel=channel, hist_zero_count=of["finish_count"], hist_offset=0, hist_counts=[], **of)])

    found = rows("dead")

    shown = ("channel", "in_count", "out_count", *COUNTS, "died_percent", "dropped_percent")
    assert [tuple(row[name] for name in shown) for row in found] == [
        ("poisoned", 100, 60, 20, 0, 12, 25.0, 0.0),
        ("slow", 100, 75, 0, 25, 0, 0.0, 25.0),
        ("fine", 50, 50, 0, 0, 0, 0.0, 0.0),
    ]


@pytest.fixture
def upgraded(write, reading, archive: Path) -> Path:
    """Three hours: the collector was upgraded at half past one, while the broker had 100 dead messages and had dropped
    50. In each half hour, one message dies and two are dropped."""
    for step in range(6):
        figures = {"dead_count": 100 + step, "died_count": 100 + step, "dropped_count": 50 + 2 * step}
        write([reading(30 * step + 10, **figures)])
        write([reading(30 * step + 20, **figures)])
    for file in sorted((archive / "samples").rglob("*.parquet"), key=taken_at)[:6]:
        as_of_version_3(file)
    return archive


def taken_at(file: Path) -> Any:
    return pq.ParquetFile(file).read(columns=["taken_at"])["taken_at"][0].as_py()


HOURLY = [(None, None, None), (0, 0, 103), (2, 4, 105)]
"""Of the first hour, nothing is known; of the second, what was counted after the first reading that has the figures."""
ALL = [(2, 4, 105)]


def test_an_archive_of_the_release_before_is_reported_with_unknown_figures(rows, upgraded):
    """Unknown is not 0, and what the broker had counted before the upgrade is not of the hour of the upgrade."""
    assert counts(rows("throughput", 1, window="1h")) == HOURLY[:1]
    assert counts(rows("throughput", window="1h")) == HOURLY
    assert [row["timeout_count"] for row in rows("throughput", window="1h")] == [0, 0, 0]
    assert counts(rows("dead")) == ALL
    [unknown] = rows("dead", 1)
    assert (unknown["in_count"], unknown["died_percent"], unknown["dropped_percent"]) == (0, None, None)


def test_compaction_and_rollups_mix_both_releases_and_keep_what_is_unknown(rows, upgraded, midnight):
    """From compacted hours, from rollups, and from a rollup of the release before whose samples were removed."""
    list(compact(str(upgraded), timedelta(0), midnight + 5 * HOURS))
    assert counts(rows("throughput", window="1h")) == HOURLY

    rows("rollup", 24)
    assert all(hour.rollup for hour in Rollups(str(upgraded)).hours.values())
    assert counts(rows("throughput", window="1h")) == HOURLY
    assert counts(rows("dead")) == ALL
    assert counts(rows("throughput", 24, window="1d")) == ALL

    [rollup] = (upgraded / "rollups/hourly/date=2026-03-14/hour=00").iterdir()
    table = pq.ParquetFile(rollup).read().drop_columns(list(COUNTS))
    rollup.unlink()
    pq.write_table(table, rollup.with_name("00ff-00ff-00ff.parquet"), use_deprecated_int96_timestamps=True)
    for file in (upgraded / "samples/date=2026-03-14/hour=00").iterdir():
        file.unlink()
    assert counts(rows("throughput", window="1h")) == HOURLY
    assert counts(rows("dead")) == ALL
