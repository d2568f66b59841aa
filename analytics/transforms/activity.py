"""ACTIVITY: what each node did for each topic and channel in each window. Every report is made of it.

It adds up, over nodes and over windows, in any order; an hour's of it is what a rollup keeps.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType, TimestampType

from analytics.transforms import readings
from analytics.transforms.histograms import HISTOGRAM, difference, merged
from analytics.transforms.kept import kept
from analytics.transforms.readings import AREAS, CONTEXT, SERIES
from analytics.transforms.windows import covering, window_start

_SUMS = (
    *("sample_count", "left_out_count", "carried_count", "unplaced_count"),
    *("in_count", "in_bytes", "out_count", "requeue_count", "timeout_count"),
)
BUCKET_S = 10
MOST_RANGES = 100
"""More would be more code than Java's compiler takes on in one method."""
KEY = ("window_start", "node", "topic", "channel")

ACTIVITY = StructType(
    [
        StructField("window_start", TimestampType()),
        *(StructField(name, StringType()) for name in ("node", "topic", "channel")),
        *(StructField(name, LongType()) for name in _SUMS),
        *(StructField(name, DoubleType()) for name in AREAS),
        *(StructField(name, LongType()) for name in ("depth_max", "depth_last", "oldest_max_ns")),
        StructField("last_at", TimestampType()),
        StructField("histogram", StructType.fromDDL(HISTOGRAM.removeprefix("struct<").removesuffix(">"))),
    ]
)
"""``channel`` is empty for a topic's own row. ``observed_s``, ``depth_area`` (message-seconds) and ``client_area``
(consumer-seconds) are integrals over the time somebody looked; ``histogram`` is null where no sample had one."""


def activity(
    samples: DataFrame, window: timedelta, *, topic: str = "", channel: str = "", contexts: DataFrame | None = None
) -> DataFrame:
    """SAMPLE rows -> ACTIVITY, of one topic and one channel where they are given.

    ``contexts`` has an ``hour`` and a CONTEXT for each hour that is looked at in it; of each context, its own window is
    made. Without, everything is one.

    Whether a node was watched before is seen from all its samples, so that they are not to be left out beforehand.
    The counters are put in order at once, and not when the rows are asked for: they say which histograms to read.
    """
    wanted = samples
    if topic:
        wanted = wanted.where(F.col("topic") == topic)
    if channel:
        wanted = wanted.where(F.col("channel") == channel)
    plain = readings.plain(wanted)
    # These are read more than once, and small beside the samples.
    sampled = kept(readings.sampled(samples))
    stretches = kept(readings.stretches(plain, window))
    seen = kept(_in_contexts(sampled, contexts))
    hours = readings.hours(seen)
    uneasy = kept(readings.uneasy(stretches))
    if uneasy.isEmpty():
        spans = readings.calm_spans(stretches, hours)
    else:
        of_calm = readings.calm_spans(stretches.join(F.broadcast(uneasy), list(SERIES), "left_anti"), hours)
        of_others = plain.join(F.broadcast(uneasy), list(SERIES), "left_semi")
        spans = of_calm.unionByName(readings.ordered_spans(of_others, hours, window))
    ends = readings.window_ends(spans, readings.beats(seen)).where(
        (F.col(CONTEXT) == _everything()) | (F.col(CONTEXT) == F.col("window_start"))
    )
    ends = kept(ends)
    return _by_node(_with_histograms(ends, wanted))


def rolled_up(rows: DataFrame, window: timedelta) -> DataFrame:
    """ACTIVITY of shorter windows -> ACTIVITY of ``window``, a multiple of them."""
    return _merged(rows.withColumn("window_start", window_start("window_start", window)), KEY)


def as_one_window(rows: DataFrame, window_start: datetime) -> DataFrame:
    """ACTIVITY -> ACTIVITY of all its windows together."""
    return _merged(rows.withColumn("window_start", F.lit(window_start)), KEY)


def over_nodes(rows: DataFrame) -> DataFrame:
    """ACTIVITY -> one row per window, topic and channel, with ``node_count`` and ``merged_node_count``.

    ``depth_max`` is then the sum of the nodes' highest, which need not have been at the same time: an upper bound.
    """
    return _merged(
        rows,
        ("window_start", "topic", "channel"),
        depth_max=F.sum("depth_max"),
        depth_last=F.sum("depth_last"),
        observed_s=F.max("observed_s"),
        client_area=F.sum(F.col("client_area") / F.nullif("observed_s", F.lit(0.0))) * F.max("observed_s"),
        depth_area=F.sum(F.col("depth_area") / F.nullif("observed_s", F.lit(0.0))) * F.max("observed_s"),
        # A node has one row in each: to count distinct ones would send every histogram around three times more.
        node_count=F.count("node"),
        merged_node_count=F.count("histogram"),
    )


def _merged(rows: DataFrame, key: tuple[str, ...], **others: Column) -> DataFrame:
    figures: dict[str, Column] = {
        **{name: F.sum(name) for name in (*_SUMS, *AREAS)},
        "depth_max": F.max("depth_max"),
        "depth_last": F.max_by("depth_last", "last_at"),
        "oldest_max_ns": F.max("oldest_max_ns"),
        "last_at": F.max("last_at"),
        **others,
    }
    collected = rows.groupBy(*key).agg(
        *(figure.alias(name) for name, figure in figures.items()), F.collect_list("histogram").alias("histograms")
    )
    return collected.withColumn("histogram", merged(F.col("histograms"))).drop("histograms")


def _with_histograms(ends: DataFrame, samples: DataFrame) -> DataFrame:
    """Each row's ``histogram``: its last reading's less its base's."""
    merging = ends.where("merged_count > 0")
    asked = merging.select(*SERIES, F.col("last_at").alias("at")).union(
        # Mostly another window's last reading, but the hour before a rollup's is not among the windows.
        merging.where("base_at is not null").select(*SERIES, F.col("base_at").alias("at"))
    )
    hashed = asked.select(_hash(F.col("at")))
    read = kept(
        samples.where(_taken_within(asked))
        .where("hist_counts is not null and channel is not null")
        # A hash in a broadcast lets the scan drop what nobody asks for as it reads; one too many does no harm.
        .join(F.broadcast(hashed.distinct()), _hash(F.col("taken_at")) == F.col("hashed"), "left_semi")
        .groupBy(*SERIES, "taken_at")
        # Of two readings of one instant, the lower was kept above.
        .agg(
            F.min(
                F.struct(
                    "finish_count",
                    F.col("hist_zero_count").alias("zero"),
                    F.col("hist_offset").alias("offset"),
                    F.col("hist_counts").alias("counts"),
                )
            ).alias("read")
        )
        .select(*SERIES, "taken_at", F.struct("read.zero", "read.offset", "read.counts").alias("histogram"))
    )
    lasts = read.withColumnsRenamed({"taken_at": "last_at", "histogram": "reading"})
    bases = read.withColumnsRenamed({"taken_at": "base_at", "histogram": "base"})
    return (
        ends.join(lasts, [*SERIES, "last_at"], "left")
        .join(bases, [*SERIES, "base_at"], "left")
        .withColumn("histogram", F.when(F.col("reading").isNotNull(), difference("reading", "base")))
        .drop("reading", "base")
    )


def _taken_within(asked: DataFrame) -> Column:
    """A condition on ``taken_at``, true of all readings ``asked`` for, ``at`` being their time.

    It is spelled out, in literals, because these reach Parquet: row groups and pages outside are not even read. An
    archive is mostly histograms, and a window asks for those of its last seconds alone.
    """
    bucket = F.floor(F.unix_seconds("at") / BUCKET_S).alias("bucket")
    ranges = covering((row["bucket"] for row in asked.select(bucket).distinct().collect()), MOST_RANGES)
    within = F.lit(False)
    for first, last in ranges:
        since, until = (datetime.fromtimestamp(n * BUCKET_S, UTC) for n in (first, last + 1))
        within = within | ((F.col("taken_at") >= F.lit(since)) & (F.col("taken_at") < F.lit(until)))
    return within


def _in_contexts(sampled: DataFrame, contexts: DataFrame | None) -> DataFrame:
    if contexts is None:
        return sampled.withColumn(CONTEXT, _everything())
    return sampled.join(F.broadcast(contexts), "hour")


def _everything() -> Column:
    """The context of samples that have none: no hour that can be rolled up."""
    return F.timestamp_seconds(F.lit(0))


def _hash(at: Column) -> Column:
    return F.xxhash64("node", "boot_id", "topic", "channel", at).alias("hashed")


def _by_node(ends: DataFrame) -> DataFrame:
    """Boots and epochs together."""
    rows = ends.select(
        *KEY,
        "sample_count",
        F.when(F.col("channel") == "", 0)
        .otherwise(F.col("sample_count") - F.col("merged_count"))
        .alias("left_out_count"),
        F.coalesce("carried_count", F.lit(0)).alias("carried_count"),
        F.coalesce("unplaced_count", F.lit(0)).alias("unplaced_count"),
        F.col("d_message_count").alias("in_count"),
        F.col("d_message_bytes").alias("in_bytes"),
        F.col("d_done_count").alias("out_count"),
        F.col("d_requeue_count").alias("requeue_count"),
        F.col("d_timeout_count").alias("timeout_count"),
        *AREAS,
        *("depth_max", "depth_last", "oldest_max_ns", "last_at", "histogram"),
    )
    return _merged(rows, KEY).select(ACTIVITY.fieldNames())
