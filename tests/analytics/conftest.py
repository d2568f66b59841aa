"""One Spark session for all of these tests in a process, and brokers whose latencies are known."""

from __future__ import annotations

import math
import os
import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nsqanalytics.archive import ArchiveWriter
from nsqanalytics.class_archive import class_archive
from nsqanalytics.counting.ends import Rules
from nsqanalytics.counting.of_files import Wanted
from nsqanalytics.java import find_java
from nsqanalytics.rollups import Rollups
from nsqanalytics.schema import Sample
from nsqanalytics.session import spark_session
from nsqanalytics.span import Span
from nsqwire.histogram import Histogram

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MIDNIGHT = datetime(2026, 3, 14, tzinfo=UTC)


@pytest.fixture(scope="session")
def class_options() -> str:
    """Java options that use the archive of Spark's classes, which is created first if this machine has none."""
    subprocess.run([sys.executable, "-m", "nsqanalytics", "classes"], check=True)
    found = class_archive(find_java(os.environ), os.environ)
    assert found is not None
    return found.options()


@pytest.fixture(scope="session")
def only_spark() -> Iterator[SparkSession]:
    with spark_session("tests", size=0) as session:
        yield session


@pytest.fixture
def spark(only_spark: SparkSession) -> Iterator[SparkSession]:
    """The one session of all tests in this process; cached data of a test is dropped with it."""
    yield only_spark
    only_spark.catalog.clearCache()


@pytest.fixture(params=["UTC", "Asia/Kolkata"])
def session_zone(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    """The time zone of the session, whose hours and days need not be those of UTC."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield request.param
    spark.conf.set("spark.sql.session.timeZone", before)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """``s3a://…``, empty; credentials and endpoint are in the environment, as docs/analytics.md says."""
    import boto3  # this and the server take a second to import
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ACCESS_KEY_ID": "someone",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
    }.items():
        monkeypatch.setenv(name, value)
    boto3.client("s3").create_bucket(Bucket="stats")
    yield "s3a://stats/nsq"
    server.stop()


@dataclass
class Broker:
    """One node's counters, as brokerd has them, and every latency that they counted."""

    node: str
    started_at: datetime
    boots: int = 1
    histograms: dict[tuple[str, str], Histogram] = field(default_factory=lambda: defaultdict(Histogram))
    raw: dict[tuple[str, str], list[tuple[datetime, int]]] = field(default_factory=lambda: defaultdict(list))

    def finish(self, topic: str, channel: str, latency_ns: int, at: datetime) -> None:
        self.histograms[topic, channel].record(latency_ns)
        self.raw[topic, channel].append((at, latency_ns))

    def delete(self, topic: str, channel: str) -> None:
        del self.histograms[topic, channel]

    def restart(self, at: datetime) -> None:
        self.boots += 1
        self.started_at = at
        self.histograms.clear()

    def sample(self, at: datetime) -> list[Sample]:
        rows = [self._row(at, topic) for topic in sorted({topic for topic, _ in self.histograms})]
        for (topic, channel), histogram in sorted(self.histograms.items()):
            dense = histogram.to_json()
            row = self._row(at, topic)
            rows.append(
                replace(
                    row,
                    channel=channel,
                    message_count=histogram.count,
                    finish_count=histogram.count,
                    hist_zero_count=dense["zero_count"],
                    hist_offset=dense["offset"],
                    hist_counts=dense["counts"],
                )
            )
        return rows

    def _row(self, at: datetime, topic: str) -> Sample:
        boot_id = f"{self.boots:016x}"
        return Sample(taken_at=at, node=self.node, boot_id=boot_id, started_at=self.started_at, topic=topic)

    def latencies(self, topic: str, channel: str, since: datetime, until: datetime) -> list[int]:
        """Latencies of the messages finished in (since, until], according to the samples at both ends."""
        return [latency for at, latency in self.raw[topic, channel] if since < at <= until]


def exact_percentile(latencies: Iterable[int], permille: int) -> int:
    """The sample of rank ceil(q · n), by definition the percentile."""
    ordered = sorted(latencies)
    return ordered[max(0, math.ceil(len(ordered) * permille / 1000) - 1)]


@pytest.fixture
def make_broker() -> Callable[..., Broker]:
    def make(node: str = "10.0.0.1:4151", started_at: datetime = MIDNIGHT) -> Broker:
        return Broker(node, started_at)

    return make


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """The root of an empty archive."""
    return tmp_path / "archive"


@pytest.fixture
def write(archive: Path) -> Callable[[list[Sample]], None]:
    return lambda samples: ArchiveWriter(str(archive)).write(samples)


@pytest.fixture
def lognormal() -> Callable[[random.Random, float], int]:
    """Draws a latency in ns around a median in ms, with a tail up to a hundred times as long."""
    return lambda rng, median_ms: int(median_ms * 1e6 * rng.lognormvariate(0, 1.2))


@pytest.fixture
def latency_rows(spark: SparkSession, archive: Path) -> Callable[..., list[dict[str, object]]]:
    """Rows of the latency report over the whole archive, in order, with aware times."""
    from nsqanalytics.transforms.latency import latency

    def rows(window: timedelta, minimum_count: int = 1000, began: datetime = MIDNIGHT) -> list[dict[str, object]]:
        span = Span(began - timedelta(days=1), began + timedelta(days=3))
        activity = Rollups(str(archive)).activity(spark, span, Rules(window), Wanted())
        found = [row.asDict() for row in latency(activity, minimum_count).collect()]
        for row in found:
            row["window_start"] = row["window_start"].astimezone(UTC)
        return sorted(found, key=lambda row: (row["window_start"], row["topic"], row["channel"]))

    return rows


@pytest.fixture
def midnight() -> datetime:
    """The beginning of these archives."""
    return MIDNIGHT


@pytest.fixture
def percentile() -> Callable[[Iterable[int], int], int]:
    return exact_percentile
