"""The archive for analysts: DataFrames in a notebook, and Spark SQL views by one command."""

from __future__ import annotations

import atexit
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from nsqanalytics.parameters import written
from nsqanalytics.rollups import existing_rollups
from nsqanalytics.schema import spark_schema
from nsqanalytics.span import HOUR, Span
from nsqanalytics.topics import register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VIEWS = {
    "samples": "the archive's rows, as they were collected",
    "activity": "figures of each node, topic and channel in each hour (channel '' for a topic's own row)",
    "latency": "percentiles by hour, topic and channel",
    "throughput": "rates, depth and ratios by hour, topic and channel",
}


def load(
    archive: str,
    view: str = "activity",
    *,
    period: timedelta = timedelta(days=7),
    until: datetime | None = None,
    spark: SparkSession | None = None,
) -> DataFrame:
    """Return one of VIEWS as a Spark DataFrame. Hours come from valid rollups where possible.

    Of the first and the last hour, only the part in the period is counted, as in a report.

    ``spark`` is the session to use: by default the active one, or else a new one on SPARK_MASTER or this machine, which
    lasts as long as the process. It then has the format ``nsq``, which reads topics (nsqanalytics/topics). Raises
    ValueError for an unknown view or a period that is not positive, ArchiveMissing, and what ``spark_session`` raises.
    """
    if view not in VIEWS:
        raise ValueError(f"there is no view {view!r}; there are {', '.join(VIEWS)}")
    if period <= timedelta(0):
        raise ValueError(f"the period {written(period)} is not positive")
    rollups = existing_rollups(archive)
    until = (until or datetime.now(UTC)).astimezone(UTC)
    span = rollups.countable(Span(until - period, until))
    since = span.since
    session = spark or _session()
    register(session)
    if view == "samples":
        from pyspark.sql import functions as F

        samples = rollups.read_samples(session, since, until)
        taken = samples.where((F.col("taken_at") >= F.lit(since)) & (F.col("taken_at") < F.lit(until)))
        return taken.select(spark_schema().fieldNames())
    from nsqanalytics.transforms.windows import window_start

    rows = rollups.read(session, span)
    rows = rows.withColumn("window_start", window_start("window_start", HOUR))
    if view == "latency":
        from nsqanalytics.transforms.latency import latency

        return latency(rows, 1000)
    if view == "throughput":
        from nsqanalytics.transforms.throughput import throughput

        return throughput(rows, HOUR)
    return rows


def make_views(spark: SparkSession, archive: str, period: timedelta, until: datetime | None = None) -> None:
    """Create each of VIEWS as a temporary view of the session."""
    for view in VIEWS:
        load(archive, view, period=period, until=until, spark=spark).createOrReplaceTempView(view)


def _session() -> SparkSession:
    from pyspark.sql import SparkSession

    from nsqanalytics.session import spark_session

    if (running := SparkSession.getActiveSession()) is not None:
        return running
    # The session and the folder of its Java stay until the interpreter is about to end.
    context = spark_session("nsq notebook")
    session = context.__enter__()
    atexit.register(context.__exit__, None, None, None)
    return session
