"""Topics as Spark tables: ``spark.read.format("nsq")`` reads a topic's log without consuming it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make the format ``nsq`` known to a session, for ``spark.read`` and ``spark.readStream``."""
    from nsqanalytics.topics.source import TopicSource

    spark.dataSource.register(TopicSource)
