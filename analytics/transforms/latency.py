"""End-to-end latency, from publish to FIN: percentiles by topic, channel and window, merged across nodes.

Buckets are summed before a percentile is read, so nine fast nodes do not hide a slow one as the mean of their
percentiles would. A percentile is the middle of the bucket that holds the sample of rank ``ceil(q · count)``: within
1.09 % of that sample, or, for one of at most 1 µs, 0. ``max_ms`` is the upper bound of the highest occupied bucket: at
least the true maximum, and less than 2.2 % above it.
"""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType, TimestampType

from analytics.transforms.counters import ZERO_BUCKET, finished_by_window
from analytics.transforms.windows import window_start
from nsqwire.histogram import BUCKETS_PER_OCTAVE, ZERO_THRESHOLD_NS

PERMILLES = {"p50_ms": 500, "p90_ms": 900, "p95_ms": 950, "p99_ms": 990, "p999_ms": 999}

LATENCY = StructType(
    [
        StructField("window_start", TimestampType(), False, {"unit": ""}),
        StructField("topic", StringType(), False, {"unit": ""}),
        StructField("channel", StringType(), False, {"unit": ""}),
        StructField("count", LongType(), False, {"unit": "messages"}),
        *(StructField(name, DoubleType(), True, {"unit": "ms"}) for name in (*PERMILLES, "max_ms")),
        StructField("carried_count", LongType(), False, {"unit": "messages"}),
        StructField("unplaced_count", LongType(), False, {"unit": "messages"}),
        StructField("node_count", LongType(), False, {"unit": "nodes"}),
        StructField("sample_count", LongType(), False, {"unit": "samples"}),
        StructField("samples_left_out", LongType(), False, {"unit": "samples"}),
    ]
)
_KEY = ("window_start", "topic", "channel")
_COVERAGE = ("sample_count", "carried_count", "unplaced_count", "samples_left_out")


def latency(samples: DataFrame, window: timedelta, minimum_count: int) -> DataFrame:
    """SAMPLE rows -> one LATENCY row per window, topic and channel that was sampled; in no order.

    Percentiles are null where nothing was finished, p99.9 also below ``minimum_count`` messages. Samples without a
    histogram (Go nodes) are counted in ``samples_left_out`` and in nothing else.
    """
    buckets = (
        finished_by_window(samples, window)
        .withColumn("samples_left_out", F.lit(0).cast("bigint"))
        .unionByName(_left_out(samples, window))
        .select(*_KEY, "node", *_COVERAGE, F.inline("buckets"))
        .groupBy(*_KEY, "index")
        .agg(F.sum("n").alias("n"), *_coverage())
    )
    of_row = Window.partitionBy(*_KEY)
    ranked = buckets.withColumn("reached", F.sum("n").over(of_row.orderBy("index"))).withColumn(
        "count", F.sum("n").over(of_row)
    )
    # In whole numbers: in floating point, 0.07 * 100 is more than 7 and would ask for the eighth sample.
    at_rank = {
        name: F.min(F.when((F.col("n") > 0) & (F.col("reached") >= _rank(permille)), F.col("index")))
        for name, permille in PERMILLES.items()
    }
    rows = ranked.groupBy(*_KEY).agg(
        F.max("count").alias("count"),
        *(index.alias(name) for name, index in at_rank.items()),
        F.max(F.when(F.col("n") > 0, F.col("index"))).alias("max_ms"),
        F.max("node_count").alias("node_count"),
        *(F.max(name).alias(name) for name in _COVERAGE),
    )
    read = {name: _middle_ms(name) for name in PERMILLES} | {"max_ms": _upper_bound_ms("max_ms")}
    read["p999_ms"] = F.when(F.col("count") >= minimum_count, read["p999_ms"])
    return rows.withColumns(read).select(LATENCY.fieldNames())


def _left_out(samples: DataFrame, window: timedelta) -> DataFrame:
    """A row like ``finished_by_window``'s, of nothing finished, per sample that cannot be merged."""
    return (
        samples.where(F.col("channel").isNotNull() & F.col("hist_counts").isNull())
        .select("node", "boot_id", "topic", "channel", "taken_at")
        .distinct()
        .withColumn("window_start", window_start("taken_at", window))
        .groupBy("node", "boot_id", *_KEY)
        .agg(F.count("*").alias("samples_left_out"))
        .withColumns({name: F.lit(0).cast("bigint") for name in _COVERAGE if name != "samples_left_out"})
        .withColumn("buckets", F.expr(f"array(struct({ZERO_BUCKET} as index, 0L as n))"))
    )


def _coverage() -> list[Column]:
    """What a row rests on. It travels with the zero bucket, which every series has, so that it is summed once."""
    is_zero = F.col("index") == ZERO_BUCKET
    merged_node = F.when(is_zero & (F.col("sample_count") > 0), F.col("node"))
    sums = [F.sum(F.when(is_zero, F.col(name))).alias(name) for name in _COVERAGE]
    return [F.size(F.collect_set(merged_node)).cast("bigint").alias("node_count"), *sums]


def _rank(permille: int) -> Column:
    return F.expr(f"(count * {permille} + 999) div 1000")


def _middle_ms(index: str) -> Column:
    low, high = _bound_ns(F.col(index)), _bound_ns(F.col(index) + 1)
    return F.when(F.col(index) == ZERO_BUCKET, 0.0).otherwise(2 * low * high / (low + high) / 1e6)


def _upper_bound_ms(index: str) -> Column:
    zero = F.lit(ZERO_THRESHOLD_NS / 1e6)
    return F.when(F.col(index) == ZERO_BUCKET, zero).otherwise(_bound_ns(F.col(index) + 1) / 1e6)


def _bound_ns(index: Column) -> Column:
    return F.pow(F.lit(2.0), index / BUCKETS_PER_OCTAVE)
