"""What each series did between two window ends, from counters that only ever grow until they start again.

The counts of a window are its last reading less the last reading before it. That is the sum of all the differences in
between, so a missing sample moves no message out of the result, and a late or repeated one adds none. A difference
across a window's start belongs to the window of its later reading; ``carried_count`` says how many those are.

Where counters start again:

- A new ``boot_id`` is a new series and counts from zero.
- After a silence longer than an hour of the archive (the last hour before in which any node was sampled), a series is
  looked at as if for the first time: a rollup's hour sees no further back, and a report is to say the same.
- A fall of the counters within a boot that the next reading confirms is a channel deleted and created again: from zero.
  A fall that it does not confirm is two readings in the wrong order (a collector's clock set back): left out. A
  channel that was created again and overtook its old counts between two readings is caught by any bucket that fell.
- The first reading of a series holds all that its process ever counted. It is placed in the window if the node was
  being sampled before without this series (so it began within the archive), or if the process started in the same
  window, or at most START_GRACE before the reading. Otherwise nobody knows when its messages were finished: they are
  ``unplaced_count``, and the window counts from that reading on.

What a process finished between its last reading and its death is in no archive.

Only plain columns are sorted; histograms, which are most of an archive, are then read for the window ends alone.
"""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from analytics.transforms.windows import window_start

HOUR = timedelta(hours=1)
START_GRACE = timedelta(seconds=60)
LONGEST_HOLD_S = 60.0
"""A depth stands for the time since the reading before it, but not for longer: nobody looked."""
COUNTERS = ("message_count", "message_bytes", "done_count", "finish_count", "requeue_count", "timeout_count")
SERIES = ("node", "boot_id", "topic", "channel")
CONTEXT = "context"
"""What of the archive is looked at together: a column of the samples. A rollup's hour is made of itself and its
neighbours alone, so that it comes out the same whatever else is made in the same run."""


def in_order(samples: DataFrame, hours: DataFrame) -> DataFrame:
    """SAMPLE rows -> their plain columns, repeated and misplaced readings removed; a topic's ``channel`` is empty.

    ``epoch`` counts how often the series began again within its boot, or came back from a silence. ``earlier`` is the
    time of the reading before; null where there is none, or none that is seen.
    """
    once = (
        _plain(samples)
        .join(F.broadcast(hours), [CONTEXT, "hour"])
        .withColumn("earlier", F.lag("taken_at").over(_series()))
        .where("earlier is null or earlier <> taken_at")
        .withColumn("earlier", F.when(F.col("earlier") >= F.col("seen_since"), F.col("earlier")))
    )
    fell = F.col("progress") < F.lag("progress").over(_series())
    following = F.lead(F.struct("progress", "seen_since")).over(_series())
    sees_this = following["seen_since"] <= F.col("taken_at")
    stays_down = following["progress"] < F.lag("progress").over(_series())
    began_again = F.col("earlier").isNull() | F.coalesce(fell & stays_down & sees_this, F.lit(False))
    so_far = _series().rowsBetween(Window.unboundedPreceding, -1)
    return (
        once.withColumn("began_again", began_again.cast("int"))
        .withColumn("epoch", F.sum("began_again").over(_series()))
        # Epochs only go up, so this is the highest of the latest epoch.
        .withColumn("highest", F.max(F.struct("epoch", "progress")).over(so_far))
        .where("highest is null or highest.epoch < epoch or highest.progress <= progress")
        .drop("began_again", "highest")
    )


def window_ends(ordered: DataFrame, beats: DataFrame, window: timedelta) -> DataFrame:
    """A row per series, epoch and window: gauges, and for each counter its change (``d_…``) over the window.

    ``last_at`` and ``base_at`` are the readings between which the change lies; ``base_at`` is null for from zero.
    """
    spans = _spans(ordered, window)
    before = F.lag(F.struct("epoch", "last_at", *(f"last_{name}" for name in COUNTERS)))
    spans = (
        spans.withColumn("before", before.over(Window.partitionBy(CONTEXT, *SERIES).orderBy("first_at")))
        .withColumn("before", F.when(F.col("before.last_at") >= F.col("seen_since"), F.col("before")))
        .withColumn("same", F.coalesce(F.expr("before.epoch = epoch"), F.lit(False)))
        .join(F.broadcast(beats), [CONTEXT, "node", "first_at"], "left")
        .withColumn("previous_beat", F.when(F.col("previous_beat") >= F.col("seen_since"), F.col("previous_beat")))
    )
    is_first_ever = F.col("before").isNull()
    just_started = F.col("started_at") >= F.least(F.col("window_start"), F.col("first_at") - F.lit(START_GRACE))
    is_placed = ~is_first_ever | F.col("previous_beat").isNotNull() | F.coalesce(just_started, F.lit(False))
    since = F.when(F.col("same"), F.col("before.last_at")).otherwise(F.greatest("started_at", "previous_beat"))
    return (
        spans.withColumn("is_placed", is_placed)
        .withColumns(
            {
                **{f"d_{name}": _change(name) for name in COUNTERS},
                "base_at": F.when(~F.col("is_placed"), F.col("first_at")).when(F.col("same"), F.col("before.last_at")),
                "carried_count": F.when(
                    F.col("is_placed") & (since < F.col("window_start")),
                    F.greatest(F.col("first_finish_count") - _before("finish_count"), F.lit(0)),
                ).otherwise(0),
                "unplaced_count": F.when(F.col("is_placed"), 0).otherwise(F.col("first_finish_count")),
            }
        )
        .drop("before", "same", "previous_beat", "seen_since")
    )


def beats(samples: DataFrame) -> DataFrame:
    """Each time a node was sampled at all, and ``previous_beat``, the time before that; null at its first."""
    node = Window.partitionBy(CONTEXT, "node").orderBy("taken_at")
    found = (
        samples.select(CONTEXT, "node", "taken_at").distinct().withColumn("previous_beat", F.lag("taken_at").over(node))
    )
    return found.withColumnRenamed("taken_at", "first_at")


def hours(beats: DataFrame) -> DataFrame:
    """Each hour in which any node was sampled, and ``seen_since``: the start of the last one before it, if any."""
    found = beats.select(CONTEXT, window_start("first_at", HOUR).alias("hour")).distinct()
    last = F.lag("hour").over(Window.partitionBy(CONTEXT).orderBy("hour"))
    return found.withColumn("seen_since", F.coalesce(last, F.col("hour")))


def _plain(samples: DataFrame) -> DataFrame:
    """The columns that everything but a histogram needs; ``progress`` grows with every counter that a node has."""
    left = F.col("message_count") - F.col("depth") - F.col("in_flight_count") - F.col("deferred_count")
    return samples.select(
        CONTEXT,
        "node",
        "boot_id",
        "topic",
        F.coalesce("channel", F.lit("")).alias("channel"),
        *("started_at", "taken_at", "depth", "client_count", "oldest_unfinished_age_ns"),
        window_start("taken_at", HOUR).alias("hour"),
        # Eight bytes that sort: series are then told apart without comparing four texts.
        F.xxhash64(CONTEXT, *SERIES).alias("series"),
        *(name for name in COUNTERS if name != "done_count"),
        # A Go node's: not read at one instant, so it may seem to fall by a message or two.
        F.coalesce("finish_count", F.when(F.col("channel").isNotNull(), F.greatest(left, F.lit(0)))).alias(
            "done_count"
        ),
        (F.col("message_count") + F.coalesce("finish_count", F.lit(0))).alias("progress"),
    )


def _series() -> WindowSpec:
    """One order for every step, so that Spark distributes and sorts the readings once."""
    return Window.partitionBy("series", CONTEXT, *SERIES).orderBy("taken_at", "progress")


def _spans(ordered: DataFrame, window: timedelta) -> DataFrame:
    """Counters never fall within an epoch, so lowest and highest are first and last: plain sums, maxima and minima."""
    micros = F.unix_micros("taken_at") - F.unix_micros("earlier")
    # Spark's least and greatest pass over nulls.
    held_s = F.when(micros.isNull(), 0.0).otherwise(F.least(micros / 1e6, F.lit(LONGEST_HOLD_S)))
    return (
        ordered.withColumn("window_start", window_start("taken_at", window))
        .withColumn("held_s", held_s)
        .groupBy("series", CONTEXT, *SERIES, "epoch", "window_start")
        .agg(
            F.min("started_at").alias("started_at"),
            F.min("seen_since").alias("seen_since"),
            F.min("taken_at").alias("first_at"),
            F.max("taken_at").alias("last_at"),
            F.count("*").alias("sample_count"),
            F.count("finish_count").alias("merged_count"),
            F.sum("held_s").alias("observed_s"),
            F.sum(F.col("held_s") * F.col("depth")).alias("depth_area"),
            F.sum(F.col("held_s") * F.col("client_count")).alias("client_area"),
            F.max("depth").alias("depth_max"),
            F.max_by("depth", "taken_at").alias("depth_last"),
            F.max("oldest_unfinished_age_ns").alias("oldest_max_ns"),
            *(F.min(name).alias(f"first_{name}") for name in COUNTERS),
            *(F.max(name).alias(f"last_{name}") for name in COUNTERS),
        )
    )


def _before(name: str) -> Column:
    return F.when(F.col("same"), F.coalesce(F.col(f"before.last_{name}"), F.lit(0))).otherwise(F.lit(0))


def _change(name: str) -> Column:
    last, base = F.col(f"last_{name}"), F.when(F.col("is_placed"), _before(name)).otherwise(F.col(f"first_{name}"))
    return F.when(last < base, last).otherwise(last - base)
