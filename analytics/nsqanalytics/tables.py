"""The columns of every job's result, in order: name, type, unit. docs/analytics.md explains them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType


class Figure(NamedTuple):
    """A column. ``type`` is timestamp, string, integer, number or histogram; ``unit`` is empty if there is none."""

    name: str
    type: str
    unit: str = ""
    nullable: bool = True


def _key(*names: str) -> list[Figure]:
    return [Figure(name, "timestamp" if name == "window_start" else "string", nullable=False) for name in names]


def _of(type_: str, unit: str, *names: str, nullable: bool = True) -> list[Figure]:
    return [Figure(name, type_, unit, nullable) for name in names]


COVERED = _of("timestamp", "", "covered_since", "covered_until", nullable=False)
"""The part of the row's window or span that lies in the report's period."""
BEFORE = _of("timestamp", "", "before_since", "before_until", nullable=False)
"""The earlier period, with which the report's period is compared."""


class Earlier(NamedTuple):
    """The columns that compare a row with the one of an earlier period: a figure, its earlier value, and the change."""

    figure: str
    before: str
    change_percent: str

    def figures(self, unit: str) -> list[Figure]:
        """Return the two columns that are added; ``unit`` is that of the figure."""
        return [Figure(self.before, "number", unit), Figure(self.change_percent, "number", "%")]


LATENCY_EARLIER = Earlier("p99_ms", "p99_before_ms", "p99_change_percent")
THROUGHPUT_EARLIER = Earlier("depth_max", "depth_max_before", "depth_max_change_percent")
DEAD_EARLIER = Earlier("died_count", "died_count_before", "died_count_change_percent")
PERMILLES = {"p50_ms": 500, "p90_ms": 900, "p95_ms": 950, "p99_ms": 990, "p999_ms": 999}

LATENCY = [
    *_key("window_start", "topic", "channel"),
    Figure("count", "integer", "messages", nullable=False),
    *_of("number", "ms", *PERMILLES, "max_ms"),
    *LATENCY_EARLIER.figures("ms"),
    *_of("integer", "messages", "carried_count", "unplaced_count", nullable=False),
    Figure("node_count", "integer", "nodes", nullable=False),
    *_of("integer", "samples", "sample_count", "samples_left_out", nullable=False),
    Figure("uncertain_count", "integer", "samples", nullable=False),
    Figure("error_percent", "number", "%", nullable=False),
    Figure("histogram", "histogram", "messages"),
    *COVERED,
]
THROUGHPUT = [
    *_key("window_start", "topic"),
    Figure("channel", "string"),
    *_of("integer", "messages", "in_count", "out_count"),
    *_of("number", "messages/s", "in_rate", "out_rate"),
    Figure("byte_rate", "number", "bytes/s"),
    Figure("depth_mean", "number", "messages"),
    *_of("integer", "messages", "depth_max", "depth_last"),
    *THROUGHPUT_EARLIER.figures("messages"),
    Figure("depth_area", "number", "message-seconds"),
    Figure("drain_s", "number", "s"),
    *_of("integer", "messages", "requeue_count", "timeout_count"),
    *_of("number", "%", "requeue_percent", "timeout_percent"),
    *_of("integer", "messages", "died_count", "dropped_count", "dead_last"),
    Figure("oldest_max_ms", "number", "ms"),
    Figure("observed_s", "number", "s"),
    Figure("node_count", "integer", "nodes"),
    *_of("integer", "samples", "sample_count", "uncertain_count"),
    *COVERED,
]
OBJECTIVES = [
    Figure("span", "string", nullable=False),
    Figure("span_start", "timestamp", nullable=False),
    *_key("topic", "channel", "objective"),
    Figure("target", "number"),
    *_of("integer", "messages", "message_count", "held_count", "missed_count"),
    *_of("number", "%", "held_percent", "budget_burnt_percent"),
    *_of("integer", "windows", "window_count", "windows_held_count"),
    Figure("windows_held_percent", "number", "%"),
    Figure("worst_window_start", "timestamp"),
    Figure("worst_value", "number"),
    Figure("unit", "string"),
    *COVERED,
]
CAPACITY = [
    *_key("topic", "channel"),
    Figure("hour_count", "integer", "hours"),
    Figure("in_count", "integer", "messages"),
    *_of("number", "messages/s", "in_rate", "busiest_in_rate"),
    Figure("busiest_hour", "timestamp"),
    Figure("growth_percent_per_day", "number", "%"),
    Figure("service_rate", "number", "messages/s"),
    *_of("number", "consumers", "consumers_mean"),
    *_of("integer", "consumers", "consumers_needed", "consumers_needed_at_horizon"),
    Figure("in_rate_at_horizon", "number", "messages/s"),
    *_of("timestamp", "", "drains_at", "disk_full_at"),
    *_of("string", "", "method", "reason"),
    *COVERED,
]
CAPACITY_OUTLOOK = [
    *_key("topic", "channel"),
    *_of("number", "messages/s", "service_rate", "forecast_in_rate", "forecast_peak_rate"),
    *_of("timestamp", "", "drains_at", "disk_full_at"),
    *_of("string", "", "method", "reason"),
]
"""What is computed for a channel outside of Spark, from which columns of CAPACITY are made."""
FORECAST = [
    *_key("window_start", "topic"),
    Figure("channel", "string"),
    *_key("figure"),
    Figure("unit", "string"),
    *_of("number", "", "actual", "forecast", "low_95", "low_80", "high_80", "high_95"),
    Figure("above_peak_percent", "number", "%"),
    *_of("number", "", "mae", "mase"),
    *_of("number", "%", "within_80_percent", "within_95_percent"),
    *_of("integer", "hours", "tested_hours", "history_hours"),
    *_of("string", "", "model", "season", "reason"),
    *COVERED,
]
ANOMALIES = [
    *_key("window_start", "topic"),
    Figure("channel", "string"),
    *_key("figure"),
    Figure("unit", "string"),
    *_of("number", "", "actual", "expected", "low", "high", "difference", "score"),
    Figure("state", "string"),
    Figure("weeks", "integer", "weeks"),
    Figure("reason", "string"),
    *COVERED,
]
DEAD = [
    *_key("topic", "channel"),
    Figure("died_count", "integer", "messages"),
    Figure("died_percent", "number", "%"),
    Figure("dropped_count", "integer", "messages"),
    Figure("dropped_percent", "number", "%"),
    *_of("integer", "messages", "dead_last", "in_count", "out_count"),
    *DEAD_EARLIER.figures("messages"),
    *COVERED,
]
LIVES = [
    *_key("topic", "channel"),
    Figure("client_id", "string"),
    *_of("integer", "messages", "message_count", "finished_count", "died_count", "dropped_count"),
    *_of("integer", "deliveries", "delivery_count", "requeue_count", "timeout_count"),
    *_of("number", "ms", "delivered_p50_ms", "delivered_max_ms", "finished_p50_ms", "finished_max_ms"),
    *_of("number", "ms", "handled_p50_ms", "handled_max_ms"),
    Figure("attempts_mean", "number", "deliveries"),
    Figure("attempts_max", "integer", "deliveries"),
    *COVERED,
]
COMPARE = [
    *_key("topic", "channel", "figure"),
    Figure("unit", "string"),
    *_of("number", "", "now", "before", "difference"),
    Figure("change_percent", "number", "%"),
    *_of("number", "messages", "message_count", "score"),
    Figure("state", "string"),
    *COVERED,
    *BEFORE,
]
MAINTENANCE = [
    Figure("hour", "timestamp", nullable=False),
    Figure("action", "string", nullable=False),
    *_of("integer", "files", "files_before", "files_after"),
    Figure("rows", "integer", "rows"),
    Figure("bytes", "integer", "bytes"),
]


def computed(figures: Sequence[Figure]) -> list[str]:
    """Return the names of the columns that a transform computes: all but those that compare and those of COVERED."""
    added = {
        name for of in (LATENCY_EARLIER, THROUGHPUT_EARLIER, DEAD_EARLIER) for name in (of.before, of.change_percent)
    }
    return [figure.name for figure in figures if figure not in COVERED and figure.name not in added]


def spark_table(
    figures: Sequence[Figure], covered: Mapping[str, datetime] | None = None, hours: str = ""
) -> StructType:
    """Return the table as a Spark schema.

    The metadata of each column are its unit, the times of ``covered``, and ``hours`` unless it is empty.
    """
    from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType, TimestampType

    from nsqanalytics.transforms.histograms import HISTOGRAM

    types: dict[str, DataType] = {
        "timestamp": TimestampType(),
        "histogram": StructType.fromDDL(HISTOGRAM.removeprefix("struct<").removesuffix(">")),
        "string": StringType(),
        "integer": LongType(),
        "number": DoubleType(),
    }
    about = {name: moment.astimezone(UTC).isoformat() for name, moment in (covered or {}).items()}
    if hours:
        about["hours"] = hours
    return StructType([StructField(f.name, types[f.type], f.nullable, {"unit": f.unit} | about) for f in figures])
