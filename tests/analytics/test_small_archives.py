"""A small archive is computed in one task from gathered files: figures and errors are those of a large archive."""

from __future__ import annotations

import io
import random
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nsqanalytics import rollups
from nsqanalytics.failures import explained
from nsqanalytics.files import FEW_BYTES, FEW_ROWS
from nsqanalytics.hourly_files import MANY_FILES
from nsqanalytics.job_list import JOBS
from nsqanalytics.locations import Locations
from nsqanalytics.progress import Progress
from nsqanalytics.results import Result
from nsqanalytics.session import SCRATCH

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

MINUTES = timedelta(minutes=1)
AS_FOR_MANY_ROWS = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.shuffle.partitions": "3",
}


@pytest.fixture
def run(spark, tmp_path, midnight):
    """Runs a job over three hours of an archive; returns its rows."""

    def run(archive: Path, name: str, **parameters: str):
        output = tmp_path / f"result-{random.randrange(1 << 30)}"
        job = JOBS[name]
        given = job.checked({"until": (midnight + 180 * MINUTES).isoformat(), "period": "3h"} | parameters)
        job.run(spark, Locations(str(archive), str(output)), given, midnight, Progress(io.StringIO()))
        return Result(output).page(0, 10_000)

    return run


@pytest.fixture
def as_for_many_rows(spark, monkeypatch):
    """Makes the session and the archive's reader those of a large archive; without gathering, and compiled."""
    before = {name: spark.conf.get(name) for name in (SCRATCH, *AS_FOR_MANY_ROWS)}

    def switch() -> None:
        monkeypatch.setattr(rollups, "FEW_BYTES", -1)
        for name, value in AS_FOR_MANY_ROWS.items():
            spark.conf.set(name, value)

    yield switch
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.fixture
def three_hours(make_broker, midnight, archive, write, lognormal) -> Path:
    """Two nodes, with a restart and a channel created again; a Go node; a reading that is stored twice."""
    rng = random.Random(9)
    brokers = [make_broker("10.0.0.1:4151"), make_broker("10.0.0.2:4151")]
    for step in range(1, 36):
        at = midnight + 5 * step * MINUTES - timedelta(seconds=20)
        for broker in brokers:
            for _ in range(rng.randint(1, 6)):
                broker.finish("t", "c", lognormal(rng, 20), at)
        rows = [row for broker in brokers for row in broker.sample(at)]
        go = replace(rows[0], node="go:4151", boot_id="1", message_count=10 * step, depth=step)
        write([*rows, go, replace(go, channel="c", requeue_count=step)])
        if step == 7:
            write(rows)
        if step == 14:
            brokers[0].restart(at)
        if step == 20:
            brokers[1].delete("t", "c")
    return archive


def test_figures_are_those_of_the_same_readings_read_as_a_large_archive(run, three_hours, as_for_many_rows):
    """In windows of five minutes and of an hour, compiled or interpreted, from few files or many."""
    asked = [("latency", {"window": "1h"}), ("throughput", {"window": "5m"})]
    assert len(list(three_hours.rglob("*.parquet"))) > MANY_FILES

    small = [run(three_hours, name, **parameters) for name, parameters in asked]
    as_for_many_rows()
    large = [run(three_hours, name, **parameters) for name, parameters in asked]

    for here, there in zip(small, large, strict=True):
        assert len(here) == len(there) >= 3
        for one, other in zip(here, there, strict=True):
            for figure, same in zip(one, other, strict=True):
                # The order of additions is not defined.
                assert figure == (pytest.approx(same, rel=1e-12) if isinstance(same, float) else same)


def test_an_invalid_reading_is_named_with_its_own_file(run, three_hours):
    """Not with that of the hourly file, although the name has a space and a percent sign."""
    [file, *_] = sorted(three_hours.rglob("*.parquet"))
    table = pq.ParquetFile(file).read()
    at = table.schema.get_field_index("message_count")
    file.unlink()
    strange = file.with_name("a %41 reading.parquet")
    pq.write_table(table.set_column(at, table.schema.field(at), pa.array([-5] * table.num_rows)), strange)

    with pytest.raises(Exception, match="a reading is invalid") as raised:
        run(three_hours, "latency")

    kind, message = explained(raised.value)
    assert (kind, "message_count is -5" in message) == ("archive", True)
    assert message.endswith(strange.name)


def test_a_file_with_a_column_of_another_type_is_named(run, three_hours):
    """Texts in place of numbers are not converted."""
    file = sorted(three_hours.rglob("*.parquet"))[3]
    table = pq.ParquetFile(file).read()
    at = table.schema.get_field_index("depth")
    pq.write_table(table.set_column(at, "depth", pa.array(["7"] * table.num_rows)), file)

    with pytest.raises(Exception, match="parquet") as raised:
        run(three_hours, "throughput")

    kind, message = explained(raised.value)
    assert kind == "archive"
    assert file.name in message


def test_a_small_file_with_very_many_readings_is_not_read_in_one_task(make_broker, midnight, archive, write):
    """Readings of idle channels are compressed to less than a byte each, and need as much memory as others."""
    broker = make_broker("10.0.0.1:4151")
    broker.finish("t", "c", 10**6, midnight + MINUTES)
    write(broker.sample(midnight + MINUTES))
    [file] = archive.rglob("*.parquet")
    table = pq.read_table(file)
    for rows, are_few in ((FEW_ROWS, True), (FEW_ROWS + 1, False)):
        pq.write_table(table.take([0] * rows), file)
        read = rollups.Rollups(str(archive))
        assert rollups.MOST_BYTES_OF_A_POLL < read.size_of_samples(midnight, midnight + 60 * MINUTES) <= FEW_BYTES
        assert read.has_few_samples(midnight, midnight + 60 * MINUTES) == are_few
