"""Archives that no collector of this version writes are read correctly, or refused with the file's name."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nsqanalytics.failures import explained

pytestmark = pytest.mark.spark

MINUTE = timedelta(minutes=1)


@pytest.fixture
def files(archive: Path, write, make_broker, midnight) -> list[Path]:
    """The files of two readings, ten messages apart, oldest first."""
    broker = make_broker()
    for minute in (1, 2):
        for _ in range(10):
            broker.finish("t", "c", 2_000_000, midnight + minute * MINUTE)
        write(broker.sample(midnight + minute * MINUTE))
    return sorted(archive.rglob("*.parquet"))


def rewritten(file: Path, **columns: Any) -> None:
    """The file with columns replaced by values, or removed if the value is None."""
    table = pq.ParquetFile(file).read()
    for name, values in columns.items():
        at = table.schema.get_field_index(name)
        field = table.schema.field(name).with_nullable(True)
        table = table.remove_column(at)
        if values is not None:
            table = table.add_column(at, field, pa.array(values, field.type))
    pq.write_table(table, file)


def test_an_archive_without_the_column_finish_count_is_read_right(files, latency_rows):
    """Version 1 wrote such files: totals are those of the histograms, whether some or all files are old."""
    rewritten(files[0], finish_count=None)
    assert [row["count"] for row in latency_rows(60 * MINUTE)] == [20]
    rewritten(files[1], finish_count=None)
    assert [row["count"] for row in latency_rows(60 * MINUTE)] == [20]


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"node": [None, None]}, "node is missing"),
        ({"message_count": [0, -5]}, "message_count is -5"),
        ({"message_count": [0, 10**18 + 1]}, "message_count is 1000000000000000001, not between 0 and"),
        ({"died_count": [0, -1]}, "died_count is -1, not between 0 and"),
        ({"hist_zero_count": None}, "hist_zero_count is missing"),
        ({"hist_counts": None}, "hist_offset and hist_counts are not buckets of 0 to"),
        ({"hist_counts": None, "hist_offset": None}, "hist_offset is missing"),
        ({"hist_counts": [None, [-3, 23]]}, "hist_counts has a count that is not between 0 and"),
        ({"hist_counts": [None, [10**18, 10**18]]}, "the total of hist_counts is above 10"),
        ({"hist_counts": [None, [10**18] * 19]}, "the total of hist_counts is above 10"),
        ({"hist_counts": [None, [7]]}, "finish_count is not the total of its histogram"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_a_reading_that_is_not_sound_ends_the_report_with_its_file_s_name(files, latency_rows, columns, complaint):
    """The report does not end with a plausible wrong figure."""
    rewritten(files[1], **columns)
    with pytest.raises(Exception, match="a reading is invalid") as raised:
        latency_rows(60 * MINUTE)
    kind, message = explained(raised.value)
    assert kind == "archive"
    assert complaint in message
    assert files[1].name in message
    assert "\n" not in message


def test_a_file_in_the_folder_of_another_hour_ends_the_report_with_its_name(files, archive, latency_rows):
    """Reports look for readings in the folders of their hours, and would miss it."""
    elsewhere = archive / "samples/date=2026-03-14/hour=05"
    elsewhere.mkdir()
    files[1].rename(elsewhere / files[1].name)
    with pytest.raises(Exception, match="a reading is invalid") as raised:
        latency_rows(60 * MINUTE)
    assert "taken_at is not in the hour of its folder" in explained(raised.value)[1]
    assert files[1].name in explained(raised.value)[1]


def test_counts_up_to_ten_to_the_eighteenth_are_exact(files, latency_rows):
    """Their percentiles are exact too."""
    rewritten(files[0], hist_counts=[None, [0]], hist_offset=[None, 700], finish_count=[None, 0])
    few, many = 10**17, 9 * 10**17
    rewritten(
        files[1],
        message_count=[0, 10**18],
        finish_count=[None, few + many],
        hist_offset=[None, 700],
        hist_counts=[None, [few, 0, 0, many]],
    )
    [row] = latency_rows(60 * MINUTE)
    assert row["count"] == 10**18
    low, high = 2 ** (703 / 32) / 1e6, 2 ** (704 / 32) / 1e6
    assert low < row["p50_ms"] < high
    assert low < row["p99_ms"] < high


def test_workers_without_our_packages_are_named(spark):
    """On a cluster, Python is what its workers have."""

    def of(batches):
        raise ModuleNotFoundError("No module named 'nsqanalytics'", name="nsqanalytics")

    with pytest.raises(Exception, match="nsqanalytics") as raised:
        spark.range(1).mapInArrow(of, "id long").collect()

    kind, message = explained(raised.value)
    assert (kind, message.startswith("the Python of Spark's workers has no nsqanalytics")) == ("master", True)


@pytest.mark.parametrize("how", ["killed", "without memory"])
def test_a_python_process_of_spark_that_ends_is_explained(spark, how):
    """The computation is in its memory; a system without memory kills it."""

    def of(batches):
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        raise MemoryError

    with pytest.raises(Exception, match=r"Python worker|MemoryError") as raised:
        spark.range(1).mapInArrow(of, "id long").collect()

    kind, message = explained(raised.value)
    assert (kind, message.startswith("a Python process of Spark was killed or ran out of memory")) == ("memory", True)
