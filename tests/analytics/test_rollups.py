"""Rollups, compaction and retention: reports stay the same, even with late, repeated or rewritten readings."""

from __future__ import annotations

import io
import os
import random
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from nsqanalytics.archive import ArchiveWriter
from nsqanalytics.compaction import GRACE, compact, retain
from nsqanalytics.job_list import JOBS
from nsqanalytics.locations import Locations
from nsqanalytics.progress import Progress
from nsqanalytics.results import Result
from nsqanalytics.rollups import Rollups
from nsqanalytics.tables import LATENCY

# Some take many Spark jobs: the limit suits a busy machine.
pytestmark = pytest.mark.timeout(600)

MINUTES = timedelta(minutes=1)
HOURS = timedelta(hours=1)
COLUMNS = [figure.name for figure in LATENCY]


@pytest.fixture
def a_day(make_broker, midnight, lognormal):
    """Twenty-six hours of two nodes as batches, with a restart, an outage and a channel created again."""
    rng = random.Random(7)
    brokers = [make_broker("10.0.0.1:4151"), make_broker("10.0.0.2:4151")]
    batches = []
    for step in range(1, 26 * 4 + 1):
        at = midnight + 15 * step * MINUTES - timedelta(seconds=20)
        for broker in brokers:
            for _ in range(rng.randint(1, 6)):
                broker.finish("t", "c", lognormal(rng, 20), at)
            if not (30 <= step < 33 and broker is brokers[1]):
                batches.append(broker.sample(at))
        if step == 50:
            brokers[0].restart(at)
        if step == 70:
            brokers[1].delete("t", "c")
    return batches, sum(len(raw) for broker in brokers for raw in broker.raw.values())


@pytest.fixture
def collect_hours(make_broker, midnight, archive):
    """Writes a broker's readings of the first hours, four in each hour."""

    def collect(hours: int) -> None:
        broker = make_broker(started_at=midnight)
        for step in range(hours * 4):
            at = midnight + 15 * step * MINUTES + timedelta(seconds=30)
            broker.finish("t", "c", 5_000_000, at)
            ArchiveWriter(str(archive)).write(broker.sample(at))

    return collect


@pytest.fixture
def run(spark, tmp_path, midnight):
    """Runs a job over 26 hours on an archive, in this process; returns its rows as lists."""

    def run(name: str, archive: Path, **parameters: str):
        output = tmp_path / f"result-{random.randrange(1 << 30)}"
        job = JOBS[name]
        given = {"until": "2026-03-15T02:00Z"} | parameters
        job.run(spark, Locations(str(archive), str(output)), job.checked(given), midnight, Progress(io.StringIO()))
        result = Result(output)
        return result.page(0, 10_000)

    return run


@pytest.mark.spark
def test_late_data_rolled_up_in_steps_equals_one_run_over_all(run, a_day, archive, tmp_path):
    """Batches arrive in any order, with rollups in between; hours and days equal those of one run over all, and of raw
    readings."""
    batches, finished = a_day
    full = tmp_path / "full"
    ArchiveWriter(str(full)).write([sample for batch in batches for sample in batch])
    shuffled = random.Random(5).sample(batches, len(batches))
    ArchiveWriter(str(archive)).write([sample for batch in shuffled[:150] for sample in batch])

    raw = run("latency", full, period="26h")
    run("rollup", archive, period="2d")
    ArchiveWriter(str(archive)).write([sample for batch in shuffled[150:] + shuffled[:9] for sample in batch])
    with_stale = run("latency", archive, period="26h")
    again = run("rollup", archive, period="2d")
    nothing = run("rollup", archive, period="2d")

    assert len(again) > 1
    assert nothing == []
    assert all(hour.rollup for hour in Rollups(str(archive)).hours.values())
    late = run("latency", archive, period="26h")

    def without_sample_count(rows):
        until = COLUMNS.index("node_count")
        return [row[:until] for row in rows]

    assert without_sample_count(late) == without_sample_count(with_stale) == without_sample_count(raw)
    count, unplaced = (COLUMNS.index(name) for name in ("count", "unplaced_count"))
    assert sum(row[count] + row[unplaced] for row in late) == finished
    run("rollup", full, period="2d")
    days = run("latency", archive, period="26h", window="1d")
    assert days == run("latency", full, period="26h", window="1d")
    assert sum(row[3] for row in days) == sum(row[3] for row in late)


@pytest.mark.spark
def test_a_node_that_was_silent_for_hours_reads_the_same_rolled_up_and_not(
    run, make_broker, midnight, lognormal, archive
):
    """Rolled up after each hour, all at once from samples, in windows of five minutes: the counts are equal."""
    rng = random.Random(11)
    # Started within five minutes of the first reading, so their first messages are in its window in all cases.
    started_at = midnight + 11 * MINUTES
    steady, silent = make_broker("10.0.0.1:4151", started_at), make_broker("10.0.0.2:4151", started_at)
    for step in range(1, 8 * 4 + 1):
        at = midnight + 15 * step * MINUTES - timedelta(seconds=20)
        for broker in (steady, silent):
            for _ in range(5):
                broker.finish("t", broker.node, lognormal(rng, 20), at)
        heard = [steady] if 9 <= step <= 21 else [steady, silent]  # from two o'clock until a quarter past five
        ArchiveWriter(str(archive)).write([row for broker in heard for row in broker.sample(at)])

    raw = run("latency", archive, period="26h")
    short = run("latency", archive, period="26h", window="5m")
    for until in ("2026-03-14T02:00Z", "2026-03-14T03:00Z", "2026-03-14T06:00Z", "2026-03-14T08:00Z"):
        run("rollup", archive, period="2d", until=until)
    rolled = run("latency", archive, period="26h")

    assert all(hour.rollup for hour in Rollups(str(archive)).hours.values())
    assert rolled == raw
    named = [name.name for name in JOBS["latency"].figures]
    count, unplaced = named.index("count"), named.index("unplaced_count")
    assert sum(row[count] + row[unplaced] for row in raw if row[2] == steady.node) == 5 * 32
    # The messages finished up to its first reading after the silence are known, but not their times.
    [back] = [row for row in raw if row[2] == silent.node and row[unplaced]]
    assert (back[0], back[unplaced], back[count]) == ((midnight + 5 * HOURS).timestamp() * 1000, 5 * 22, 5 * 2)
    for figure in (count, unplaced):
        by_hour: dict[tuple[int, str], int] = {}
        for row in short:
            key = (row[0] // 3_600_000 * 3_600_000, row[2])
            by_hour[key] = by_hour.get(key, 0) + row[figure]
        assert by_hour == {(row[0], row[2]): row[figure] for row in raw}


def test_compaction_makes_one_file_and_changes_no_row(archive, a_day, midnight):
    """Small files stay until no report can be reading them, and are then removed; a second run does nothing."""
    batches, _ = a_day
    writer = ArchiveWriter(str(archive))
    for batch in batches[:16]:
        writer.write(batch)

    def rows():
        found = ds.dataset(archive / "samples", format="parquet", exclude_invalid_files=True).to_table().to_pylist()
        unique = {(row["node"], row["channel"] or "", row["taken_at"]): row for row in found}
        return [unique[key] for key in sorted(unique)]

    def files():
        return list((archive / "samples").glob("date=*/hour=*/*.parquet"))

    before, small = rows(), len(files())
    now = midnight + 5 * HOURS

    done = list(compact(str(archive), 2 * HOURS, now))

    assert {row[1] for row in done} == {"compacted"}
    assert (len(files()), rows()) == (small + len(done), before)
    for file in (archive / "samples").glob("date=*/hour=*/compact-*.parquet"):
        compacted = pq.ParquetFile(file)
        times = compacted.read(columns=["taken_at"])["taken_at"].to_pylist()
        assert times == sorted(times)
        assert compacted.metadata.row_group(0).column(0).has_offset_index
    assert list(compact(str(archive), 2 * HOURS, now)) == []
    long_ago = time.time() - 2 * GRACE.total_seconds()
    for file in files():
        os.utime(file, (long_ago, long_ago))

    swept = list(compact(str(archive), 2 * HOURS, datetime.now(UTC)))
    assert {row[1] for row in swept} >= {"swept"}
    assert rows() == before
    assert len(files()) == len(Rollups(str(archive)).hours)


def test_a_maintenance_job_run_again_replaces_its_result_and_leaves_nothing_beside_it(
    archive, a_day, midnight, tmp_path
):
    """The second run has nothing to compact, and its result replaces the first's rows."""
    batches, _ = a_day
    for batch in batches[:16]:
        ArchiveWriter(str(archive)).write(batch)
    job, place = JOBS["compact"], Locations(str(archive), str(tmp_path / "reports" / "1"))
    given = job.checked({"until": "2026-03-14T05:00Z", "older_than": "2h"})

    totals = []
    for _ in range(2):
        rows = job.run(None, place, given, midnight, Progress(io.StringIO()))
        totals.append(Result(tmp_path / "reports" / "1").total)
        assert rows == totals[-1]

    assert totals[0] > totals[1] == 0
    assert [path.name for path in (tmp_path / "reports").iterdir()] == ["1"]


def test_retention_removes_only_older_readings(archive, a_day, midnight):
    """Of four hours, one is kept: three are removed."""
    batches, _ = a_day
    for batch in batches[:30]:
        ArchiveWriter(str(archive)).write(batch)
    hours = list(Rollups(str(archive)).hours)

    gone = list(retain(str(archive), HOURS, 400 * 24 * HOURS, hours[-1] + HOURS))

    assert [row[0] for row in gone] == hours[:-1]
    assert list(Rollups(str(archive)).hours) == hours[-1:]


@pytest.mark.spark
def test_an_archive_given_as_a_uri_is_the_same_archive(run, a_day, archive):
    """file:// stands in for s3a:// and hdfs://: written, listed and read through the same calls."""
    batches, _ = a_day
    ArchiveWriter(f"file://{archive}").write([sample for batch in batches[:8] for sample in batch])

    run("rollup", f"file://{archive}", period="2d")

    assert run("latency", f"file://{archive}", period="26h") == run("latency", archive, period="26h") != []


@pytest.mark.spark
def test_a_day_carries_only_messages_possibly_finished_before_its_first_hour(run, make_broker, midnight, archive):
    """A reading every quarter of an hour: each hour's first one carries messages, but only midnight's carries them into
    the day."""
    broker = make_broker(started_at=midnight - 24 * HOURS)
    for step in range(-2, 4 * 3):
        at = midnight + 15 * step * MINUTES + timedelta(seconds=30)
        broker.finish("t", "c", 5_000_000, at)
        ArchiveWriter(str(archive)).write(broker.sample(at))
    carried = [figure.name for figure in JOBS["latency"].figures].index("carried_count")

    from_samples = run("latency", archive, period="2d", window="1d")
    run("rollup", archive, period="2d")
    rolled_up = run("latency", archive, period="2d", window="1d")
    by_hour = run("latency", archive, period="2d", window="1h")

    start = int(midnight.timestamp() * 1000)
    assert {row[0]: row[carried] for row in by_hour if row[0] >= start} == {start + n * 3_600_000: 1 for n in range(3)}
    assert [row[carried] for row in from_samples if row[0] == start] == [1]
    assert [row[carried] for row in rolled_up if row[0] == start] == [1]


@pytest.mark.spark
def test_a_rollup_opens_no_file_that_compaction_has_replaced(run, collect_hours, archive, midnight):
    """Replaced files are unreadable in this test, and neither read nor set aside."""
    collect_hours(2)
    replaced = list((archive / "samples").glob("date=*/hour=*/*.parquet"))
    done = list(compact(str(archive), MINUTES, midnight + 3 * HOURS))
    for path in replaced:
        path.write_bytes(bytes(path.stat().st_size))

    made = run("rollup", archive, period="2d", until="2026-03-14T03:00Z")

    assert [row[1] for row in done] == ["compacted", "compacted"]
    assert [row[1] for row in made] == ["rolled up", "rolled up"]


def test_a_job_is_sized_by_the_files_it_reads(collect_hours, archive, midnight):
    """Of 30 hours: a rollup of the last one reads that and the two before it; a short report reads its period."""
    collect_hours(30)
    place = Locations(str(archive), "")
    rollups = Rollups(str(archive))
    for hour in list(rollups.hours.values())[:-1]:
        path = archive / f"rollups/hourly/date={hour.start:%Y-%m-%d}/hour={hour.start:%H}/{hour.mark}.parquet"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"PAR1" * 5_000)
        rolled_up = path.stat().st_size - 10_500  # without what a file has that has no rows
    until = (midnight + 30 * HOURS).isoformat()

    def size(name: str, **parameters: str) -> int:
        job = JOBS[name]
        return job.bytes_read(place, job.checked({"until": until} | parameters), midnight)

    def samples(hours: int) -> int:
        return sum(max(0, file.size - 10_500) for files in list(rollups.samples.values())[-hours:] for file in files)

    assert size("rollup") == samples(3)
    assert size("latency", window="5m", period="1h") == samples(3)
    assert size("latency", window="1h", period="10h") == samples(3) + 10 * rolled_up
    assert size("compare", period="5h", before="10h") == samples(3) + 5 * rolled_up + 6 * rolled_up
