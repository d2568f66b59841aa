"""Caching of DataFrames that are read more than once: they are computed once and planned once."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.storagelevel import StorageLevel

from nsqanalytics.session import is_connect


def persisted(rows: DataFrame) -> DataFrame:
    """Return the same rows, stored in memory or on disk when they are first used, until the session's cache is cleared.

    ``persist`` alone avoids computing the rows again, but not planning them again: their whole plan remains part of
    every plan built on them, and each step analyses it again. This function replaces the plan by one that reads the
    cache. Rows that are lost with a worker are still computed again. With Spark Connect only ``persist`` is possible,
    because its client has no access to plans.
    """
    rows.persist(StorageLevel.MEMORY_AND_DISK)
    session: Any = rows.sparkSession
    if is_connect(session):
        return rows
    classic: Any = rows
    plan = classic._jdf.queryExecution().withCachedData()
    # By its full name: the gateway would look for a class named ``org`` first, then for ``org.apache``, and so on.
    dataset = getattr(session._jvm, "org.apache.spark.sql.classic.Dataset")
    made = dataset.ofRows(session._jsparkSession, plan)
    return DataFrame(made, session)
