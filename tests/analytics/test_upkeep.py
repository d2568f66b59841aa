"""Maintenance of an archive while a collector writes: it ends, reads only what is new, and continues after damaged
files."""

from __future__ import annotations

import io
import os
import random
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nsqanalytics.archive import ArchiveWriter
from nsqanalytics.compaction import GRACE, compact, retain
from nsqanalytics.damage import Damaged, names, without_damaged_files
from nsqanalytics.job_list import JOBS
from nsqanalytics.locations import Locations
from nsqanalytics.notebook import load
from nsqanalytics.progress import Progress
from nsqanalytics.results import Result
from nsqanalytics.rollups import Rollups

pytestmark = pytest.mark.timeout(600)

MINUTES = timedelta(minutes=1)
HOURS = timedelta(hours=1)


@pytest.fixture
def run(spark, tmp_path, midnight):
    """Runs a job on an archive in this process, with ``until`` as its time; returns its rows as dicts."""

    def run(name: str, archive: Path, until, **parameters: str):
        output = tmp_path / f"result-{random.randrange(1 << 30)}"
        job = JOBS[name]
        given = {"until": until.isoformat(), "period": "2d"} | parameters
        if name in ("compact", "retain"):
            del given["period"]
        job.run(spark, Locations(str(archive), str(output)), job.checked(given), midnight, Progress(io.StringIO()))
        result = Result(output)
        names = [column.name for column in result.columns]
        return [dict(zip(names, row, strict=True)) for row in result.page(0, 10_000)]

    return run


@pytest.fixture
def collect(make_broker, midnight, archive, lognormal):
    """Writes the readings of one broker every ``step`` up to a time; returns the broker."""
    rng = random.Random(3)
    # Started within five minutes of the first reading, so their first messages are in its window in all cases.
    broker = make_broker(started_at=midnight + 6 * MINUTES)
    read = [midnight - timedelta(seconds=5)]

    def collect(until, step=10 * MINUTES):
        while (at := read[0] + step) < until:
            for _ in range(rng.randint(1, 4)):
                broker.finish("t", "c", lognormal(rng, 20), at)
            ArchiveWriter(str(archive)).write(broker.sample(at))
            read[0] = at
        return broker

    return collect


def marks(archive: Path) -> list[str]:
    return [hour.mark for hour in Rollups(str(archive)).hours.values()]


def files_of(archive: Path, hour: int) -> list[Path]:
    return sorted((archive / f"samples/date=2026-03-14/hour={hour:02}").iterdir())


def aged(archive: Path, to) -> None:
    """Give all files the time at which the simulated clock wrote them."""
    for path in (archive / "samples").rglob("*.parquet"):
        os.utime(path, (to.timestamp(), to.timestamp()))


def replayed(samples, at):
    """Another reading with the same figures, taken at ``at``."""
    return [replace(sample, taken_at=at) for sample in samples]


@pytest.mark.spark
def test_a_rollup_ends_while_a_collector_writes_and_makes_each_hour_once(run, collect, archive, midnight):
    """The running hour gets a file every twenty milliseconds, for as long as the rollup takes."""
    broker = collect(midnight + 3 * HOURS + 10 * MINUTES)
    over = threading.Event()

    def write() -> None:
        writer, at = ArchiveWriter(str(archive)), midnight + 3 * HOURS + 10 * MINUTES
        while not over.wait(0.02):
            at += timedelta(milliseconds=20)
            writer.write(replayed(broker.sample(at), at))

    collector = threading.Thread(target=write)
    collector.start()
    try:
        made = run("rollup", archive, midnight + 3 * HOURS + 30 * MINUTES)
        nothing = run("rollup", archive, midnight + 3 * HOURS + 40 * MINUTES)
    finally:
        over.set()
        collector.join()

    assert Counter((row["hour"], row["action"]) for row in made) == {
        (int((midnight + hour * HOURS).timestamp() * 1000), "rolled up"): 1 for hour in range(3)
    }
    assert nothing == []


@pytest.mark.spark
def test_later_readings_do_not_make_a_rollup_stale(run, collect, archive, midnight):
    """A channel is deleted and created again just before the last reading of an hour: it counts in the next hour.

    The sums are the same rolled up hour by hour, from samples at once, and in windows of five minutes.
    """
    broker = collect(midnight + 55 * MINUTES)
    broker.delete("t", "c")
    collect(midnight + 60 * MINUTES)
    run("rollup", archive, midnight + HOURS)
    [first] = Rollups(str(archive)).hours.values()
    collect(midnight + 3 * HOURS)

    raw = run("latency", archive, midnight + 3 * HOURS)
    short = run("latency", archive, midnight + 3 * HOURS, window="5m")
    run("rollup", archive, midnight + 3 * HOURS)
    rolled = run("latency", archive, midnight + 3 * HOURS)

    assert first.rollup is not None
    assert Rollups(str(archive)).hours[midnight] == first
    assert rolled == raw
    finished = broker.raw["t", "c"]
    assert [row["count"] for row in raw] == [
        sum(midnight <= at < midnight + 55 * MINUTES for at, _ in finished),
        sum(midnight + 55 * MINUTES < at < midnight + 2 * HOURS for at, _ in finished),
        sum(midnight + 2 * HOURS < at < midnight + 3 * HOURS for at, _ in finished),
    ]
    by_hour = Counter[int]()
    for row in short:
        by_hour[row["window_start"] // 3_600_000 * 3_600_000] += row["count"]
    assert by_hour == {row["window_start"]: row["count"] for row in raw}


@pytest.mark.spark
def test_compaction_and_its_sweep_make_no_rollup_stale(run, collect, archive, midnight):
    """Neither does a second compaction, of an hour with a late file; the late file itself does, once."""
    broker = collect(midnight + 4 * HOURS)
    now = midnight + 6 * HOURS
    run("rollup", archive, now)
    before = marks(archive)

    list(compact(str(archive), HOURS, now))
    compacted = marks(archive)
    aged(archive, now)
    list(compact(str(archive), HOURS, now + GRACE))
    swept = marks(archive)

    assert [len(files_of(archive, hour)) for hour in range(4)] == [1, 1, 1, 1]
    assert before == compacted == swept
    assert run("rollup", archive, now) == []

    late = midnight + HOURS + 31 * MINUTES
    ArchiveWriter(str(archive)).write(replayed(broker.sample(late), late))
    after = marks(archive)
    assert [old == new for old, new in zip(swept, after, strict=True)] == [True, False, False, False]
    list(compact(str(archive), HOURS, now))
    assert marks(archive) == after
    aged(archive, now)
    list(compact(str(archive), HOURS, now + GRACE))
    assert len(files_of(archive, 1)) == 1
    assert marks(archive) == after


@pytest.mark.spark
def test_rollups_outlive_their_samples(run, collect, archive, midnight):
    """Retention removes the samples of two of five hours: reports by the hour stay the same, and no rollup is
    computed."""
    collect(midnight + 5 * HOURS)
    now = midnight + 5 * HOURS
    run("rollup", archive, now)
    before = run("latency", archive, now)

    list(retain(str(archive), 3 * HOURS, 400 * 24 * HOURS, now))

    assert run("rollup", archive, now) == []
    assert run("latency", archive, now) == before
    assert [row["count"] > 0 for row in before] == [True] * 5


@pytest.mark.spark
def test_a_rollup_removes_leftovers_of_a_killed_one(spark, collect, archive, midnight, tmp_path):
    """Two hours after its last write; files that another run may be writing stay."""
    collect(midnight + 2 * HOURS)
    left, busy = (archive / f"rollups/hourly/_writing-{name}/date=2026-03-14" for name in ("left", "busy"))
    for folder, ago in ((left, 3 * HOURS), (busy, HOURS)):
        folder.mkdir(parents=True)
        (folder / "part-0.parquet").touch()
        written = (midnight + 4 * HOURS - ago).timestamp()
        for path in (folder / "part-0.parquet", folder, folder.parent):
            os.utime(path, (written, written))

    job = JOBS["rollup"]
    given = job.checked({"until": (midnight + HOURS).isoformat()})
    job.run(spark, Locations(str(archive), str(tmp_path / "out")), given, midnight + 4 * HOURS, Progress(io.StringIO()))

    assert [path.name for path in (archive / "rollups/hourly").glob("_*")] == ["_writing-busy"]


def damage(archive: Path) -> None:
    """Three damaged files in the hour of one o'clock, one in that of two, and foreign files in both."""
    one, two = (archive / f"samples/date=2026-03-14/hour=0{hour}" for hour in (1, 2))
    sound = files_of(archive, 1)[0].read_bytes()
    (one / "0100-empty.parquet").touch()
    (one / "0200-truncated.parquet").write_bytes(sound[:-200])
    (one / "0300-short.parquet").write_bytes(b"PAR1")
    flipped = bytearray(sound)
    flipped[10:60] = bytes(50)
    (two / "0400-page.parquet").write_bytes(flipped)
    pq.write_table(pa.table({"x": [1]}), two / "0500-stranger.parquet")
    for folder in (one, two):
        (folder / "README").write_text("Do not touch.")
        (folder / "0600-half.parquet.tmp").write_bytes(sound[:100])


DAMAGED = {
    "0100-empty.parquet",
    "0200-truncated.parquet",
    "0300-short.parquet",
    "0400-page.parquet",
    "0500-stranger.parquet",
}


def test_compaction_sets_damaged_files_aside_and_continues(archive, collect, midnight):
    """Each is named with its hour in the result, nothing is deleted, and every later hour is compacted."""
    collect(midnight + 4 * HOURS)
    damage(archive)

    done = list(compact(str(archive), HOURS, midnight + 6 * HOURS))

    assert [row[0].hour for row in done if row[1] == "compacted"] == [0, 1, 2, 3]
    reported = [row[1].split(": ")[1] for row in done if row[1].startswith("damaged, set aside: ")]
    assert sorted(reported) == sorted(DAMAGED)
    assert {path.name for path in (archive / "samples/_damaged").rglob("*.parquet")} == DAMAGED
    assert (archive / "samples/_damaged/date=2026-03-14/hour=01/0100-empty.parquet").exists()
    assert {path.name for path in files_of(archive, 1)} >= {"README", "0600-half.parquet.tmp"}
    assert list(compact(str(archive), HOURS, midnight + 6 * HOURS)) == []


@pytest.mark.spark
def test_rollups_and_reports_are_made_without_damaged_files(run, collect, archive, midnight):
    """Their rows are the same as before the damage."""
    collect(midnight + 4 * HOURS)
    until = midnight + 4 * HOURS
    sound = run("latency", archive, until)
    damage(archive)

    done = run("rollup", archive, until)

    assert [row["action"] for row in done].count("rolled up") == 4
    reported = {row["action"].split(": ")[1] for row in done if row["action"].startswith("damaged")}
    assert reported >= DAMAGED - {"0400-page.parquet"}  # Spark does not read the damaged page
    assert run("latency", archive, until) == sound
    assert run("rollup", archive, until) == []


def test_a_rollup_with_nothing_to_do_starts_no_spark(archive, collect, midnight, tmp_path):
    """It succeeds although the given master does not exist."""
    collect(midnight + 30 * MINUTES)
    command = [
        sys.executable,
        "-m",
        "nsqanalytics",
        "run",
        "rollup",
        "--archive",
        archive,
        "--output",
        tmp_path / "out",
    ]
    nowhere = os.environ | {"SPARK_MASTER": "spark://127.0.0.1:1"}

    def rollup(until: str) -> subprocess.CompletedProcess[str]:
        asked = [*command, "--parameter", f"until={until}"]
        return subprocess.run(asked, env=nowhere, capture_output=True, text=True, timeout=300, check=False)

    idle, busy = rollup("2026-03-14T00:40Z"), rollup("2026-03-14T01:00Z")

    assert (idle.returncode, Result(tmp_path / "out").total) == (0, 0), idle.stderr
    assert '"event": "done", "rows": 0' in idle.stdout
    assert busy.returncode == 1


ELSEWHERE = (
    "x.parquet",
    "date=2026-03-14/0000-x.parquet",
    "date=2026-03-14/backup/x.parquet",
    "date=2026-03-14/hour=1/x.parquet",
    "date=2026-03-14/hour=99999999999999/x.parquet",
    "date=9999-12-31/hour=23/x.parquet",
    "date=2026-3-14/hour=01/x.parquet",
    "old/hour=01/x.parquet",
)
"""Paths below ``samples`` that are not in an hour's folder."""


def strewn(archive: Path) -> dict[str, bytes]:
    """Copy a file of the archive to all of ELSEWHERE; return the contents of these."""
    content = files_of(archive, 0)[0].read_bytes()
    for place in ELSEWHERE:
        path = archive / "samples" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return dict.fromkeys(ELSEWHERE, content)


def test_maintenance_leaves_files_outside_of_hours_alone(archive, collect, midnight):
    """None stops it, and none is merged into an hour or removed, whatever the name of its folder."""
    collect(midnight + 2 * HOURS)
    strange = strewn(archive)
    # Longer ago and longer kept than a calendar has days.
    done = [
        *compact(str(archive), HOURS, midnight + 6 * HOURS),
        *retain(str(archive), timedelta(days=36_525), timedelta(days=36_525), midnight + 6 * HOURS),
    ]

    assert [(row[0].hour, row[1], row[2]) for row in done] == [(0, "compacted", 6), (1, "compacted", 6)]
    assert {place: (archive / "samples" / place).read_bytes() for place in ELSEWHERE} == strange


def test_compaction_up_to_a_later_time_removes_nothing_that_is_in_use(archive, collect, midnight):
    """Neither a file that a collector is writing nor one that a report may be reading: their ages are measured by the
    clock."""
    collect(midnight + 2 * HOURS)
    writing = archive / "samples/_writing/0000-new.parquet"
    writing.write_bytes(b"PAR1")
    later = datetime.now(UTC) + timedelta(days=400)

    for _ in range(2):
        list(compact(str(archive), HOURS, later))

    assert writing.exists()
    assert len(files_of(archive, 0)) == 7


@pytest.mark.spark
def test_reports_read_the_hours_and_nothing_elsewhere(run, collect, archive, midnight, spark):
    """In windows of any length, and in a notebook, files elsewhere change no figure and stop no report."""
    collect(midnight + 2 * HOURS)
    until = midnight + 2 * HOURS
    sound = [run("latency", archive, until, window=window) for window in ("5m", "1h")]
    rows = load(str(archive), "samples", until=until, period=HOURS, spark=spark).count()

    strewn(archive)
    for name in ("README", "0600-half.parquet.tmp"):
        (archive / "samples/date=2026-03-14/hour=01" / name).write_text("Do not touch.")

    assert [run("latency", archive, until, window=window) for window in ("5m", "1h")] == sound
    assert load(str(archive), "samples", until=until, period=HOURS, spark=spark).count() == rows


@pytest.mark.spark
def test_rollups_without_samples_are_kept_and_counted(run, collect, archive, midnight):
    """All samples are removed, then a collector with a wrong clock writes one of a year before."""
    broker = collect(midnight + 3 * HOURS)
    until = midnight + 3 * HOURS
    run("rollup", archive, until)
    sound = run("latency", archive, until)
    list(retain(str(archive), HOURS, timedelta(days=400), midnight + 6 * HOURS))

    assert run("latency", archive, until) == sound
    wrong = midnight - timedelta(days=365)
    ArchiveWriter(str(archive)).write(replayed(broker.sample(wrong), wrong))
    run("rollup", archive, until, period="400d")
    assert run("latency", archive, until) == sound


@pytest.mark.spark
@pytest.mark.parametrize(("grain", "window", "hours"), [("hourly", "1h", 2), ("daily", "1d", 24)])
def test_a_damaged_rollup_is_set_aside_and_computed_again(run, collect, archive, midnight, grain, window, hours):
    """Reports show the same from samples; the next rollup computes it again."""
    collect(midnight + hours * HOURS, step=55 * MINUTES)
    until = midnight + hours * HOURS
    run("rollup", archive, until)
    sound = run("latency", archive, until, window=window)
    rolled = min((archive / "rollups" / grain).rglob("*.parquet"))
    rolled.write_bytes(rolled.read_bytes()[:-30])

    found: list[Damaged] = []
    again = without_damaged_files(lambda: run("latency", archive, until, window=window), str(archive), found)

    assert again == sound
    assert [each.file.name for each in found] == [rolled.name]
    assert [Path(name).name for name in names(str(archive))] == [rolled.name]
    assert len(run("rollup", archive, until)) == 1
    assert run("latency", archive, until, window=window) == sound


def test_a_run_continues_if_another_has_moved_the_file_that_it_could_not_read(archive, collect, midnight):
    """Two runs find the same damaged file at once: the slower one finds it moved."""
    collect(midnight + HOURS)
    file = files_of(archive, 0)[0]

    def run() -> int:
        if file.exists():
            file.unlink()
            raise RuntimeError(f"cannot read file:{file}")
        return 7

    assert without_damaged_files(run, str(archive), []) == 7


def test_an_empty_rollup_counts_as_missing(archive, collect, midnight):
    """A crash of the machine can leave one; Spark would read it as an hour without messages."""
    collect(midnight + HOURS)
    [hour] = Rollups(str(archive)).hours.values()
    rolled = archive / "rollups/hourly/date=2026-03-14/hour=00" / f"{hour.mark}.parquet"
    rolled.parent.mkdir(parents=True)
    for content, is_one in ((b"PAR1" * 3, True), (b"", False)):
        rolled.write_bytes(content)
        assert (Rollups(str(archive)).hours[midnight].rollup is not None) == is_one
