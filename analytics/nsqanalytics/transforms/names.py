"""The topics that a report is about: names and patterns, separated by commas."""

from __future__ import annotations

import re
from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as F


def is_one_of(column: str, names: str) -> Column:
    """Return whether the column is one of ``names``: ``orders``, or ``orders.*, invoices``; ``*`` is any characters.

    Names are compared as a whole and with their case. An empty text is any name; commas alone are none. Parquet skips
    row groups only for names without a pattern.
    """
    given = [name.strip() for name in names.split(",") if name.strip()]
    exact = [name for name in given if "*" not in name]
    conditions = [F.col(column).isin(exact)] if exact else []
    conditions += [F.col(column).rlike(_expression(name)) for name in given if "*" in name]
    return reduce(or_, conditions, F.lit(False)) if conditions else F.lit(not names.strip())


def _expression(pattern: str) -> str:
    return "^" + ".*".join(re.escape(part) for part in pattern.split("*")) + "$"
