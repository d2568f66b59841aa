"""The channels whose messages die or are dropped, and the share of them."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from nsqanalytics import tables
from nsqanalytics.transforms.activity import over_nodes


def dead(rows: DataFrame) -> DataFrame:
    """ACTIVITY of a period as one window -> one DEAD row per topic and channel.

    Percentages are shares of the messages that were finished, died or were dropped; null without any, and for archives
    without these counters.
    """
    left = F.col("out_count") + F.col("died_count") + F.col("dropped_count")

    def share(name: str) -> Column:
        return 100 * F.col(name) / F.nullif(left, F.lit(0))

    found = over_nodes(rows.where("channel <> ''"))
    return found.withColumns({"died_percent": share("died_count"), "dropped_percent": share("dropped_count")}).select(
        tables.computed(tables.DEAD)
    )
