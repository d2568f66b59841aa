"""Checks readings. An invalid reading fails the report, with the name of its file, instead of causing wrong figures.

The checks are part of a column that every figure needs, so they need no extra pass. Histograms are checked when they
are read.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from nsqanalytics.hourly_files import FILE
from nsqanalytics.transforms.readings import LATER_COUNTERS
from nsqwire.histogram import MAX_BUCKETS

HIGHEST_COUNT = 10**18
"""Largest valid count. Sums of four such counts fit into 64 bits."""
PREFIX = "a reading is invalid"
_COUNTERS = ("message_count", "message_bytes", "requeue_count", "timeout_count")
_NAMES = ("node", "boot_id", "topic", "taken_at")
_GAUGES = ("depth", "in_flight_count", "deferred_count", "client_count")


def checked(samples: DataFrame) -> DataFrame:
    """Return the same rows.

    For an invalid row, computing ``message_count`` raises an error with the name of its file.
    """
    problems = [
        *(f"if({name} is null, '{name} is missing', null)" for name in (*_NAMES, *_COUNTERS, *_GAUGES)),
        *(_unless_count(name) for name in (*_COUNTERS, *LATER_COUNTERS, "finish_count", "hist_zero_count")),
        *(
            f"if({name} is null and (finish_count is not null or {other} is not null), '{name} is missing', null)"
            for name, other in (("hist_zero_count", "hist_offset"), ("hist_offset", "hist_zero_count"))
        ),
    ]
    if {"date", "hour"} <= set(samples.columns):
        problems.append(f"if({IS_IN_OWN_HOUR}, null, 'taken_at is not in the hour of its folder')")
    return samples.withColumn("message_count", _or_error("message_count", problems, file_of(samples)))


def file_of(samples: DataFrame) -> str:
    """Return SQL for the URI of the file of the archive that a row is from."""
    return FILE if FILE in samples.columns else "input_file_name()"


IS_IN_OWN_HOUR = "coalesce(to_date(taken_at) = date and hour(taken_at) = hour, false)"
"""SQL: whether a reading's time lies in the hour of its file's folder."""


def checked_histogram(name: str) -> Column:
    """Return the column ``name``, a struct of ``finish_count``, ``zero``, ``offset``, ``counts`` and ``file``,
    unchanged. Computing it raises an error with the file if it is invalid."""
    counts, offset = f"{name}.counts", f"{name}.offset"
    counted = f"aggregate({counts}, 0L, (total, n) -> total + n)"
    is_count = f"forall({counts}, n -> coalesce(n between 0 and {HIGHEST_COUNT}, false))"
    problems = [
        f"if(not {is_count}, 'hist_counts has a count that is not between 0 and {HIGHEST_COUNT}', null)",
        f"""if(
            coalesce({offset} >= 0 and {offset} + size({counts}) <= {MAX_BUCKETS}, false),
            null,
            'hist_offset and hist_counts are not buckets of 0 to {MAX_BUCKETS}'
        )""",
        f"""if(
            {is_count} and {name}.zero + {counted} <> {name}.finish_count,
            'finish_count is not the total of its histogram',
            null
        )""",
    ]
    return _or_error(name, problems, f"{name}.file")


def _unless_count(name: str) -> str:
    reason = f"concat('{name} is ', cast({name} as string), ', not between 0 and {HIGHEST_COUNT}')"
    return f"if({name} not between 0 and {HIGHEST_COUNT}, {reason}, null)"


def _or_error(value: str, problems: list[str], file: str) -> Column:
    reason = f"coalesce({', '.join(problems)})"
    return F.expr(f"if({reason} is null, {value}, raise_error(concat('{PREFIX}: ', {reason}, ': ', {file})))")
