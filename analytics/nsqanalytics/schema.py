"""The archive's row, declared once: the dataclass that the collector creates, its Arrow schema and its Spark schema.

A row is one reading of one node's counters for one topic (``channel`` is null) or one channel. The columns with whole
numbers that nsqd reports are those of :mod:`nsqwire.figures`.

New versions only add columns; a column that a file lacks reads as null. SCHEMA_VERSION is stored in each file's
metadata under VERSION_KEY. It is the version that the latest column was added in: a figure's ``archived_since``.
docs/analytics.md explains the columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, make_dataclass
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import pyarrow as pa

from nsqwire.figures import Figure, archived

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_FINISH_COUNT_SINCE = 2
SCHEMA_VERSION = max(_FINISH_COUNT_SINCE, *(figure.archived_since for figure in archived()))
VERSION_KEY = b"nsq.sample.version"


class Column(NamedTuple):
    """The storage type of a field, and the meaning of its figure."""

    type: pa.DataType
    unit: str
    meaning: str


class Percentile(NamedTuple):
    """A percentile of a Go node.

    Percentiles cannot be merged, so reports count such readings in ``samples_left_out``.
    """

    quantile: float
    value_ns: int


_TIME = pa.timestamp("us", tz="UTC")
_PERCENTILES = pa.list_(pa.struct([pa.field("quantile", pa.float64()), pa.field("value_ns", pa.int64())]))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Origin:
    """The source and the time of a reading."""

    taken_at: Annotated[datetime, Column(_TIME, "UTC", "when the collector read it")]
    node: Annotated[str, Column(pa.string(), "", "broadcast_address:http_port")]
    boot_id: Annotated[str, Column(pa.string(), "", "changes when the counters restart (Go nodes: start_time)")]
    started_at: Annotated[datetime | None, Column(_TIME, "UTC", "start of the process, by the node's clock")] = None
    uptime_ns: Annotated[
        int | None, Column(pa.int64(), "ns", "the process's age at this reading, by its own clock; null for Go nodes")
    ] = None
    topic: Annotated[str, Column(pa.string(), "", "topic name")]
    channel: Annotated[str | None, Column(pa.string(), "", "channel name; null in a topic's own row")] = None


def _figure_field(figure: Figure) -> tuple[str, Any, Any]:
    """Return name, type and default of a figure's field. A column that older files lack may be null."""
    column = Column(pa.int64(), figure.unit, f"{figure.kind.title}: {figure.meaning}")
    if figure.archived_since == 1:
        return figure.name, Annotated[int, column], field(default=0)
    return figure.name, Annotated[int | None, column], field(default=None)


if TYPE_CHECKING:
    _Figures = _Origin
else:  # a field for each of nsqwire.figures.archived()
    _Figures = make_dataclass(
        "_Figures", map(_figure_field, archived()), bases=(_Origin,), frozen=True, kw_only=True, slots=True
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample(_Figures):
    """One row of the archive. Times are aware datetimes; a field that may be null has the default None.

    Counters start at 0 with the process, which ``boot_id`` identifies. If a channel is deleted and created again, its
    counters start at 0 within the same boot.
    """

    finish_count: Annotated[
        int | None, Column(pa.int64(), "messages", "counter: finished, the total of the histogram; null without one")
    ] = None

    oldest_unfinished_age_ns: Annotated[
        int | None, Column(pa.int64(), "ns", "gauge: age of the oldest unfinished message")
    ] = None
    hist_zero_count: Annotated[
        int | None, Column(pa.int64(), "messages", "counter: finished within 1,000 ns of being published")
    ] = None
    hist_offset: Annotated[int | None, Column(pa.int32(), "", "bucket index of hist_counts[0], scale 5")] = None
    hist_counts: Annotated[
        Sequence[int] | None, Column(pa.list_(pa.int64()), "messages", "counter: finished, by latency bucket")
    ] = None
    percentiles: Annotated[
        Sequence[Percentile] | None, Column(_PERCENTILES, "", "a Go node's own latency percentiles")
    ] = None


def _declared() -> dict[str, tuple[Column, bool]]:
    """Return field name -> its Column, and whether it may be null."""
    declared = {}
    for name, hint in get_type_hints(Sample, include_extras=True).items():
        if get_origin(hint) is Annotated:
            value_type, column = get_args(hint)
            declared[name] = (column, type(None) in get_args(value_type))
    return declared


COLUMNS: dict[str, Column] = {name: column for name, (column, _) in _declared().items()}

ARROW_SCHEMA = pa.schema(
    [
        pa.field(name, column.type, nullable=nullable, metadata={"unit": column.unit, "meaning": column.meaning})
        for name, (column, nullable) in _declared().items()
    ],
    metadata={VERSION_KEY: str(SCHEMA_VERSION).encode()},
)


def as_table(samples: Sequence[Sample]) -> pa.Table:
    """Return the samples as an Arrow table of ARROW_SCHEMA.

    Raises ValueError for a value that does not fit its column, with the column's name, and for a time without a zone.
    """
    for sample in samples:
        for moment in (sample.taken_at, sample.started_at):
            if moment is not None and moment.tzinfo is None:
                raise ValueError(f"the sample of {sample.node} has a time without a zone: {moment.isoformat()}")
    arrays = []
    for each in ARROW_SCHEMA:
        values = [getattr(sample, each.name) for sample in samples]
        if each.name == "percentiles":
            values = [row if row is None else [{"quantile": q, "value_ns": ns} for q, ns in row] for row in values]
        try:
            array = pa.array(values, each.type)
        except (pa.ArrowException, TypeError, OverflowError) as error:
            raise ValueError(f"column {each.name}: {error}") from error
        if array.null_count and not each.nullable:
            raise ValueError(f"column {each.name}: null is not allowed")
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=ARROW_SCHEMA)


@cache
def spark_schema() -> StructType:
    """Return ARROW_SCHEMA with the partition columns as a Spark schema.

    Spark is imported only here, because the collector does not need it.
    """
    from pyspark.sql.types import DateType, IntegerType, StructField, StructType

    return StructType(
        [*spark_fields(ARROW_SCHEMA), StructField("date", DateType()), StructField("hour", IntegerType())]
    )


def spark_fields(schema: pa.Schema) -> StructType:
    """Return an Arrow schema as a Spark schema, all of whose columns may be null."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(field.name, _spark_type(field.type), nullable=True) for field in schema])


def _spark_type(arrow: pa.DataType) -> DataType:
    from pyspark.sql import types as spark

    if pa.types.is_list(arrow):
        return spark.ArrayType(_spark_type(arrow.value_type))
    if pa.types.is_struct(arrow):
        return spark.StructType([spark.StructField(field.name, _spark_type(field.type)) for field in arrow])
    plain: dict[pa.DataType, DataType] = {
        pa.string(): spark.StringType(),
        pa.int32(): spark.IntegerType(),
        pa.int64(): spark.LongType(),
        pa.float64(): spark.DoubleType(),
        pa.bool_(): spark.BooleanType(),
        pa.binary(): spark.BinaryType(),
        _TIME: spark.TimestampType(),
    }
    return plain[arrow]
