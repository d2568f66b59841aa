"""Figures and errors are the same whether tasks read the files themselves or Spark does, and for few rows and many."""

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
from nsqanalytics.job_list import JOBS
from nsqanalytics.locations import Locations
from nsqanalytics.progress import Progress
from nsqanalytics.results import Result

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
def read_by_spark(monkeypatch):
    """Lets Spark read the files, as on a cluster."""
    return lambda: monkeypatch.setattr(rollups, "is_on_this_machine", lambda session: False)


@pytest.fixture
def as_for_many_rows(spark, monkeypatch):
    """Makes the session and the archive's reader those of a large archive, with compiled code."""
    before = {name: spark.conf.get(name) for name in AS_FOR_MANY_ROWS}

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


def test_figures_do_not_depend_on_who_reads_the_files(run, three_hours, read_by_spark, as_for_many_rows):
    """In windows of five minutes and of an hour: read by the tasks, by Spark for one task, and for many."""
    asked = [("latency", {"window": "1h"}), ("throughput", {"window": "5m"})]

    found = [[run(three_hours, name, **parameters) for name, parameters in asked]]
    for change in (read_by_spark, as_for_many_rows):
        change()
        found.append([run(three_hours, name, **parameters) for name, parameters in asked])

    for first, *others in zip(*found, strict=True):
        assert len(first) >= 3
        for other in others:
            assert len(other) == len(first)
            for row, same_row in zip(first, other, strict=True):
                for figure, same in zip(row, same_row, strict=True):
                    # The order of additions is not defined.
                    assert figure == (pytest.approx(same, rel=1e-12) if isinstance(same, float) else same)


@pytest.mark.parametrize("by_spark", [False, True], ids=["read by tasks", "read by Spark"])
def test_an_invalid_reading_is_named_with_its_file(run, three_hours, read_by_spark, by_spark):
    """Although the name has a space and a percent sign."""
    if by_spark:
        read_by_spark()
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
    assert message.endswith(str(strange))


@pytest.mark.parametrize("by_spark", [False, True], ids=["read by tasks", "read by Spark"])
def test_a_file_with_a_column_of_another_type_is_named(run, three_hours, read_by_spark, by_spark):
    """Texts in place of numbers are not converted."""
    if by_spark:
        read_by_spark()
    file = sorted(three_hours.rglob("*.parquet"))[3]
    table = pq.ParquetFile(file).read()
    at = table.schema.get_field_index("depth")
    pq.write_table(table.set_column(at, "depth", pa.array(["7"] * table.num_rows)), file)

    with pytest.raises(Exception, match="parquet") as raised:
        run(three_hours, "throughput")

    kind, message = explained(raised.value)
    assert kind == "archive"
    assert str(file) in message
