"""Explains falls of counters without an uptime: a channel was created again, or a collector's clock was set back.

Counters of one process only grow, unless a topic or channel is deleted and created again. For two readings of a node:

- If a series fell and another of the same node and boot rose, the clock was right, and the series that fell was
  created again.
- If none rose and series of two topics or more fell, the clock was set back.
- If none rose and series of one topic fell, counters prove nothing (``is_unproven``). A clock set back makes readings
  of two times alternate: a series then falls repeatedly, while its readings in the order of its counters go back in
  time once. If, within an hour, it fell more often than that, the clock was set back.

Otherwise the next reading decides (nsqanalytics/transforms/readings.py).
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

SERIES = ("node", "boot_id", "topic", "channel")
_FINDINGS = ("is_created_again", "is_set_back", "is_unproven")


def evidence(plain: DataFrame, irregular: DataFrame) -> DataFrame:
    """Plain columns of all series, and the irregular series -> one row per reading at which an irregular series fell.

    ``is_created_again`` and ``is_set_back`` are never both true. ``is_unproven`` is true if no other series rose and no
    other topic's series fell.
    """
    boots = irregular.where("lacks_uptime").select("node", "boot_id").distinct()
    at_same_time = Window.partitionBy("node", "boot_id", "taken_at")
    compared = (
        plain.join(F.broadcast(boots), ["node", "boot_id"], "left_semi")
        .groupBy(*SERIES, "hour", "taken_at")
        .agg(F.min("progress").alias("progress"))
        .withColumn("before", F.lag(F.struct("taken_at", "progress")).over(_in_time(*SERIES)))
        # A series without a value at the node's previous reading is compared with an older one, which proves no rise.
        .withColumn("is_new", F.col("before.taken_at") == F.max("before.taken_at").over(at_same_time))
        .withColumn("fell", F.coalesce(F.col("progress") < F.col("before.progress"), F.lit(False)))
        .withColumn("rose", F.coalesce(F.col("is_new") & (F.col("progress") > F.col("before.progress")), F.lit(False)))
    )
    judged = (
        compared.withColumn("any_rose", F.max("rose").over(at_same_time))
        .withColumn("topics_fell", F.size(F.collect_set(F.when(F.col("fell"), F.col("topic"))).over(at_same_time)))
        .where("fell")
        .join(_alternating(compared), [*SERIES, "hour"], "left")
    )
    is_clock = (F.col("topics_fell") > 1) | F.coalesce("alternates", F.lit(False))
    return judged.select(
        *SERIES,
        "taken_at",
        F.col("any_rose").alias("is_created_again"),
        (~F.col("any_rose") & is_clock).alias("is_set_back"),
        (~F.col("any_rose") & (F.col("topics_fell") == 1)).alias("is_unproven"),
    )


def with_evidence(plain: DataFrame, evidence: DataFrame | None) -> DataFrame:
    """Plain columns with the columns of ``evidence`` for each reading; false if it has no row."""
    if evidence is None:
        return plain.withColumns({name: F.lit(False) for name in _FINDINGS})
    found = plain.join(F.broadcast(evidence), [*SERIES, "taken_at"], "left")
    return found.withColumns({name: F.coalesce(name, F.lit(False)) for name in _FINDINGS})


def _alternating(compared: DataFrame) -> DataFrame:
    """Return per series and hour whether it fell more often than time goes back in the order of its counters."""
    earlier = F.lag("taken_at").over(Window.partitionBy(*SERIES, "hour").orderBy("progress", "taken_at"))
    fell = F.col("progress") < F.lag("progress").over(_in_time(*SERIES, "hour"))
    return (
        compared.select(*SERIES, "hour", (earlier > F.col("taken_at")).alias("goes_back"), fell.alias("fell"))
        .groupBy(*SERIES, "hour")
        .agg((F.count_if("fell") > F.count_if("goes_back")).alias("alternates"))
    )


def _in_time(*partition: str) -> WindowSpec:
    return Window.partitionBy(*partition).orderBy("taken_at")
