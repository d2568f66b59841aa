"""What each channel finished in each window, from counters that only ever grow until they start again.

The counts of a window are its last reading less the last reading before it. That is the sum of all the differences in
between, so a missing sample moves no message out of the result, and a late or repeated one adds none. A difference
across a window's start belongs to the window of its later reading; ``carried_count`` says how many those are.

Where counters start again:

- A new ``boot_id`` is a new series and counts from zero.
- A fall of the total within a boot that the next reading confirms is a channel deleted and created again: from zero.
  A fall that it does not confirm is two readings in the wrong order (a collector's clock set back): left out. A
  channel that was created again and overtook its old total between two readings is caught by any bucket that fell.
- The first reading of a series holds all that its process ever counted. It is placed in the window if the node was
  being sampled before without this series (so it began within the archive), or if the process started in the same
  window, or at most START_GRACE before the reading. Otherwise nobody knows when its messages were finished: they are
  ``unplaced_count``, and the window counts from that reading on.

What a process finished between its last reading and its death is in no archive.
"""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from analytics.transforms.windows import window_start

START_GRACE = timedelta(seconds=60)
ZERO_BUCKET = -1
"""Stands for ``hist_zero_count`` among bucket indexes; real ones begin at 318."""

_SERIES = ("node", "boot_id", "topic", "channel")


def finished_by_window(samples: DataFrame, window: timedelta) -> DataFrame:
    """SAMPLE rows -> a row per series and window with at least one reading that has a histogram.

    Columns: ``window_start node boot_id topic channel``; ``sample_count``, its readings in the window;
    ``carried_count`` and ``unplaced_count`` as above; ``buckets``, array of ``(index int, n bigint)``, what it finished
    in the window, ZERO_BUCKET first. A series that was deleted and created again within a window has a row for each.
    """
    ends = _window_ends(_in_order(_readings(samples)), window)
    return _placed(ends, _beats(samples)).select(
        "window_start",
        *_SERIES,
        "sample_count",
        F.when(F.col("since") < F.col("window_start"), F.col("first.total") - F.col("base.total"))
        .otherwise(0)
        .alias("carried_count"),
        F.when(F.col("is_placed"), 0).otherwise(F.col("first.total")).alias("unplaced_count"),
        _difference().alias("buckets"),
    )


def _series() -> WindowSpec:
    """One order for every step, so that Spark distributes and sorts the readings once."""
    return Window.partitionBy(*_SERIES).orderBy("taken_at", "total")


def _readings(samples: DataFrame) -> DataFrame:
    """A row per channel reading that has a histogram, the histogram and its total in ``reading``."""
    total = F.col("hist_zero_count") + F.aggregate("hist_counts", F.lit(0).cast("bigint"), lambda sum_, n: sum_ + n)
    with_histogram = F.col("channel").isNotNull() & F.col("hist_counts").isNotNull()
    reading = F.struct(
        "taken_at",
        "total",
        F.col("hist_zero_count").alias("zero"),
        F.col("hist_offset").alias("offset"),
        F.col("hist_counts").alias("counts"),
    )
    return (
        samples.where(with_histogram)
        .withColumn("total", total)
        .select(*_SERIES, "started_at", "taken_at", "total", reading.alias("reading"))
    )


def _in_order(readings: DataFrame) -> DataFrame:
    """Repeated and misplaced readings removed; ``epoch`` counts how often the series began again within its boot."""
    once = readings.withColumn("earlier", F.lag("taken_at").over(_series())).where(
        F.col("earlier").isNull() | (F.col("earlier") != F.col("taken_at"))
    )
    before, after = F.lag("total").over(_series()), F.lead("total").over(_series())
    began_again = F.coalesce((F.col("total") < before) & (after < before), F.lit(False))
    so_far = _series().rowsBetween(Window.unboundedPreceding, -1)
    return (
        once.withColumn("began_again", began_again.cast("int"))
        .withColumn("epoch", F.sum("began_again").over(_series()))
        # Epochs only go up, so this is the highest total of the latest epoch.
        .withColumn("highest", F.max(F.struct("epoch", "total")).over(so_far))
        .where("highest is null or highest.epoch < epoch or highest.total <= total")
        .drop("earlier", "began_again", "highest")
    )


def _window_ends(readings: DataFrame, window: timedelta) -> DataFrame:
    """The last reading of each epoch and window; ``first`` is the first in it, ``before`` the last before it."""
    span = F.struct("epoch", "window_start")
    of_both = (
        readings.withColumn("window_start", window_start("taken_at", window))
        .withColumns(
            {
                "position": F.row_number().over(_series()),
                "is_first": ~F.lag(span).over(_series()).eqNullSafe(span),
                "is_last": ~F.lead(span).over(_series()).eqNullSafe(span),
            }
        )
        .where("is_first or is_last")
        # Of each window one row is left, or two: then the row before a last one is the first of the same window.
        .withColumns({"reading_above": F.lag("reading").over(_series()), "above": F.lag("position").over(_series())})
    )
    return (
        of_both.where("is_last")
        .withColumns(
            {
                "first": F.when(F.col("is_first"), F.col("reading")).otherwise(F.col("reading_above")),
                "sample_count": F.when(F.col("is_first"), 1).otherwise(F.col("position") - F.col("above") + 1),
                "last_above": F.lag(F.struct("epoch", "reading")).over(_series()),
            }
        )
        .withColumn("before", F.when(F.expr("last_above.epoch = epoch"), F.col("last_above.reading")))
    )


def _beats(samples: DataFrame) -> DataFrame:
    """Each time a node was sampled at all, and ``previous_beat``, the time before that; null at its first."""
    node = Window.partitionBy("node").orderBy("taken_at")
    beats = samples.select("node", "taken_at").distinct().withColumn("previous_beat", F.lag("taken_at").over(node))
    return beats.withColumnRenamed("taken_at", "first_taken_at")


def _placed(ends: DataFrame, beats: DataFrame) -> DataFrame:
    """``base``, the reading to subtract, ``since``, when the difference began, and ``is_placed``."""
    zero = F.expr(
        "named_struct('taken_at', first.taken_at, 'total', 0L, 'zero', 0L, 'offset', 0,"
        " 'counts', cast(array() as array<bigint>))"
    )
    is_first_ever = F.col("before").isNull() & (F.col("epoch") == 0)
    just_started = F.col("started_at") >= F.least(F.col("window_start"), F.col("first_taken_at") - F.lit(START_GRACE))
    is_placed = ~is_first_ever | F.col("previous_beat").isNotNull() | F.coalesce(just_started, F.lit(False))
    return (
        ends.withColumn("first_taken_at", F.col("first.taken_at"))
        .join(beats, ["node", "first_taken_at"], "left")
        .withColumns(
            {
                "is_placed": is_placed,
                "since": F.coalesce("before.taken_at", F.greatest("started_at", "previous_beat")),
                "base": F.when(~is_placed, F.col("first")).otherwise(F.coalesce(F.col("before"), zero)),
            }
        )
    )


def _difference() -> Column:
    """``reading`` less ``base``, as buckets; all of ``reading`` if any bucket fell."""

    def at(reading: str, index: Column) -> Column:
        return F.coalesce(F.get(f"{reading}.counts", (index - F.col(f"{reading}.offset")).cast("int")), F.lit(0))

    def end(reading: str) -> Column:
        return F.col(f"{reading}.offset") + F.size(f"{reading}.counts")

    indexes = F.sequence("reading.offset", end("reading") - 1)
    fell = (F.col("reading.zero") < F.col("base.zero")) | (
        (F.size("base.counts") > 0)
        & (
            (F.col("base.offset") < F.col("reading.offset"))
            | (end("base") > end("reading"))
            | F.exists(indexes, lambda index: at("reading", index) < at("base", index))
        )
    )
    kept = F.when(fell, 0).otherwise(1)
    zeros = F.col("reading.zero") - kept * F.col("base.zero")
    buckets = F.transform(
        indexes,
        lambda index: F.struct(index.alias("index"), (at("reading", index) - kept * at("base", index)).alias("n")),
    )
    zero_bucket = F.array(F.struct(F.lit(ZERO_BUCKET).alias("index"), zeros.alias("n")))
    return F.when(F.size("reading.counts") > 0, F.concat(zero_bucket, buckets)).otherwise(zero_bucket)
