"""End-to-end latency, from publish to FIN: percentiles by topic, channel and window, merged across nodes.

Buckets are summed before a percentile is read. The mean of the nodes' percentiles would hide one slow node among nine
fast ones. A percentile is the middle of the bucket that contains the sample of rank ``ceil(q · count)``: within 1.09 %
of that sample, or 0 if the sample is at most 1 µs. ``max_ms`` is the upper bound of the highest occupied bucket: at
least the true maximum, and less than 2.2 % above it.
"""

from __future__ import annotations

from math import ceil

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from nsqanalytics import tables
from nsqanalytics.transforms.activity import over_nodes
from nsqwire.histogram import RELATIVE_ERROR


def latency(rows: DataFrame, minimum_count: int) -> DataFrame:
    """ACTIVITY -> one LATENCY row per window, topic and channel that was sampled; in no order.

    Percentiles are null if no message was finished, p99.9 also below ``minimum_count`` messages. Samples without a
    histogram (Go nodes) are counted in ``samples_left_out`` only.
    """
    return of_enough(over_nodes(rows.where("channel <> ''")), minimum_count).select(
        "window_start",
        "topic",
        "channel",
        "count",
        *tables.PERMILLES,
        "max_ms",
        "carried_count",
        "unplaced_count",
        F.col("merged_node_count").alias("node_count"),
        (F.col("sample_count") - F.col("left_out_count")).alias("sample_count"),
        F.col("left_out_count").alias("samples_left_out"),
        F.coalesce("uncertain_count", F.lit(0)).alias("uncertain_count"),
        F.lit(ceil(10_000 * RELATIVE_ERROR) / 100).alias("error_percent"),
        "histogram",
    )


def of_enough(rows: DataFrame, minimum_count: int) -> DataFrame:
    """Rows of all nodes -> the same, with p99.9 null below ``minimum_count`` messages."""
    return rows.withColumn("p999_ms", F.when(F.col("count") >= minimum_count, F.col("p999_ms")))
