"""Compares two periods. Rows are ranked by ``score``, the number of messages that a change concerns."""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from nsqanalytics import tables
from nsqanalytics.transforms.activity import over_nodes
from nsqanalytics.transforms.latency import of_enough
from nsqanalytics.transforms.throughput import with_rates


class Compared(NamedTuple):
    """A figure's unit, and the column with the number of messages that it concerns."""

    unit: str
    messages: str


FIGURES = {
    "in_rate": Compared("messages/s", "in_count"),
    "out_rate": Compared("messages/s", "out_count"),
    "p50_ms": Compared("ms", "count"),
    "p99_ms": Compared("ms", "count"),
    "depth_mean": Compared("messages", "depth_mean"),
    "requeue_percent": Compared("%", "requeue_count"),
    "timeout_percent": Compared("%", "timeout_count"),
}


def compare(now: DataFrame, before: DataFrame, minimum_count: int) -> DataFrame:
    """ACTIVITY of two periods, each as one window -> COMPARE rows, for each figure that either period has.

    ``score`` is the relative change, |now - before| / max(now, before), times ``message_count``, the number of messages
    that the figure concerns in the period with more of them. For rates, it is the difference of the periods in
    messages. The relative change is at most 1, so a doubling and a halving have the same weight, and the score of a
    channel with three messages is at most three.
    """
    key = ["topic", "channel", "figure", "unit"]
    both = _figures(now, "now", minimum_count).join(_figures(before, "before", minimum_count), key, "full")
    now_, before_ = F.coalesce("now", F.lit(0.0)), F.coalesce("before", F.lit(0.0))
    share = F.abs(now_ - before_) / F.nullif(F.greatest(now_, before_), F.lit(0.0))
    # Spark's greatest ignores null, the value of a period without the figure.
    concerned = both.withColumn("message_count", F.greatest("now_messages", "before_messages"))
    return concerned.withColumns(
        {
            "difference": F.col("now") - F.col("before"),
            "change_percent": 100 * (F.col("now") - F.col("before")) / F.nullif("before", F.lit(0.0)),
            "score": F.coalesce(share, F.lit(0.0)) * F.col("message_count"),
            "state": F.when(F.col("before").isNull(), "new").when(F.col("now").isNull(), "gone").otherwise("changed"),
        }
    ).select([figure.name for figure in tables.COMPARE if figure not in (*tables.COVERED, *tables.BEFORE)])


def _figures(rows: DataFrame, name: str, minimum_count: int) -> DataFrame:
    """A row per topic, channel and figure: its value as ``<name>``, its messages as ``<name>_messages``."""
    merged = of_enough(with_rates(over_nodes(rows.where("channel <> ''"))), minimum_count)
    values = [
        F.struct(
            F.lit(figure).alias("figure"),
            F.lit(of.unit).alias("unit"),
            F.col(figure).alias(name),
            F.coalesce(F.col(of.messages).cast("double"), F.lit(0.0)).alias(f"{name}_messages"),
        )
        for figure, of in FIGURES.items()
    ]
    return (
        merged.select("topic", "channel", F.explode(F.array(*values)).alias("of"))
        .select("topic", "channel", "of.*")
        .where(F.col(name).isNotNull())
    )
