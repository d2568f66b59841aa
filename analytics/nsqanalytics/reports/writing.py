"""Writes the result of a report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nsqanalytics.locations import Locations
from nsqanalytics.progress import Progress
from nsqanalytics.results import conforming, replace_result
from nsqanalytics.span import Span
from nsqanalytics.tables import Figure, spark_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def write_report(
    spark: SparkSession,
    place: Locations,
    rows: DataFrame,
    figures: Sequence[Figure],
    order: list[str],
    span: Span,
    progress: Progress,
    before: Span | None = None,
    hours: str = "",
    stage: str = "merging histograms",
) -> int:
    """Write the result.

    Its metadata contain ``span``, and ``before`` if given, as the periods that it covers, and ``hours``, the hours of
    the week that are compared; empty for all hours of both periods.
    """
    covered = {"covered_since": span.since, "covered_until": span.until}
    if before is not None:
        covered |= {"before_since": before.since, "before_until": before.until}
    rows = conforming(rows, spark_table(figures, covered, hours))
    with progress.following(spark, stage, expected_stages=9, start=0.5, end=0.95):
        return replace_result(rows, place.output, order)
