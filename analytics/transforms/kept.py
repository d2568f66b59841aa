"""Rows that are read more than once: computed once, and planned once."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.storagelevel import StorageLevel

from analytics.session import is_connect


def kept(rows: DataFrame) -> DataFrame:
    """The same rows, kept in memory or on disk from their first use on, until the session's cache is cleared.

    ``persist`` alone spares computing them, but not planning: how they came about stays in every plan that is built on
    them, as often as they are in it, and is analysed anew by each step. Here it is cut off, and what was lost with a
    worker is still made again. A Spark Connect server is not asked for that: its client does not hold plans.
    """
    rows.persist(StorageLevel.MEMORY_AND_DISK)
    session: Any = rows.sparkSession
    if is_connect(session):
        return rows
    classic: Any = rows
    plan = classic._jdf.queryExecution().withCachedData()
    made = session._jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, plan)
    return DataFrame(made, session)
