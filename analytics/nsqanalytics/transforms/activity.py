"""ACTIVITY: the figures of each node, topic and channel in each window. Every report is computed from it.

The figures are computed by nsqanalytics/counting, in Python processes of Spark's. This module says which rows are
together in a task, and in what order. Each task streams its rows: it holds some readings and whole series in memory, or
some rows of a result. ACTIVITY of several nodes or windows can be added up in any order. A rollup stores that of one
hour or day.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from nsqanalytics.counting import activity, computing, falls
from nsqanalytics.counting.activity import KEY, OF_ALL_NODES
from nsqanalytics.counting.ends import ENDS, Rules
from nsqanalytics.counting.of_files import OfFiles, Wanted
from nsqanalytics.counting.readings import COUNTERS, HIGHEST_COUNT, PACKED, SERIES, SUMMED
from nsqanalytics.counting.sampling import Sampling
from nsqanalytics.schema import spark_fields
from nsqanalytics.span import HOUR
from nsqanalytics.transforms.names import is_one_of
from nsqanalytics.transforms.windows import covering, window_start

ACTIVITY = spark_fields(activity.ACTIVITY)
SLOT_S = 10
"""Length of a time slot. Of the archive, the slots with required histograms are read."""
MAX_RANGES = 100
"""Largest number of ranges in a condition. With more, Spark generates a method that is too long for Java's compiler."""
IS_IN_OWN_HOUR = "coalesce(floor(unix_seconds(taken_at) / 3600) = unix_date(date) * 24L + hour, false)"
"""SQL: whether a reading's time lies in the hour of its file's folder. Functions of calendars would cost far more."""
_HISTOGRAM = ("hist_zero_count", "hist_offset", "hist_counts")
_FIGURES = (
    *("node", "boot_id", "topic", "taken_at", "started_at", "uptime_ns", "depth", "client_count"),
    *("in_flight_count", "deferred_count", "oldest_unfinished_age_ns", "dead_count"),
    *(name for name in COUNTERS if name != "done_count"),
)


def of_files(spark: SparkSession, step: OfFiles) -> DataFrame:
    """The files of an archive -> ACTIVITY, with a task for each share."""
    count = len(step.shares)
    return _in_arrow(spark.range(0, count, 1, count), step, activity.ACTIVITY)


def of_few(samples: DataFrame, is_wanted: Column, rules: Rules) -> DataFrame:
    """SAMPLE rows of all series of the nodes -> ACTIVITY of those that are wanted, in one task."""
    rows = _checkable(samples, *_FIGURES, *_HISTOGRAM, F.coalesce(is_wanted, F.lit(False)).alias("is_wanted"))
    return _in_arrow(rows.coalesce(1), computing.AllAtOnce(rules), activity.ACTIVITY)


def packed(samples: DataFrame) -> DataFrame:
    """SAMPLE rows -> PACKED."""
    return _in_arrow(_checkable(samples, *_FIGURES, *_HISTOGRAM[:2]), computing.packed, PACKED)


def ends(packed: DataFrame, sampling: Sampling, rules: Rules, evidence: pa.Table | None) -> DataFrame:
    """PACKED -> ENDS."""
    return _in_arrow(_sorted(packed, SERIES), computing.EndsOfPacked(sampling, rules, evidence), ENDS)


def evidence(samples: DataFrame, boots: DataFrame) -> DataFrame:
    """SAMPLE rows of all series -> EVIDENCE about those of ``boots``, rows with ``node`` and ``boot_id``."""
    # Readings of series that are not wanted are not checked.
    counts = [F.least(F.greatest(F.coalesce(name, F.lit(0)), F.lit(0)), F.lit(HIGHEST_COUNT)) for name in SUMMED]
    named = samples.where("topic is not null and taken_at is not null")
    compared = named.join(F.broadcast(boots), ["node", "boot_id"], "left_semi").select(
        *("node", "boot_id", "topic", F.coalesce("channel", F.lit("")).alias("channel"), "taken_at"),
        reduce(Column.__add__, counts).alias("counter_sum"),
        window_start("taken_at", HOUR).alias("hour"),
    )
    by_boot = compared.repartition("node", "boot_id").sortWithinPartitions("node", "boot_id", "hour")
    return _in_arrow(by_boot, falls.in_hours, falls.EVIDENCE)


def with_finish_count(samples: DataFrame) -> DataFrame:
    """SAMPLE rows of any version -> the same with ``finish_count`` for each histogram. It reads all histograms."""
    counted = F.aggregate(F.coalesce("hist_counts", F.array()), F.lit(0).cast("bigint"), lambda total, n: total + n)
    total = F.when(F.col("hist_offset").isNotNull(), F.coalesce("hist_zero_count", F.lit(0)) + counted)
    return samples.withColumn("finish_count", F.coalesce("finish_count", total))


def time_slots(ends: DataFrame) -> DataFrame:
    """Return the distinct ``slot`` numbers, in units of SLOT_S since the epoch, of the readings whose histograms
    ``with_histograms`` needs."""
    return _needed(ends).select(F.floor(F.unix_seconds("at") / SLOT_S).alias("slot")).distinct()


def taken_within(slots: Iterable[int]) -> Column:
    """Return a condition on ``taken_at`` that is true within these time slots, and may be true between them.

    It consists of literals, which Spark passes to Parquet, so that row groups and pages outside the slots are not
    read. Most of an archive is histograms, and a window needs only those of its last seconds.
    """
    within = []
    for first, last in covering(slots, MAX_RANGES):
        since, until = (datetime.fromtimestamp(n * SLOT_S, UTC) for n in (first, last + 1))
        within.append((F.col("taken_at") >= F.lit(since)) & (F.col("taken_at") < F.lit(until)))
    return _any_of(within)


def with_histograms(ends: DataFrame, samples: DataFrame, within: Column) -> DataFrame:
    """ENDS -> ACTIVITY, with histograms of the SAMPLE rows for which ``within`` is true."""
    needed = _needed(ends).select(_hash(F.col("at")).alias("hashed")).distinct()
    read = (
        samples.select("*", F.input_file_name().alias("read_from"))
        .where(within)
        .where("hist_offset is not null and channel is not null")
        # With a broadcast hash, the scan drops readings that are not needed. A few extra readings are harmless.
        .join(F.broadcast(needed), _hash(F.col("taken_at")) == F.col("hashed"), "left_semi")
        .select(
            *SERIES, F.col("taken_at").alias("last_at"), "finish_count", *_HISTOGRAM, F.col("read_from").alias("file")
        )
    )
    both = ends.unionByName(read, allowMissingColumns=True)
    return _in_arrow(_sorted(both, KEY[1:]), computing.activity_of_ends, activity.ACTIVITY)


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
    return _added_up(rows.withColumns(carried))


def as_one_window(rows: DataFrame, window_start: datetime) -> DataFrame:
    """ACTIVITY -> ACTIVITY of all its windows together."""
    return _added_up(rows.withColumn("window_start", F.lit(window_start)))


def over_nodes(rows: DataFrame) -> DataFrame:
    """ACTIVITY -> OVER_NODES: a row per window, topic and channel."""
    ordered = _sorted(rows.select(ACTIVITY.fieldNames()), OF_ALL_NODES)
    return _in_arrow(ordered, computing.over_nodes, activity.OVER_NODES)


def without_histograms(rows: DataFrame) -> DataFrame:
    """ACTIVITY -> the same without histograms, for figures that need none: Spark does not read them then."""
    return rows.withColumn("histogram", F.lit(None).cast(ACTIVITY["histogram"].dataType))


def _added_up(rows: DataFrame) -> DataFrame:
    return _in_arrow(_sorted(rows.select(ACTIVITY.fieldNames()), KEY), computing.added_up, activity.ACTIVITY)


def _sorted(rows: DataFrame, key: Iterable[str]) -> DataFrame:
    """Return the rows that are equal in ``key`` one after another, in one task."""
    return rows.repartition(*key).sortWithinPartitions(*key)


def _in_arrow(
    rows: DataFrame, step: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: pa.Schema
) -> DataFrame:
    # Spark needs the types, which an object that can be called does not have.
    def computed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from step(batches)

    return rows.mapInArrow(computed, spark_fields(schema))


def _checkable(samples: DataFrame, *columns: str | Column) -> DataFrame:
    """Return these columns of SAMPLE rows, ``channel`` (empty for a topic), ``is_in_own_hour`` and ``file``."""
    has_folders = {"date", "hour"} <= set(samples.columns)
    return samples.select(
        *columns,
        F.coalesce("channel", F.lit("")).alias("channel"),
        F.expr(IS_IN_OWN_HOUR if has_folders else "true").alias("is_in_own_hour"),
        F.input_file_name().alias("file"),
    )


def _needed(ends: DataFrame) -> DataFrame:
    """Return SERIES and ``at``, the time, of the readings whose histograms are needed."""
    # A base is usually the last reading of another window, but not if it lies before the windows, as for a rollup.
    times = F.explode(F.array_compact(F.array("last_at", "base_at")))
    return ends.where("is_merged").select(*SERIES, times.alias("at"))


def _hash(at: Column) -> Column:
    return F.xxhash64("node", "boot_id", "topic", "channel", at)


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


def before(samples: DataFrame, until: datetime) -> DataFrame:
    """Return the rows taken before ``until``, and those without a time or in another hour's folder, which are
    invalid (nsqanalytics/counting/validation.py)."""
    return samples.where((F.col("taken_at") < F.lit(until)) | ~F.expr(IS_IN_OWN_HOUR))


def wanted(readings: Wanted) -> Column:
    """Return whether a row is of one of the topics and of the channel that are wanted."""
    is_wanted = F.lit(True) if readings.topics.is_any else is_one_of("topic", readings.topics.text)
    return is_wanted & (F.col("channel") == readings.channel) if readings.channel else is_wanted
