"""What happened to the sampled messages of each channel, and how long it took, also by client."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from nsqanalytics import tables
from nsqanalytics.life_events import KEY

_MESSAGE = ("topic", "channel", "message_id")


def lives(events: DataFrame) -> DataFrame:
    """Events of sampled messages, possibly repeated -> one LIVES row per topic and channel, and one per client of it.

    A message counts if its publish is among the events. Times are differences of one node's clock.
    """
    once = events.dropDuplicates(list(KEY))
    published = once.where("event = 'published'").groupBy("topic", "message_id").agg(F.min("at").alias("published_at"))
    found = once.where("channel is not null").join(published, ["topic", "message_id"])
    whole = _rows(found.withColumn("client_id", F.lit(None).cast("string")))
    by_client = _rows(found.where("client_id is not null"))
    return whole.unionByName(by_client).select(tables.computed(tables.LIVES))


def _rows(events: DataFrame) -> DataFrame:
    """Return one row per channel and client; a null client is all of them."""
    messages = events.groupBy(*_MESSAGE, "client_id").agg(
        F.first("published_at").alias("published_at"),
        _at("delivered", F.min).alias("delivered_at"),
        _at("delivered", F.max).alias("last_delivered_at"),
        _at("finished", F.min).alias("finished_at"),
        F.max(F.when(F.col("event") == "finished", F.col("attempts"))).alias("attempts"),
        *(F.count_if(F.col("event") == event).alias(event) for event in _COUNTED.values()),
    )
    times = {
        "delivered": _ms("published_at", "delivered_at"),
        "finished": _ms("published_at", "finished_at"),
        # A message that was delivered again after it was finished, because the channel was rewound, has no such time.
        "handled": F.when(F.col("finished_at") >= F.col("last_delivered_at"), _ms("last_delivered_at", "finished_at")),
    }
    timed = messages.withColumns({f"{name}_ms": time for name, time in times.items()})
    return timed.groupBy("topic", "channel", "client_id").agg(
        F.count(F.lit(1)).alias("message_count"),
        F.count("finished_at").alias("finished_count"),
        *(F.sum(event).alias(name) for name, event in _COUNTED.items()),
        *(F.percentile(f"{name}_ms", 0.5).alias(f"{name}_p50_ms") for name in times),
        *(F.max(f"{name}_ms").alias(f"{name}_max_ms") for name in times),
        F.avg("attempts").alias("attempts_mean"),
        F.max("attempts").alias("attempts_max"),
    )


_COUNTED = {
    "delivery_count": "delivered",
    "requeue_count": "requeued",
    "timeout_count": "timed_out",
    "died_count": "dead",
    "dropped_count": "dropped",
}
"""Column -> the event that it counts."""


def _at(event: str, which: Callable[[Column], Column]) -> Column:
    return which(F.when(F.col("event") == event, F.col("at")))


def _ms(start: str, end: str) -> Column:
    return (F.unix_micros(end) - F.unix_micros(start)) / 1000
