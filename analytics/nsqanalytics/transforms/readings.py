"""The change of each series between two window ends, from counters that only grow until they start again.

The counts of a window are its last reading minus the last reading before it. This is the sum of all differences in
between, so a missing sample loses no message, and a late or repeated one adds none. A difference across a window's
start belongs to the window of its later reading, and is its ``carried_count``.

Where counters start again:

- A new ``boot_id`` is a new series and counts from zero.
- A reading is compared with readings of its own hour and of the last hour before it in which any node was sampled. A
  series without an earlier reading in these hours is treated as new. A rollup of an hour compares no further back, and
  a report must give the same figures.
- Each reading contains the node's uptime. A reading whose uptime is not above that of all earlier ones was taken while
  a collector's clock was wrong, and is left out; a reading with higher counters contains its messages. In the remaining
  readings, a fall of the counters within a boot is a channel that was deleted and created again: it counts from zero.
- Readings without an uptime (Go nodes', and those of older archives) are ordered by their counters, as
  nsqanalytics/transforms/counter_falls.py describes. If counters do not decide, a fall that the next reading confirms
  is a channel created again. It counts in the window of the reading that confirms it, so no window depends on a later
  one. A reading whose fall is not confirmed is misplaced, and is left out. ``uncertain_count`` counts both.
- A channel that was created again and exceeded its old counts between two readings is recognised by a bucket that
  fell.
- The first reading of a series contains everything that its process has counted. It is placed in the window if the node
  was being sampled before without this series (so it began within the archive), or if the process started in the same
  window, or at most START_GRACE before the reading. Otherwise the finish times of its messages are unknown: they are
  ``unplaced_count``, and the window counts from that reading on.

Messages that a process finished between its last reading and its end are not in the archive.

Sorting all readings is by far the most expensive step, and nearly all series are regular: their counters only grow, and
repeated readings are equal. For a regular series, the readings of each window are added up without sorting, and only
these summaries are sorted. Irregular series are detected meanwhile, and their readings are sorted one by one. Both ways
give the same result. Histograms, which are most of an archive, are read for the window ends only.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from nsqanalytics.transforms import counter_falls
from nsqanalytics.transforms.windows import window_start

HOUR = timedelta(hours=1)
START_GRACE = timedelta(seconds=60)
MAX_HOLD_S = 60.0
"""A reading's depth counts for the time since the reading before it, but for at most this long."""
LATER_COUNTERS = ("died_count", "dropped_count")
"""Counters that older archives lack: null there, and for topics."""
COUNTERS = (
    *("message_count", "message_bytes", "done_count", "finish_count", "requeue_count", "timeout_count"),
    *LATER_COUNTERS,
)
SERIES = counter_falls.SERIES
_FIRST_OF_A_TIME = ("progress", "uptime_ns", "depth", "client_count")
AREAS = ("observed_s", "depth_area", "client_area")
SPAN = (
    *("epoch", "window_start", "seen_since", "started_at", "first_at", "last_at"),
    *("sample_count", "merged_count", "uncertain_count"),
    *("depth_max", "depth_last", "dead_last", "oldest_max_ns"),
    *AREAS,
    *(f"{end}_{name}" for name in COUNTERS for end in ("first", "last")),
)
"""The columns, after CONTEXT and SERIES, of a span: the readings of one series within one window and epoch."""
CONTEXT = "context"
"""Identifies the hours of the archive that are computed together. A rollup's hour is computed from itself and the hours
before it only, so that its result is independent of the run; an hour may belong to several contexts."""


def plain(samples: DataFrame) -> DataFrame:
    """SAMPLE rows -> the columns for all figures but histograms; a topic's ``channel`` is empty.

    ``progress`` is the sum of the counters that all archives have. It grows with each of them.
    """
    left = F.col("message_count") - F.col("depth") - F.col("in_flight_count") - F.col("deferred_count")
    return samples.select(
        "node",
        "boot_id",
        "topic",
        F.coalesce("channel", F.lit("")).alias("channel"),
        *("started_at", "taken_at", "uptime_ns", "depth", "client_count", "oldest_unfinished_age_ns"),
        window_start("taken_at", HOUR).alias("hour"),
        *(name for name in COUNTERS if name not in ("done_count", *LATER_COUNTERS)),
        *(F.when(F.col("channel").isNotNull(), F.col(name)).alias(name) for name in ("dead_count", *LATER_COUNTERS)),
        # A Go node's counters are not read at one instant, so this may seem to fall by a message or two.
        F.coalesce("finish_count", F.when(F.col("channel").isNotNull(), F.greatest(left, F.lit(0)))).alias(
            "done_count"
        ),
        (F.col("finish_count").isNull() & F.col("hist_offset").isNotNull()).alias("lacks_count"),
        (
            F.col("message_count")
            + F.coalesce("finish_count", F.lit(0))
            + F.col("requeue_count")
            + F.col("timeout_count")
        ).alias("progress"),
    )


def with_finish_count(samples: DataFrame) -> DataFrame:
    """SAMPLE rows of any version -> the same with ``finish_count`` for each histogram. It reads all histograms."""
    counted = F.aggregate(F.coalesce("hist_counts", F.array()), F.lit(0).cast("bigint"), lambda total, n: total + n)
    total = F.when(F.col("hist_offset").isNotNull(), F.coalesce("hist_zero_count", F.lit(0)) + counted)
    return samples.withColumn("finish_count", F.coalesce("finish_count", total))


def summaries(plain: DataFrame, window: timedelta, cuts: Sequence[datetime] = ()) -> DataFrame:
    """Plain columns -> a summary of each series, hour and window, from its own readings alone.

    ``is_regular``: neither counters nor uptime fell, and repeated readings were equal. The areas exclude the time
    before the first reading, because the reading before it is not known yet.
    """
    reading = F.struct(
        *("taken_at", "progress", "uptime_ns", "depth", "client_count"),
        F.col("finish_count").isNotNull().alias("merged"),
    )
    collected = plain.groupBy(*SERIES, "hour", window_start("taken_at", window, cuts).alias("window_start")).agg(
        *_extremes(),
        F.min("progress").alias("first_progress"),
        F.max("progress").alias("last_progress"),
        F.min("uptime_ns").alias("first_uptime_ns"),
        F.max("uptime_ns").alias("last_uptime_ns"),
        F.max(F.col("uptime_ns").isNull()).alias("lacks_uptime"),
        F.max("lacks_count").alias("lacks_count"),
        F.sort_array(F.collect_list(reading)).alias("readings"),
    )
    first = F.col("readings")[0]
    return (
        collected.withColumns(
            {
                "summed": _summed("readings"),
                "first_depth": first["depth"],
                "first_client_count": first["client_count"],
            }
        )
        .select("*", *(f"summed.{name}" for name in ("sample_count", "merged_count", *AREAS, "is_regular")))
        .drop("readings", "summed")
    )


def irregular(summaries: DataFrame) -> DataFrame:
    """Summaries -> the irregular series, and whether any of their readings ``lacks_uptime``.

    Series with a reading that ``lacks_count`` are included: it has a histogram and no ``finish_count``, because it is
    older than that column.
    """
    series = Window.partitionBy(*SERIES)
    before = F.lag(F.struct("last_progress", "last_uptime_ns")).over(series.orderBy("first_at"))
    fell = (F.col("first_progress") < before["last_progress"]) | F.coalesce(
        F.col("first_uptime_ns") <= before["last_uptime_ns"], F.lit(False)
    )
    return (
        summaries.withColumn("fell", F.coalesce(fell, F.lit(False)))
        .groupBy(*SERIES)
        .agg(
            F.max(F.col("fell") | ~F.col("is_regular")).alias("is_irregular"),
            F.max("lacks_uptime").alias("lacks_uptime"),
            F.max("lacks_count").alias("lacks_count"),
        )
        .where("is_irregular or lacks_count")
        .drop("is_irregular")
    )


def regular_spans(summaries: DataFrame, hours: DataFrame) -> DataFrame:
    """Summaries of regular series -> their spans, equal to those that ``ordered_spans`` computes."""
    series = Window.partitionBy(CONTEXT, *SERIES).orderBy("first_at")
    counted_s = _counted_s("earlier", "first_at")
    return (
        summaries.join(F.broadcast(hours), "hour")
        .withColumn("earlier", F.lag("last_at").over(series))
        .withColumn("earlier", F.when(F.col("earlier") >= F.col("seen_since"), F.col("earlier")))
        .withColumn("epoch", F.sum(F.col("earlier").isNull().cast("int")).over(series))
        .withColumns(
            {
                "observed_s": F.col("observed_s") + counted_s,
                "depth_area": F.col("depth_area") + counted_s * F.col("first_depth"),
                "client_area": F.col("client_area") + counted_s * F.col("first_client_count"),
                "uncertain_count": F.lit(0),
            }
        )
        .select(CONTEXT, *SERIES, *SPAN)
    )


def ordered_spans(
    plain: DataFrame,
    hours: DataFrame,
    window: timedelta,
    evidence: DataFrame | None,
    cuts: Sequence[datetime] = (),
) -> DataFrame:
    """Plain columns -> a row per series, epoch and window, of any series: repeated and misplaced readings are removed.

    ``epoch`` counts how often the series began within its boot: at first, when it was created again, and after a
    silence. ``evidence`` has findings about the readings at which a series fell; None if all readings have an uptime.
    """
    so_far = _series().rowsBetween(Window.unboundedPreceding, -1)
    once = (
        counter_falls.with_evidence(plain, evidence)
        .join(F.broadcast(hours), "hour")
        # Sorting by eight bytes is faster than comparing four texts.
        .withColumn("series", F.xxhash64(CONTEXT, *SERIES))
        .withColumn("earlier", F.lag("taken_at").over(_series()))
        .where("earlier is null or earlier <> taken_at")
        .withColumn("newest_ns", F.max("uptime_ns").over(so_far))
        .where("newest_ns is null or uptime_ns is null or uptime_ns > newest_ns")
        .withColumn("earlier", F.lag("taken_at").over(_series()))
        .withColumn("earlier", F.when(F.col("earlier") >= F.col("seen_since"), F.col("earlier")))
    )
    counted_s = _counted_s("earlier", "taken_at")
    return (
        once.withColumns(_beginnings())
        .withColumn("epoch", F.sum("began_again").over(_series()))
        .withColumn("uncertain_so_far", F.sum("is_uncertain").over(_series()))
        # Epochs only go up, so this is the highest of the latest epoch.
        .withColumn("highest", F.max(F.struct("epoch", "progress")).over(so_far))
        .where("highest is null or highest.epoch < epoch or highest.progress <= progress")
        # The uncertainty of readings that are left out is counted with the next reading.
        .withColumn("uncertain_before", F.coalesce(F.lag("uncertain_so_far").over(_series()), F.lit(0)))
        .withColumn("window_start", window_start("counted_at", window, cuts))
        .groupBy("series", CONTEXT, *SERIES, "epoch", "window_start")
        .agg(
            *_extremes(),
            F.min("seen_since").alias("seen_since"),
            F.count("*").alias("sample_count"),
            F.count("finish_count").alias("merged_count"),
            F.sum(F.col("uncertain_so_far") - F.col("uncertain_before")).alias("uncertain_count"),
            F.sum(counted_s).alias("observed_s"),
            F.sum(counted_s * F.col("depth")).alias("depth_area"),
            F.sum(counted_s * F.col("client_count")).alias("client_area"),
        )
        .select(CONTEXT, *SERIES, *SPAN)
    )


def _beginnings() -> dict[str, Column]:
    """Return columns for each reading.

    ``began_again``: 1 if its series began again with it, else 0. ``counted_at``: the time at which the reading counts.
    ``is_uncertain``: 1 if it is undecided whether the series began again, else 0.
    """
    before, following = F.lag("progress").over(_series()), F.lead(F.struct("progress", "seen_since", "taken_at"))
    following = following.over(_series())
    has_uptime = F.col("uptime_ns").isNotNull() & F.lag("uptime_ns").over(_series()).isNotNull()
    fell = F.col("earlier").isNotNull() & F.coalesce(F.col("progress") < before, F.lit(False))
    is_certain = fell & (has_uptime | F.col("is_created_again"))
    is_open = fell & ~has_uptime & ~F.col("is_created_again") & ~F.col("is_set_back")
    is_confirmed = is_open & F.coalesce(
        (following["progress"] < before) & (following["seen_since"] <= F.col("taken_at")), F.lit(False)
    )
    return {
        "began_again": (F.col("earlier").isNull() | is_certain | is_confirmed).cast("int"),
        "counted_at": F.when(is_confirmed, following["taken_at"]).otherwise(F.col("taken_at")),
        "is_uncertain": (fell & ~has_uptime & F.col("is_unproven")).cast("int"),
    }


def window_ends(spans: DataFrame, sample_times: DataFrame) -> DataFrame:
    """Spans -> a row per span: gauges, and the change of each counter (``d_…``) over the window.

    The change is from the reading at ``base_at`` to the one at ``last_at``; ``base_at`` is null if it is from zero.
    ``carried_since`` is the time since which the messages of ``carried_count`` may have been finished; null if no
    message is carried.
    """
    before = F.lag(F.struct("epoch", "last_at", *(f"last_{name}" for name in COUNTERS)))
    is_seen = F.col("before.last_at") >= F.col("seen_since")
    is_first_ever = F.col("before").isNull()
    sampled_at = F.when(F.col("previous_sampled_at") >= F.col("seen_since"), F.col("previous_sampled_at"))
    just_started = F.col("started_at") >= F.least(F.col("window_start"), F.col("first_at") - F.lit(START_GRACE))
    is_placed = ~is_first_ever | sampled_at.isNotNull() | F.coalesce(just_started, F.lit(False))
    since = F.when(F.col("same"), F.col("before.last_at")).otherwise(F.greatest("started_at", sampled_at))
    return (
        spans.withColumn("before", before.over(Window.partitionBy(CONTEXT, *SERIES).orderBy("first_at")))
        .withColumns(
            {
                "before": F.when(is_seen, F.col("before")),
                "same": F.coalesce(is_seen & F.expr("before.epoch = epoch"), F.lit(False)),
            }
        )
        .join(F.broadcast(sample_times), [CONTEXT, "node", "first_at"], "left")
        .withColumns({"is_placed": is_placed, "since": since})
        .withColumn(
            "carried_since", F.when(F.col("is_placed") & (F.col("since") < F.col("window_start")), F.col("since"))
        )
        .withColumns(
            {
                **{f"d_{name}": _change(name) for name in COUNTERS},
                "base_at": F.when(~F.col("is_placed"), F.col("first_at")).when(F.col("same"), F.col("before.last_at")),
                "carried_count": F.when(
                    F.col("carried_since").isNotNull(),
                    F.greatest(F.col("first_finish_count") - _before("finish_count"), F.lit(0)),
                ).otherwise(0),
                "unplaced_count": F.when(F.col("is_placed"), 0).otherwise(F.col("first_finish_count")),
            }
        )
        .drop("before", "same", "previous_sampled_at", "seen_since", "since")
    )


def sample_times(sampled: DataFrame) -> DataFrame:
    """Return the times at which each node was sampled, with the time before each, ``previous_sampled_at``; null for the
    first."""
    node = Window.partitionBy(CONTEXT, "node").orderBy("taken_at")
    return sampled.select(
        CONTEXT, "node", F.col("taken_at").alias("first_at"), F.lag("taken_at").over(node).alias("previous_sampled_at")
    )


def hours(sampled: DataFrame) -> DataFrame:
    """Return each hour in which any node was sampled, and ``seen_since``: the start of the last such hour before it, or
    of the hour itself if there is none."""
    found = sampled.select(CONTEXT, "hour").distinct()
    last = F.lag("hour").over(Window.partitionBy(CONTEXT).orderBy("hour"))
    return found.withColumn("seen_since", F.coalesce(last, F.col("hour")))


def sampled(samples: DataFrame) -> DataFrame:
    """SAMPLE rows -> the times at which each node was sampled, with their hours."""
    return samples.select("node", "taken_at").distinct().withColumn("hour", window_start("taken_at", HOUR))


def _extremes() -> list[Column]:
    """Return a span's columns that need no order: counters never fall in an epoch, so the lowest is the first."""
    return [
        F.min("started_at").alias("started_at"),
        F.min("taken_at").alias("first_at"),
        F.max("taken_at").alias("last_at"),
        F.max("depth").alias("depth_max"),
        F.max_by("depth", "taken_at").alias("depth_last"),
        F.max_by("dead_count", "taken_at").alias("dead_last"),
        F.max("oldest_unfinished_age_ns").alias("oldest_max_ns"),
        *(F.min(name).alias(f"first_{name}") for name in COUNTERS),
        *(F.max(name).alias(f"last_{name}") for name in COUNTERS),
    ]


def _summed(readings: str) -> Column:
    """Return the sums over the sorted readings of one summary, in which repeated readings count once."""
    counted_s = f"""
        least((unix_micros(reading.taken_at) - unix_micros(so_far.before.taken_at)) / 1e6D, {MAX_HOLD_S}D)"""
    is_new = "reading.taken_at <> so_far.before.taken_at"
    rises = """
        reading.progress >= so_far.before.progress
        and coalesce(reading.uptime_ns > so_far.before.uptime_ns, true)"""
    # The first reading is seen again, as one that is not new.
    return F.expr(f"""
        aggregate(
            {readings},
            named_struct(
                'before', {readings}[0],
                'sample_count', 1L,
                'merged_count', cast({readings}[0].merged as bigint),
                {", ".join(f"'{name}', 0D" for name in AREAS)},
                'is_regular', true
            ),
            (so_far, reading) -> named_struct(
                'before', reading,
                'sample_count', so_far.sample_count + cast({is_new} as bigint),
                'merged_count', so_far.merged_count + cast({is_new} and reading.merged as bigint),
                'observed_s', so_far.observed_s + {counted_s},
                'depth_area', so_far.depth_area + {counted_s} * reading.depth,
                'client_area', so_far.client_area + {counted_s} * reading.client_count,
                'is_regular', so_far.is_regular and if({is_new}, {rises}, reading <=> so_far.before)
            )
        )""")


def _series() -> WindowSpec:
    """Return the order that every step uses, so that Spark distributes and sorts the readings once.

    The first of several readings with the same time is used. Two may differ in nothing but their uptime, or their
    gauges: without these in the order, a report run again could use the other one.
    """
    return Window.partitionBy("series", CONTEXT, *SERIES).orderBy("taken_at", *_FIRST_OF_A_TIME)


def _counted_s(earlier: str | Column, later: str | Column) -> Column:
    """Return the seconds for which a reading's gauges count: since the reading before it, at most MAX_HOLD_S."""
    micros = F.unix_micros(later) - F.unix_micros(earlier)
    # Spark's least and greatest ignore nulls.
    return F.when(micros.isNull(), 0.0).otherwise(F.least(micros / 1e6, F.lit(MAX_HOLD_S)))


def _before(name: str) -> Column:
    """Return the counter's value at the base. If the base is of an older archive that lacks it, this is the first value
    after it: what was counted before is not of this window."""
    return F.when(F.col("same"), F.coalesce(f"before.last_{name}", f"first_{name}")).otherwise(F.lit(0))


def _change(name: str) -> Column:
    last, base = F.col(f"last_{name}"), F.when(F.col("is_placed"), _before(name)).otherwise(F.col(f"first_{name}"))
    return F.when(last < base, last).otherwise(last - base)
