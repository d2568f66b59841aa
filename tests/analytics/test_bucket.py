"""An archive and results in a bucket of an S3 server: all operations without Spark."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow.parquet as pq

from nsqanalytics.archive import ArchiveWriter, samples_path
from nsqanalytics.files import Folder
from nsqanalytics.job_list import JOBS
from nsqanalytics.locations import Locations
from nsqanalytics.progress import Progress
from nsqanalytics.schema import Sample

BEGAN = datetime(2026, 3, 14, tzinfo=UTC)


def run(job: str, archive: str, now: datetime, **given: str) -> list[dict[str, Any]]:
    """The rows of a maintenance job's result, which is in the bucket too."""
    place = Locations(archive, f"{archive}/results/{job}")
    JOBS[job].run(None, place, JOBS[job].checked(given), now, Progress(io.StringIO()))
    result = Folder(place.output)
    rows: list[dict[str, Any]] = pq.read_table(result.root, filesystem=result.system).to_pylist()
    return rows


def test_samples_in_a_bucket_are_compacted_and_dropped_when_they_are_old(bucket):
    """Small files are merged into one an hour, with all samples; a second run's result replaces the first's."""
    for minute in range(0, 120, 20):
        at = BEGAN + timedelta(minutes=minute)
        sample = Sample(taken_at=at, node="n", boot_id="b", started_at=BEGAN, topic="t", depth=minute)
        ArchiveWriter(bucket).write([sample])
    samples = Folder(samples_path(bucket))
    assert [len(files) for files in samples.partitions().values()] == [3, 3]

    done = run("compact", bucket, BEGAN + timedelta(days=1))
    assert [row["action"] for row in done] == ["compacted", "compacted"]
    for hour, files in samples.partitions().items():
        (whole,) = [file for file in files if file.name.startswith("compact-")]
        depths = pq.read_table(whole.path, filesystem=samples.system, partitioning=None)["depth"].to_pylist()
        assert depths == [60 * hour.hour + minute for minute in (0, 20, 40)]
    assert run("compact", bucket, BEGAN + timedelta(days=1)) == []

    assert len(run("retain", bucket, BEGAN + timedelta(days=40))) == 2
    assert samples.partitions() == {}


def test_an_archive_in_a_bucket_is_registered_where_it_is(bucket, tmp_path):
    """The table names the objects by ``s3://``, and its own metadata is in the bucket too."""
    from nsqanalytics.iceberg.catalog import opened
    from nsqanalytics.iceberg.registration import register

    for minute in range(0, 120, 20):
        at = BEGAN + timedelta(minutes=minute)
        sample = Sample(taken_at=at, node="n", boot_id="b", started_at=BEGAN, topic="t", depth=minute)
        ArchiveWriter(bucket).write([sample])
    catalog = f"sqlite:///{tmp_path}/catalog.sqlite3"
    for job, files in (("", 6), ("compact", 2)):
        if job:
            run(job, bucket, BEGAN + timedelta(days=1))
        register(bucket, catalog, "nsq", BEGAN + timedelta(days=1))
        scan = opened(catalog, "").load_table("nsq.stats").scan()
        places = [task.file.file_path for task in scan.plan_files()]
        assert len(places) == files
        assert all(place.startswith("s3://stats/nsq/samples/date=2026-03-14/") for place in places)
        assert sorted(scan.to_arrow()["depth"].to_pylist()) == [*range(0, 120, 20)]
