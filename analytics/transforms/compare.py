"""Two periods beside each other: what changed, most first by ``score``."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from analytics import tables
from analytics.transforms.activity import over_nodes
from analytics.transforms.latency import with_percentiles
from analytics.transforms.throughput import with_rates

FIGURES = {
    "in_rate": "messages/s",
    "out_rate": "messages/s",
    "p50_ms": "ms",
    "p99_ms": "ms",
    "depth_mean": "messages",
    "requeue_percent": "%",
    "timeout_percent": "%",
}


def compare(now: DataFrame, before: DataFrame, minimum_count: int) -> DataFrame:
    """ACTIVITY of two periods, each as one window -> COMPARE rows, for each figure that either period has.

    ``score`` is |ln((now + ε) / (before + ε))| with ε a hundredth of a unit, so that a doubling and a halving weigh the
    same and something that came out of nothing weighs much but not infinitely.
    """
    key = ["topic", "channel", "figure", "unit"]
    both = _figures(now, "now", minimum_count).join(_figures(before, "before", minimum_count), key, "full")
    smallest = F.lit(0.01)
    now_, before_ = F.coalesce("now", F.lit(0.0)), F.coalesce("before", F.lit(0.0))
    return both.withColumns(
        {
            "difference": F.col("now") - F.col("before"),
            "change_percent": 100 * (F.col("now") - F.col("before")) / F.nullif("before", F.lit(0.0)),
            "score": F.abs(F.ln((now_ + smallest) / (before_ + smallest))),
            "state": F.when(F.col("before").isNull(), "new").when(F.col("now").isNull(), "gone").otherwise("changed"),
        }
    ).select([figure.name for figure in tables.COMPARE])


def _figures(rows: DataFrame, name: str, minimum_count: int) -> DataFrame:
    merged = with_percentiles(with_rates(over_nodes(rows.where("channel <> ''"))), minimum_count)
    pairs = [
        F.struct(F.lit(f).alias("figure"), F.lit(u).alias("unit"), F.col(f).alias(name)) for f, u in FIGURES.items()
    ]
    return (
        merged.select("topic", "channel", F.explode(F.array(*pairs)).alias("of"))
        .select("topic", "channel", "of.*")
        .where(F.col(name).isNotNull())
    )
