"""The report on sampled messages, from their events."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from nsqanalytics import tables
from nsqanalytics.files import Folder
from nsqanalytics.job_parameters import LivesParameters
from nsqanalytics.life_events import EVENT_SCHEMA, files_between, lives_path
from nsqanalytics.locations import Locations, spark_uri
from nsqanalytics.progress import Progress
from nsqanalytics.reports.writing import write_report
from nsqanalytics.results import replace_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_lives(spark: SparkSession, place: Locations, args: LivesParameters, now: datetime, progress: Progress) -> int:
    """Write what happened to the sampled messages of each channel. Returns the number of rows."""
    from pyspark.sql import functions as F

    from nsqanalytics.schema import spark_fields
    from nsqanalytics.transforms.lives import lives
    from nsqanalytics.transforms.names import is_one_of
    from nsqanalytics.transforms.windows import covered

    span = args.span(now)
    progress.at(0.15, "listing the archive")
    files = files_between(Folder(lives_path(place.archive)), span.since, span.until)
    uris = [spark_uri(place.archive, file.path) for file in files]
    events = spark.read.schema(spark_fields(EVENT_SCHEMA)).parquet(*uris)
    events = events.where((F.col("at") >= F.lit(span.since)) & (F.col("at") < F.lit(span.until)))
    if args.topic:
        events = events.where(is_one_of("topic", args.topic))
    if args.channel:
        events = events.where(F.col("channel").isNull() | (F.col("channel") == args.channel))
    if args.node:
        events = events.where(F.col("node") == args.node)
    order = ["topic", "channel", "client_id"]
    return write_report(
        spark, place, covered(lives(events), span), tables.LIVES, order, span, progress, stage="counting"
    )


def bytes_of_events(place: Locations, args: LivesParameters, now: datetime) -> int:
    """Return the number of bytes of the events that the report reads."""
    span = args.span(now)
    return sum(file.size for file in files_between(Folder(lives_path(place.archive)), span.since, span.until))


def no_lives(place: Locations, args: LivesParameters, now: datetime, progress: Progress) -> int | None:
    """Write an empty result and return 0 if the period has no events; otherwise return None."""
    span = args.span(now)
    if files_between(Folder(lives_path(place.archive)), span.since, span.until):
        return None
    covered = {"covered_since": span.since, "covered_until": span.until}
    return replace_table([], tables.LIVES, place.output, covered)
