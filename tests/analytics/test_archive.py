"""The archive's files, as readers find them."""

from __future__ import annotations

import os
import sys
import time
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from nsqanalytics.archive import ArchiveWriter
from nsqanalytics.schema import ARROW_SCHEMA, SCHEMA_VERSION, VERSION_KEY, Percentile, Sample, as_table
from tests.harness.process import ROOT, Process
from tests.harness.waiting import wait_until

AT = datetime(2026, 3, 14, 23, 59, 58, 123456, tzinfo=UTC)


def a_sample(taken_at: datetime = AT, **fields: object) -> Sample:
    return Sample(taken_at=taken_at, node="10.0.0.1:4151", boot_id="00ff", topic="t", **fields)  # type: ignore[arg-type]


def test_samples_are_filed_by_the_utc_hour_they_were_taken_in(archive: Path):
    """A batch across midnight becomes two files, in the folders of both days, whatever the time zone."""
    east = timezone(timedelta(hours=9))
    ArchiveWriter(str(archive)).write([a_sample(), a_sample((AT + timedelta(seconds=5)).astimezone(east))])

    files = sorted(archive.rglob("*.parquet"))

    assert [str(file.parent.relative_to(archive)) for file in files] == [
        "samples/date=2026-03-14/hour=23",
        "samples/date=2026-03-15/hour=00",
    ]
    assert pq.read_schema(files[0]).metadata[VERSION_KEY] == str(SCHEMA_VERSION).encode()


def test_a_row_reads_back_as_it_was_written(archive: Path):
    """Every column, with histogram and percentiles, to the microsecond."""
    ours = a_sample(
        channel="c", started_at=AT - timedelta(hours=1), hist_zero_count=2, hist_offset=640, hist_counts=[3, 0, 7]
    )
    theirs = a_sample(channel="d", percentiles=[Percentile(0.99, 748512795)])
    ArchiveWriter(str(archive)).write([ours, theirs])

    rows = ds.dataset(archive / "samples").to_table().to_pylist()

    assert rows == as_table([ours, theirs]).to_pylist()
    assert rows[0]["hist_counts"] == [3, 0, 7]
    assert rows[0]["taken_at"] == AT
    assert rows[1]["percentiles"] == [{"quantile": 0.99, "value_ns": 748512795}]


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"depth": "many"}, "column depth"),
        ({"message_count": None}, "column message_count"),
        ({"hist_counts": ["3", "x"]}, "column hist_counts"),
        ({"depth": 2**63}, "column depth"),
        ({"taken_at": datetime(2026, 3, 14)}, "without a zone"),
    ],
)
def test_a_sample_that_does_not_fit_is_refused_by_name(archive: Path, fields: dict[str, object], complaint: str):
    """No row of its batch is written."""
    good = a_sample()

    with pytest.raises(ValueError, match=complaint):
        ArchiveWriter(str(archive)).write([good, a_sample(**fields)])  # type: ignore[arg-type]

    assert list(archive.rglob("*.parquet")) == []


def test_an_empty_batch_writes_no_file(archive: Path):
    ArchiveWriter(str(archive)).write([])

    assert [path for path in archive.rglob("*") if path.is_file()] == []


def test_leftovers_of_a_killed_writer_are_swept_but_not_those_of_one_at_work(archive: Path):
    """A file that was not written to for a quarter of an hour has no writer any more."""
    ArchiveWriter(str(archive))
    old, new = archive / "samples/_writing/old.parquet", archive / "samples/_writing/new.parquet"
    for leftover in (old, new):
        leftover.write_bytes(b"PAR1 and then the power went")
    an_hour_ago = time.time() - 3600
    os.utime(old, (an_hour_ago, an_hour_ago))

    ArchiveWriter(str(archive))

    assert (old.exists(), new.exists()) == (False, True)


WRITE_FOR_EVER = """
import sys
from datetime import UTC, datetime, timedelta
from nsqanalytics.archive import ArchiveWriter
from nsqanalytics.schema import Sample
writer, at = ArchiveWriter(sys.argv[1]), datetime(2026, 3, 14, tzinfo=UTC)
print("writing", flush=True)
while True:
    at += timedelta(seconds=10)
    writer.write([Sample(taken_at=at, node=str(n), boot_id="b", topic="t") for n in range(500)])
"""


DELAYS_S = (0.01, 0.05, 0.12, 0.2)


def test_a_writer_killed_at_any_moment_leaves_only_whole_files(archive: Path):
    """After repeated kill -9, every file in the archive has all the rows of its batch."""

    def files() -> list[Path]:
        return list((archive / "samples").glob("date=*/hour=*/*"))

    for delay in DELAYS_S:
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        with Process([sys.executable, "-c", WRITE_FOR_EVER, archive], merged=True, env=environment) as writer:
            writer.wait_for_log("writing")
            if delay == DELAYS_S[-1]:  # one of them has written something, however slow the machine
                wait_until(files, "a file is written")
            time.sleep(delay)  # the test is about being killed at any point
            writer.kill()

    assert {pq.read_table(file, schema=ARROW_SCHEMA).num_rows for file in files()} == {500}


@pytest.mark.spark
def test_spark_reads_complete_files_only(spark, archive: Path):
    """An incomplete file in the writers' folder is no part of the archive."""
    from nsqanalytics.notebook import load

    ArchiveWriter(str(archive)).write([a_sample(), a_sample(channel="c", hist_counts=[1], hist_offset=400)])
    (archive / "samples/_writing/half.parquet").write_bytes(b"PAR1")

    day = timedelta(days=1)
    rows = load(str(archive), "samples", period=2 * day, until=AT + day, spark=spark).collect()

    assert sorted((row.topic, row.channel or "", row.hour) for row in rows) == [("t", "", 23), ("t", "c", 23)]
    assert load(str(archive), "samples", period=day, until=AT, spark=spark).count() == 0
