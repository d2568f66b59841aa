"""The archive as Iceberg tables: pyiceberg reads from them the rows that Spark reads from the files, after each job of
maintenance, and a catalog that is away delays and loses nothing."""

from __future__ import annotations

import io
import os
import random
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table

from nsqanalytics.archive import ArchiveWriter
from nsqanalytics.compaction import compact
from nsqanalytics.iceberg import registration, snapshots, tables
from nsqanalytics.iceberg.catalog import is_catalog, opened, shown
from nsqanalytics.iceberg.registration import register
from nsqanalytics.iceberg.state import read_state
from nsqanalytics.iceberg.tables import DAILY, HOURLY, STATS, TABLES, ArchiveTable
from nsqanalytics.job_list import JOBS
from nsqanalytics.locations import Locations
from nsqanalytics.progress import Progress
from nsqanalytics.results import Result
from nsqanalytics.rollups import Rollups
from nsqanalytics.schema import ARROW_SCHEMA, Sample, as_table
from tests.postgres import start_postgres

pytestmark = pytest.mark.timeout(600)

HOURS = timedelta(hours=1)
MINUTES = timedelta(minutes=1)


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    server, stop = start_postgres()
    yield server.get_uri()
    stop()


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that is bound, and on which nothing listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/catalog.sqlite3"


@pytest.fixture
def maintain(spark, archive, tmp_path, midnight, monkeypatch) -> Callable[..., list[dict[str, Any]]]:
    """Runs a job on the archive with a catalog, as at the time ``now``, by default ``until``; returns the rows of its
    result."""

    def run(
        name: str, catalog: str, until: datetime | None, now: datetime | None = None, **parameters: str
    ) -> list[dict[str, Any]]:
        now = now or until
        assert now is not None
        monkeypatch.setenv("NSQ_ICEBERG_CATALOG", catalog)
        output = tmp_path / f"result-{random.randrange(1 << 30)}"
        period = {"period": "2d"} if name == "rollup" else {}
        given = JOBS[name].checked({"until": until and until.isoformat(), **period, **parameters})
        job, place, progress = JOBS[name], Locations(str(archive), str(output)), Progress(io.StringIO())
        if job.without_spark is None or job.without_spark(place, given, now, progress) is None:
            job.run(spark, place, given, now, progress)
        result = Result(output)
        names = [column.name for column in result.columns]
        return [dict(zip(names, row, strict=True)) for row in result.page(0, 10_000)]

    return run


@pytest.fixture
def collect(make_broker, midnight, archive, lognormal):
    """Writes the readings of one broker every 20 minutes, as one file each, for some hours from midnight on."""
    rng = random.Random(5)
    broker = make_broker(started_at=midnight)

    def collect(hours: int, since: int = 0) -> None:
        for minute in range(since * 60 + 5, hours * 60, 20):
            at = midnight + timedelta(minutes=minute)
            for _ in range(rng.randint(1, 5)):
                broker.finish("orders", "billing", lognormal(rng, 20), at)
            ArchiveWriter(str(archive)).write(broker.sample(at))

    return collect


def table_of(catalog: str, archive: Path, table: ArchiveTable = STATS) -> Table:
    found = table.load(opened(catalog, ""), "nsq", str(archive))
    assert found is not None
    return found


def in_order(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows as dicts, sorted, with the columns in one order, and times in one zone.

    pyiceberg 0.12 reads a missing list of structs, such as ``percentiles``, as an empty list.
    """
    rows = rows.select(sorted(rows.column_names))
    columns = []
    for field in rows.schema:
        utc = pa.timestamp("us", "UTC") if pa.types.is_timestamp(field.type) else field.type
        columns.append(field.with_type(utc))
    found = rows.cast(pa.schema(columns)).to_pylist()
    return sorted(({**row, "percentiles": row.get("percentiles") or None} for row in found), key=repr)


def by_iceberg(catalog: str, archive: Path, table: ArchiveTable = STATS) -> list[dict[str, Any]]:
    return in_order(table_of(catalog, archive, table).scan().to_arrow())


def by_spark(spark, archive: Path, table: ArchiveTable, until: datetime) -> list[dict[str, Any]]:
    """The rows that reports read from the files of the hours or days that have ended."""
    if table is STATS:
        rows = Rollups(str(archive)).read_samples(spark, datetime(2026, 1, 1, tzinfo=UTC), until)
        rows = rows.drop("date", "hour")
    else:
        rows = spark.read.option("basePath", table.folder(str(archive)).root).parquet(
            *(file.path for files in table.folder(str(archive)).partitions().values() for file in files)
        )
        rows = rows.drop("date", "hour")
    return in_order(rows.toArrow())


def files_in(table: Table) -> set[Path]:
    """The files of the table, each of which must exist."""
    paths = {Path(task.file.file_path.removeprefix("file://")) for task in table.scan().plan_files()}
    assert all(path.is_file() for path in paths)
    return paths


def actions(rows: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    return [(row["action"], row["files_before"], row["files_after"]) for row in rows]


@pytest.mark.spark
def test_the_tables_have_the_rows_that_spark_reads_from_the_files(spark, archive, midnight, collect, maintain, sqlite):
    """From small files to compacted ones, rollups, a late file and retention. Each change is one commit."""
    collect(27)
    end = midnight + 27 * HOURS + MINUTES
    assert actions(maintain("compact", sqlite, end, older_than="9d")) == [("registered in nsq.stats", 0, 81)]
    small = by_iceberg(sqlite, archive)
    assert small == by_spark(spark, archive, STATS, end)
    assert len(small) == 162

    done = maintain("compact", sqlite, end)
    assert actions(done)[-1] == ("registered in nsq.stats", 81, 27)
    assert by_iceberg(sqlite, archive) == small == by_spark(spark, archive, STATS, end)
    assert len(files_in(table_of(sqlite, archive))) == 27

    done = maintain("rollup", sqlite, end)
    assert actions(done)[-2:] == [
        ("registered in nsq.rollups_hourly", 0, 27),
        ("registered in nsq.rollups_daily", 0, 1),
    ]
    for table, rows in ((HOURLY, 54), (DAILY, 2)):
        found = by_iceberg(sqlite, archive, table)
        assert found == by_spark(spark, archive, table, end)
        assert len(found) == rows

    # A late file: the rollups of two hours change.
    at = midnight + 25 * HOURS + timedelta(minutes=7)
    ArchiveWriter(str(archive)).write([Sample(taken_at=at, node="b:4151", boot_id="1", started_at=at, topic="orders")])
    maintain("compact", sqlite, end)
    maintain("rollup", sqlite, end)
    for table in TABLES:
        assert by_iceberg(sqlite, archive, table) == by_spark(spark, archive, table, end), table.name
        files_in(table_of(sqlite, archive, table))
    assert len(by_iceberg(sqlite, archive)) == 163

    done = maintain("retain", sqlite, end, samples="2h", rollups="2h")
    assert actions(done)[:3] == [
        ("registered in nsq.stats", 25, 0),
        ("registered in nsq.rollups_hourly", 24, 0),
        ("registered in nsq.rollups_daily", 1, 0),
    ]
    for table in (STATS, HOURLY):
        assert by_iceberg(sqlite, archive, table) == by_spark(spark, archive, table, end), table.name
        files_in(table_of(sqlite, archive, table))
    assert by_iceberg(sqlite, archive, DAILY) == []
    assert maintain("compact", sqlite, end) == []
    state = read_state(str(archive))
    assert state is not None
    assert [(each.name, each.files) for each in state.tables] == [
        ("nsq.stats", 2),
        ("nsq.rollups_hourly", 3),
        ("nsq.rollups_daily", 0),
    ]
    assert state.error == ""


def test_a_catalog_in_postgresql(archive, midnight, collect, postgres):
    """The same commits as in SQLite: small files, compacted ones, and removed ones."""
    root, end = str(archive), midnight + 3 * HOURS
    collect(3)
    assert [row[2:4] for row in register(root, postgres, "nsq", end)] == [(0, 9)]
    small = by_iceberg(postgres, archive)
    assert len(small) == 18
    list(compact(root, timedelta(0), end))
    assert [row[2:4] for row in register(root, postgres, "nsq", end)] == [(9, 3)]
    assert by_iceberg(postgres, archive) == small
    leaving = frozenset(str(path) for path in (archive / "samples/date=2026-03-14/hour=00").iterdir())
    assert [row[2:4] for row in register(root, postgres, "nsq", end, leaving)] == [(1, 0)]
    assert by_iceberg(postgres, archive) == [row for row in small if row["taken_at"] >= midnight + HOURS]


@pytest.mark.spark
def test_the_table_is_partitioned_as_the_folders_are(archive, midnight, collect, maintain, sqlite):
    """A reader of one hour opens the file of this hour only; columns have their meanings."""
    collect(3)
    maintain("compact", sqlite, midnight + 3.1 * HOURS)
    table = table_of(sqlite, archive)
    since, until = (midnight + hours * HOURS for hours in (1, 2))
    hour = table.scan(row_filter=f"taken_at >= '{since.isoformat()}' and taken_at < '{until.isoformat()}'")
    [task] = hour.plan_files()
    assert "hour=01" in task.file.file_path
    assert len(hour.to_arrow()) == 6
    assert table.schema().find_field("depth").doc.startswith("gauge: ")
    assert [field.name for field in table.schema().fields] == ARROW_SCHEMA.names


def test_files_of_an_hour_that_has_not_ended_are_not_registered(archive, midnight, collect, sqlite):
    collect(2)
    done = register(str(archive), sqlite, "nsq", midnight + 1.5 * HOURS)
    assert [(row[1], row[3]) for row in done] == [("registered in nsq.stats", 3)]


@pytest.mark.spark
def test_a_column_that_is_new_is_empty_for_older_files(spark, archive, midnight, maintain, sqlite):
    """The table gets the column before a file with it. A column that only a later collector knows is added too."""

    def write(hour: int, left_out: tuple[str, ...], **added: int) -> None:
        at = midnight + hour * HOURS
        rows = as_table([Sample(taken_at=at, node="n", boot_id="b", started_at=at, topic="t", died_count=hour)])
        for name, value in added.items():
            rows = rows.append_column(name, pa.array([value], pa.int64()))
        place = archive / f"samples/date=2026-03-14/hour={hour:02}"
        place.mkdir(parents=True)
        pq.write_table(rows.drop_columns([*left_out]), place / "0000-a.parquet")

    write(0, ("died_count",))
    known = pa.schema([field for field in tables.declared_columns() if field.name != "died_count"])
    STATS.create(opened(sqlite, ""), "nsq", str(archive), known)
    assert "died_count" not in table_of(sqlite, archive).schema().column_names

    write(1, ())
    write(2, (), of_tomorrow=7)
    maintain("compact", sqlite, midnight + 3.1 * HOURS)
    found = table_of(sqlite, archive).scan().to_arrow().sort_by("taken_at")
    assert found["died_count"].to_pylist() == [None, 1, 2]
    assert found["of_tomorrow"].to_pylist() == [None, None, 7]
    assert in_order(found.drop_columns("of_tomorrow")) == by_spark(spark, archive, STATS, midnight + 3 * HOURS)


@pytest.mark.spark
def test_a_catalog_that_is_away_delays_nothing_and_loses_nothing(
    spark, archive, tmp_path, midnight, collect, maintain, capsys
):
    """Maintenance succeeds, its result and log name the catalog, and the next one registers all that was missed."""
    catalog = f"sqlite:///{tmp_path}/away/catalog.sqlite3"
    (tmp_path / "away").mkdir()
    collect(2)
    maintain("compact", catalog, midnight + 2.1 * HOURS)
    (tmp_path / "away").rename(tmp_path / "elsewhere")
    capsys.readouterr()

    collect(4, since=2)
    done = maintain("compact", catalog, midnight + 4.1 * HOURS)
    [*compacted, refused] = [row["action"] for row in done]
    assert compacted == ["compacted", "compacted"]
    reason = (
        f"the Iceberg catalog sqlite:///{tmp_path}/away/catalog.sqlite3 cannot be used: unable to open database file"
    )
    assert refused == f"not registered: {reason}"
    assert f"analytics: {refused}\n" in capsys.readouterr().err
    state = read_state(str(archive))
    assert state is not None
    assert (state.error, [each.files for each in state.tables]) == (reason, [2])
    done = maintain("retain", catalog, midnight + 4.1 * HOURS, samples="3h")
    assert [row["action"] for row in done] == [refused, "samples removed"]

    (tmp_path / "elsewhere").rename(tmp_path / "away")
    maintain("compact", catalog, midnight + 4.1 * HOURS)
    assert by_iceberg(catalog, archive) == by_spark(spark, archive, STATS, midnight + 4 * HOURS)
    assert len(files_in(table_of(catalog, archive))) == 3
    state = read_state(str(archive))
    assert state is not None
    assert (state.error, [each.files for each in state.tables]) == ("", [3])


@pytest.mark.spark
def test_maintenance_up_to_an_earlier_time_unregisters_no_later_hour(archive, midnight, collect, maintain, sqlite):
    """Nor does a rollup just after an hour, which does not roll it up yet."""
    collect(5)
    now = midnight + 5 * HOURS + MINUTES / 2
    maintain("compact", sqlite, now, older_than="1s")
    registered = files_in(table_of(sqlite, archive))
    assert len(registered) == 5

    jobs = ["rollup", "rollup", "compact", "retain"]
    for name in jobs:
        maintain(name, sqlite, midnight + 3 * HOURS, now)
        assert files_in(table_of(sqlite, archive)) == registered, name
    assert len(files_in(table_of(sqlite, archive, HOURLY))) == 3

    assert actions(maintain("rollup", sqlite, None, now)) == [
        ("rolled up", 4, 1),
        ("registered in nsq.rollups_hourly", 0, 1),
    ]
    assert files_in(table_of(sqlite, archive)) == registered


def test_a_rollup_with_nothing_to_roll_up_registers_what_is_missing(
    spark, archive, midnight, collect, maintain, sqlite
):
    """As after the catalog was away, or was not given yet."""
    collect(2)
    until = midnight + 2.1 * HOURS
    assert maintain("rollup", "", until)
    assert actions(maintain("rollup", sqlite, until)) == [
        ("registered in nsq.stats", 0, 6),
        ("registered in nsq.rollups_hourly", 0, 2),
    ]
    assert by_iceberg(sqlite, archive, HOURLY) == by_spark(spark, archive, HOURLY, until)
    assert maintain("rollup", sqlite, until) == []


def test_a_reader_of_an_old_snapshot_reads_it_until_its_files_are_removed(archive, midnight, collect, sqlite):
    """Compaction keeps the files that it replaced for two hours; then the snapshots that had them are removed."""
    root, now = str(archive), datetime.now(UTC)
    collect(2)
    register(root, sqlite, "nsq", now)
    reader = table_of(sqlite, archive)
    held = reader.current_snapshot()
    before = in_order(reader.scan().to_arrow())
    list(compact(root, timedelta(0), midnight + 2 * HOURS))
    register(root, sqlite, "nsq", now)

    table = table_of(sqlite, archive)
    assert [snapshot.summary.operation.value for snapshot in table.snapshots()] == ["append", "overwrite"]
    assert in_order(reader.scan().to_arrow()) == before
    assert in_order(table.scan(snapshot_id=held.snapshot_id).to_arrow()) == before
    assert in_order(table.scan().to_arrow()) == before

    assert snapshots.expire(table, now - HOURS) == 0
    for path in (archive / "samples").rglob("*.parquet"):
        os.utime(path, ((now - 3 * HOURS).timestamp(),) * 2)
    swept = [row[1] for row in compact(root, timedelta(0), now)]
    assert swept == ["swept", "swept"]
    with pytest.raises(FileNotFoundError):
        reader.scan().to_arrow()
    lists = set((archive / "iceberg/stats/metadata").glob("snap-*.avro"))
    assert snapshots.expire(table, datetime.now(UTC) + HOURS) == 1
    [left] = table_of(sqlite, archive).snapshots()
    kept = set((archive / "iceberg/stats/metadata").glob("snap-*.avro"))
    assert kept == {Path(left.manifest_list.removeprefix("file://"))} < lists
    assert by_iceberg(sqlite, archive) == before


def test_many_manifests_are_joined_and_forget_removed_files(archive, midnight, collect, sqlite, monkeypatch):
    """Rows are the same, and a reader opens few files."""
    monkeypatch.setattr(snapshots, "MANY_MANIFESTS", 4)
    for hour in range(6):
        collect(hour + 1, since=hour)
        register(str(archive), sqlite, "nsq", midnight + (hour + 1) * HOURS)
        gone = frozenset(str(path) for path in (archive / "samples/date=2026-03-14/hour=00").glob("*"))
        register(str(archive), sqlite, "nsq", midnight + (hour + 1) * HOURS, gone)
    table = table_of(sqlite, archive)
    manifests = table.current_snapshot().manifests(table.io)
    assert len(manifests) < 4
    assert len(table.scan().to_arrow()) == 5 * 6


def test_two_runs_at_once_register_each_file_once(archive, midnight, collect, sqlite):
    """One of two commits fails, and this run finds that nothing is left to do."""
    collect(3)
    register(str(archive), sqlite, "nsq", midnight + HOURS)
    failed: list[str] = []

    def run() -> None:
        done = register(str(archive), sqlite, "nsq", midnight + 3 * HOURS)
        failed.extend(row[1] for row in done if row[1].startswith("not registered"))

    runs = [threading.Thread(target=run) for _ in range(3)]
    for each in runs:
        each.start()
    for each in runs:
        each.join()
    register(str(archive), sqlite, "nsq", midnight + 3 * HOURS)
    assert len(by_iceberg(sqlite, archive)) == 18
    assert not failed


def test_a_table_that_another_run_creates_meanwhile_has_each_file_once(archive, midnight, collect, sqlite, monkeypatch):
    """This run had found no table yet. It starts again, and finds that nothing is left to do."""
    collect(1)
    load = ArchiveTable.load

    def late(*words: Any) -> Table | None:
        monkeypatch.setattr(ArchiveTable, "load", load)
        found = load(*words)
        assert register(str(archive), sqlite, "nsq", midnight + HOURS)
        return found

    monkeypatch.setattr(ArchiveTable, "load", late)
    assert register(str(archive), sqlite, "nsq", midnight + HOURS) == []
    assert len(by_iceberg(sqlite, archive)) == 6


def test_a_file_that_does_not_fit_is_named_once_if_a_commit_fails(archive, midnight, collect, sqlite, monkeypatch):
    """Another run commits between this run's listing and its commit, and this run starts again."""
    collect(1)
    register(str(archive), sqlite, "nsq", midnight + HOURS)
    collect(2, since=1)
    (archive / "samples/date=2026-03-14/hour=01/torn.parquet").write_bytes(b"PAR1" * 20)
    commit = registration._commit

    def late(*words: Any) -> None:
        monkeypatch.setattr(registration, "_commit", commit)
        assert register(str(archive), sqlite, "nsq", midnight + 2 * HOURS)
        commit(*words)

    monkeypatch.setattr(registration, "_commit", late)
    done = register(str(archive), sqlite, "nsq", midnight + 2 * HOURS)
    assert [row[1].split(": ")[:2] for row in done] == [["not registered", "torn.parquet"]]
    assert len(by_iceberg(sqlite, archive)) == 12


def test_a_table_whose_creation_was_interrupted_is_completed(archive, midnight, collect, sqlite):
    """A killed run has created it, but neither its partitions nor the names of its columns in files."""
    collect(2)
    catalog = opened(sqlite, "")
    catalog.create_namespace("nsq")
    catalog.create_table(("nsq", "stats"), tables.declared_columns(), location=STATS.location(str(archive)))
    register(str(archive), sqlite, "nsq", midnight + 2 * HOURS)
    found = table_of(sqlite, archive)
    assert [str(each.transform) for each in found.spec().fields] == ["hour"]
    assert {task.file.partition[0] for task in found.scan().plan_files()} == {
        midnight.timestamp() // 3600 + at for at in (0, 1)
    }
    assert len(by_iceberg(sqlite, archive)) == 12


def test_a_file_that_does_not_fit_is_named_and_the_others_are_registered(archive, midnight, collect, sqlite):
    """One with another type of column, one with a type that Iceberg does not have, and one that is no Parquet file."""
    collect(1)
    register(str(archive), sqlite, "nsq", midnight + HOURS)
    place = archive / "samples/date=2026-03-14/hour=01"
    collect(2, since=1)
    strange = as_table([Sample(taken_at=midnight + HOURS, node="n", boot_id="b", started_at=midnight, topic="t")])
    at = strange.schema.get_field_index("depth")
    pq.write_table(strange.set_column(at, "depth", pa.array(["deep"])), place / "strange.parquet")
    fine = {"taken_at": pa.array([midnight], pa.timestamp("us", "UTC")), "noted_at": pa.array([1], pa.timestamp("ns"))}
    pq.write_table(pa.table(fine), place / "nanoseconds.parquet")
    (place / "torn.parquet").write_bytes(b"PAR1" * 20)
    done = register(str(archive), sqlite, "nsq", midnight + 2 * HOURS)
    assert [row[1].split(": ")[:2] for row in done] == [
        ["registered in nsq.stats"],
        ["not registered", "torn.parquet"],
        ["not registered", "nanoseconds.parquet"],
        ["not registered", "strange.parquet"],
    ]
    assert len(by_iceberg(sqlite, archive)) == 12


@pytest.mark.parametrize("table", [STATS, HOURLY], ids=["samples", "rollups"])
def test_a_file_without_columns_is_named_and_the_others_are_registered(archive, midnight, collect, sqlite, table):
    """It also has no time; so it is named if it is the first file of its table."""
    collect(1)
    folder = archive / table.dataset / "date=2026-03-14/hour=00"
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({}), folder / "nothing.parquet")
    done = {row[1] for row in register(str(archive), sqlite, "nsq", midnight + HOURS)}
    assert done == {
        "registered in nsq.stats",
        f"not registered: nothing.parquet: it has no column {table.time}",
    }
    assert len(by_iceberg(sqlite, archive)) == 6
    state = read_state(str(archive))
    assert state is not None
    assert state.error == ""


def test_a_table_whose_metadata_are_gone_is_registered_anew(archive, midnight, collect, sqlite):
    """``iceberg/`` was emptied; the catalog still names the table. Without a file to register, nothing is changed."""
    collect(1)
    register(str(archive), sqlite, "nsq", midnight + HOURS)
    rows = by_iceberg(sqlite, archive)
    shutil.rmtree(archive / "iceberg/stats")
    [(_, action, *_)] = register(str(archive), sqlite, "nsq", midnight)
    assert "stats/metadata/" in action
    assert action.startswith("not registered: ")
    [(_, action, *_)] = register(str(archive), sqlite, "nsq", midnight + HOURS)
    assert action == "registered in nsq.stats"
    assert by_iceberg(sqlite, archive) == rows


@pytest.mark.spark
def test_rollups_of_older_versions_get_times_that_iceberg_knows(spark, archive, midnight, collect, maintain, sqlite):
    """Spark wrote them with INT96. They are rewritten with the same rows, and reports still take them as valid."""
    collect(2)
    maintain("rollup", "", midnight + 2.1 * HOURS)
    paths = sorted((archive / "rollups/hourly").rglob("*.parquet"))
    new = by_spark(spark, archive, HOURLY, midnight)
    for path in paths:
        pq.write_table(pq.read_table(path, partitioning=None), path, use_deprecated_int96_timestamps=True)
    assert {pq.read_metadata(path).schema.column(0).physical_type for path in paths} == {"INT96"}
    maintain("compact", sqlite, midnight + 2.1 * HOURS)
    assert by_iceberg(sqlite, archive, HOURLY) == by_spark(spark, archive, HOURLY, midnight) == new
    assert sorted((archive / "rollups/hourly").rglob("*.parquet")) == paths
    assert [path.name for path in (archive / "rollups/hourly").iterdir()] == ["date=2026-03-14"]
    assert all(hour.rollup is not None for hour in Rollups(str(archive)).hours.values())


def test_a_table_of_another_archive_is_left_alone(archive, tmp_path, midnight, collect, sqlite):
    """Two archives need two namespaces."""
    collect(1)
    register(str(archive), sqlite, "nsq", midnight + HOURS)
    other = tmp_path / "other"
    sample = Sample(taken_at=midnight, node="n", boot_id="b", started_at=midnight, topic="t")
    ArchiveWriter(str(other)).write([sample])
    [(_, action, *_)] = register(str(other), sqlite, "nsq", midnight + HOURS)
    assert f"the table nsq.stats belongs to another archive: its location is file://{archive}/iceberg/stats" in action
    assert len(by_iceberg(sqlite, archive)) == 6
    register(str(other), sqlite, "nsq_other", midnight + HOURS)
    assert len(opened(sqlite, "").load_table("nsq_other.stats").scan().to_arrow()) == 1


def test_no_password_is_in_an_error(archive, midnight, collect, closed_port):
    """A PostgreSQL that does not listen, and a REST catalog that does not."""
    collect(1)
    for catalog, name in (
        (
            f"postgresql://nsq:hunter2@127.0.0.1:{closed_port}/catalog",
            f"postgresql://nsq@127.0.0.1:{closed_port}/catalog",
        ),
        (f"http://nsq:hunter2@127.0.0.1:{closed_port}/rest", f"http://nsq@127.0.0.1:{closed_port}/rest"),
        (f"http://127.0.0.1:{closed_port}/rest?token=hunter2", f"http://127.0.0.1:{closed_port}/rest"),
    ):
        [(_, action, *_)] = register(str(archive), catalog, "nsq", midnight + HOURS)
        assert action.startswith(f"not registered: the Iceberg catalog {name} cannot be used: ")
        assert "hunter2" not in action
        assert len(action.splitlines()) == 1


@pytest.mark.parametrize(
    ("uri", "is_one"),
    [
        ("sqlite:////var/lib/nsq/catalog.sqlite3", True),
        ("sqlite:///catalog.sqlite3", False),
        ("postgresql://user:secret@host:5432/name", True),
        ("postgres:///name?host=/run/postgresql", True),
        ("postgresql://host", False),
        ("https://catalog.example.org/rest", True),
        ("https:///rest", False),
        ("http://host:port", False),
        ("mysql://host/name", False),
        ("", False),
    ],
)
def test_the_forms_of_a_catalog(uri, is_one):
    assert is_catalog(uri) is is_one
    if is_one:
        assert "secret" not in shown(uri)
