"""Names of topics as a condition on rows."""

from __future__ import annotations

from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as F

from nsqanalytics.counting.names import Names


def is_one_of(column: str, names: str) -> Column:
    """Return whether the column is one of ``names``. Parquet skips row groups only for names without a pattern."""
    given = Names(names)
    conditions = [F.col(column).isin(given.exact)] if given.exact else []
    conditions += [F.col(column).rlike(each) for each in given.expressions]
    return reduce(or_, conditions, F.lit(False)) if conditions else F.lit(given.is_any)
