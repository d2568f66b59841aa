"""ACTIVITY: the figures of each node, topic and channel in each window. Every report is computed from it.

ACTIVITY of several nodes or windows can be added up in any order. A rollup stores that of one hour or day.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType, TimestampType

from nsqanalytics.transforms.histograms import HISTOGRAM, difference, merged
from nsqanalytics.transforms.readings import AREAS, CONTEXT, HOUR, LATER_COUNTERS, SERIES
from nsqanalytics.transforms.validation import checked_histogram, file_of
from nsqanalytics.transforms.windows import covering, window_start

_SUMS = (
    *("sample_count", "left_out_count", "carried_count", "unplaced_count", "uncertain_count"),
    *("in_count", "in_bytes", "out_count", "requeue_count", "timeout_count", *LATER_COUNTERS),
)
BUCKET_S = 10
MAX_RANGES = 100
"""Largest number of ranges in a condition. With more, Spark generates a method that is too long for Java's compiler."""
KEY = ("window_start", "node", "topic", "channel")

ACTIVITY = StructType(
    [
        StructField("window_start", TimestampType()),
        *(StructField(name, StringType()) for name in ("node", "topic", "channel")),
        *(StructField(name, LongType()) for name in _SUMS),
        *(StructField(name, DoubleType()) for name in AREAS),
        *(StructField(name, LongType()) for name in ("depth_max", "depth_last", "dead_last", "oldest_max_ns")),
        *(StructField(name, TimestampType()) for name in ("last_at", "carried_since")),
        StructField("histogram", StructType.fromDDL(HISTOGRAM.removeprefix("struct<").removesuffix(">"))),
    ]
)
"""``channel`` is empty for a topic's own row. ``observed_s``, ``depth_area`` (message-seconds) and ``client_area``
(consumer-seconds) are integrals over the observed time; ``histogram`` is null if no sample had one. ``dead_last`` and
LATER_COUNTERS are null for topics, and if no sample had them."""


def rolled_up(rows: DataFrame, window: timedelta, since: datetime) -> DataFrame:
    """ACTIVITY of shorter windows -> ACTIVITY of ``window``, a multiple of them. ``since`` is the start of the period.

    Messages that were carried from one of the shorter windows to the next within ``window`` are not counted as carried.
    If a rollup of an older version has no ``carried_since``, all its carried messages are.
    """
    rows = rows.withColumn("window_start", window_start("window_start", window))
    # Of the first window, only the part in the period is counted.
    counted_since = F.greatest(F.col("window_start"), F.lit(since))
    is_within = F.coalesce(F.col("carried_since") >= counted_since, F.lit(False))
    carried = {
        "carried_count": F.when(is_within, 0).otherwise(F.col("carried_count")),
        "carried_since": F.when(~is_within, F.col("carried_since")),
    }
    return _merged(rows.withColumns(carried), KEY)


def as_one_window(rows: DataFrame, window_start: datetime) -> DataFrame:
    """ACTIVITY -> ACTIVITY of all its windows together."""
    return _merged(rows.withColumn("window_start", F.lit(window_start)), KEY)


def over_nodes(rows: DataFrame) -> DataFrame:
    """ACTIVITY -> one row per window, topic and channel, with ``node_count`` and ``merged_node_count``.

    ``depth_max`` is the sum of the nodes' highest depths, which may be of different times: an upper bound.
    """
    return _merged(
        rows,
        ("window_start", "topic", "channel"),
        depth_max=F.sum("depth_max"),
        depth_last=F.sum("depth_last"),
        dead_last=F.sum("dead_last"),
        observed_s=F.max("observed_s"),
        client_area=F.sum(F.col("client_area") / F.nullif("observed_s", F.lit(0.0))) * F.max("observed_s"),
        depth_area=F.sum(F.col("depth_area") / F.nullif("observed_s", F.lit(0.0))) * F.max("observed_s"),
        # Each node has one row per group. Counting distinct nodes would shuffle every histogram three more times.
        node_count=F.count("node"),
        merged_node_count=F.count("histogram"),
    )


def _merged(rows: DataFrame, key: tuple[str, ...], **others: Column) -> DataFrame:
    figures: dict[str, Column] = {
        **{name: F.sum(name) for name in (*_SUMS, *AREAS)},
        "depth_max": F.max("depth_max"),
        "depth_last": _last("depth_last"),
        "dead_last": _last("dead_last"),
        "oldest_max_ns": F.max("oldest_max_ns"),
        "last_at": F.max("last_at"),
        "carried_since": F.min("carried_since"),
        **others,
    }
    collected = rows.groupBy(*key).agg(
        *(figure.alias(name) for name, figure in figures.items()), F.collect_list("histogram").alias("histograms")
    )
    return collected.select(*key, *figures, merged("histograms").alias("histogram"))


def _last(name: str) -> Column:
    """Return the figure of the last time; the highest one if two rows have the same, so that it is the same in every
    run."""
    return F.max_by(name, F.struct("last_at", name))


def histograms_needed(ends: DataFrame) -> DataFrame:
    """Return the readings whose histograms ``with_histograms`` needs: SERIES and ``at``, the time of the reading."""
    merging = ends.where("merged_count > 0")
    # A base is usually the last reading of another window, but not if it lies before the windows, as for a rollup.
    return merging.select(*SERIES, F.explode(F.array_compact(F.array("last_at", "base_at"))).alias("at"))


def time_buckets(needed: DataFrame) -> DataFrame:
    """Return the distinct ``bucket`` numbers, in units of BUCKET_S since the epoch, of the needed readings."""
    return needed.select(F.floor(F.unix_seconds("at") / BUCKET_S).alias("bucket")).distinct()


def taken_within(buckets: Iterable[int]) -> Column:
    """Return a condition on ``taken_at`` that is true within these time buckets, and may be true between them.

    It consists of literals, which Spark passes to Parquet, so that row groups and pages outside the buckets are not
    read. Most of an archive is histograms, and a window needs only those of its last seconds.
    """
    within = []
    for first, last in covering(buckets, MAX_RANGES):
        since, until = (datetime.fromtimestamp(n * BUCKET_S, UTC) for n in (first, last + 1))
        within.append((F.col("taken_at") >= F.lit(since)) & (F.col("taken_at") < F.lit(until)))
    return _any_of(within)


def histograms(samples: DataFrame, needed: DataFrame, within: Column) -> DataFrame:
    """Return the ``histogram`` of each needed reading, by SERIES and ``taken_at``, from samples for which ``within`` is
    true. The result may contain a few readings that are not needed.
    """
    histogram = F.struct(
        "finish_count",
        F.col("hist_zero_count").alias("zero"),
        F.col("hist_offset").alias("offset"),
        F.col("hist_counts").alias("counts"),
        "file",
    )
    hashed = needed.select(_hash(F.col("at"))).distinct()
    return (
        samples.withColumn("file", F.expr(file_of(samples)))
        .where(within)
        .where("hist_offset is not null and channel is not null")
        # With a broadcast hash, the scan drops readings that are not needed. A few extra readings are harmless.
        .join(F.broadcast(hashed), _hash(F.col("taken_at")) == F.col("hashed"), "left_semi")
        .groupBy(*SERIES, "taken_at")
        # If two readings have the same time, readings.py uses the one with the lower counters.
        .agg(F.min(histogram).alias("read"))
        .withColumn("read", checked_histogram("read"))
        .select(*SERIES, "taken_at", F.struct("read.zero", "read.offset", "read.counts").alias("histogram"))
    )


def with_histograms(ends: DataFrame, read: DataFrame) -> DataFrame:
    """Add the ``histogram`` of each row: that of its last reading minus that of its base, both from ``read``."""
    lasts = read.withColumnsRenamed({"taken_at": "last_at", "histogram": "reading"})
    bases = read.withColumnsRenamed({"taken_at": "base_at", "histogram": "base"})
    return (
        ends.join(lasts, [*SERIES, "last_at"], "left")
        .join(bases, [*SERIES, "base_at"], "left")
        .withColumn("histogram", difference("reading", "base"))
        .drop("reading", "base")
    )


def _any_of(conditions: list[Column]) -> Column:
    """Return a condition that is true if one of the conditions is.

    They are combined as a balanced tree: a Spark Connect server refuses plans of more than 100 levels, and each OR in
    a chain adds three.
    """
    if not conditions:
        return F.lit(False)
    while len(conditions) > 1:
        paired = [one | other for one, other in zip(conditions[::2], conditions[1::2], strict=False)]
        conditions = paired + conditions[len(paired) * 2 :]
    return conditions[0]


def in_contexts(sampled: DataFrame, contexts: DataFrame | None) -> DataFrame:
    """Return the sampling times of nodes, once for each CONTEXT of their hour; without contexts, all in one context."""
    if contexts is None:
        return sampled.withColumn(CONTEXT, _everything())
    return sampled.join(F.broadcast(contexts), "hour")


def of_own_hour(ends: DataFrame) -> DataFrame:
    """Return the rows whose window lies in their context's own hour; without contexts, all rows."""
    is_own = F.col(CONTEXT) == window_start("window_start", HOUR)
    return ends.where((F.col(CONTEXT) == _everything()) | is_own)


def _everything() -> Column:
    """Return the context that is used without contexts: the epoch, an hour that no archive contains."""
    return F.timestamp_seconds(F.lit(0))


def _hash(at: Column) -> Column:
    return F.xxhash64("node", "boot_id", "topic", "channel", at).alias("hashed")


def by_node(ends: DataFrame) -> DataFrame:
    """Window ends with histograms -> ACTIVITY: the sums over boots and epochs."""
    rows = ends.select(
        *KEY,
        "sample_count",
        F.when(F.col("channel") == "", 0)
        .otherwise(F.col("sample_count") - F.col("merged_count"))
        .alias("left_out_count"),
        F.coalesce("carried_count", F.lit(0)).alias("carried_count"),
        F.coalesce("unplaced_count", F.lit(0)).alias("unplaced_count"),
        "uncertain_count",
        F.col("d_message_count").alias("in_count"),
        F.col("d_message_bytes").alias("in_bytes"),
        F.col("d_done_count").alias("out_count"),
        F.col("d_requeue_count").alias("requeue_count"),
        F.col("d_timeout_count").alias("timeout_count"),
        *(F.col(f"d_{name}").alias(name) for name in LATER_COUNTERS),
        *AREAS,
        *("depth_max", "depth_last", "dead_last", "oldest_max_ns", "last_at", "carried_since", "histogram"),
    )
    return _merged(rows, KEY).select(ACTIVITY.fieldNames())
