"""A job's result: a folder of Parquet that appears whole, and reading it page by page without Spark."""

from __future__ import annotations

import csv
import io
import json
import math
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from analytics.files import Folder
from analytics.tables import Figure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_SPARK_SCHEMA_KEY = b"org.apache.spark.sql.parquet.row.metadata"
_BATCH_ROWS = 8_192


def conforming(rows: DataFrame, schema: StructType) -> DataFrame:
    """``rows`` with exactly the schema's columns, types and units. Raises ValueError if a column is missing."""
    missing = set(schema.fieldNames()) - set(rows.columns)
    if missing:
        raise ValueError(f"the result lacks {', '.join(sorted(missing))}")
    return rows.select(
        *(rows[field.name].cast(field.dataType).alias(field.name, metadata=field.metadata) for field in schema)
    )


def replace_result(rows: DataFrame, output: str, order: list[str]) -> int:
    """Write ``rows`` to the folder ``output`` (a path or URI), in place of what was there; return how many.

    They are in the ``order`` given, descending by a name with a leading ``-``. They are written beside it and renamed,
    so a run that dies leaves the old result, or none, but never a part.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    written = Observation()
    # One file: a result is small beside its archive, and its order is then the order of its rows.
    ordered = rows.repartition(1).sortWithinPartitions(*(F.desc(n[1:]) if n[0] == "-" else F.asc(n) for n in order))
    with _aside(output) as aside:
        ordered.observe(written, F.count(F.lit(1)).alias("rows")).write.parquet(aside)
    return int(written.get["rows"])


def replace_table(rows: Sequence[tuple[Any, ...]], figures: Sequence[Figure], output: str) -> int:
    """As ``replace_result``, without Spark, for the few rows of a maintenance job."""
    types = {"timestamp": pa.timestamp("us", tz="UTC"), "string": pa.string(), "integer": pa.int64()}
    schema = pa.schema([pa.field(f.name, types[f.type], metadata={"unit": f.unit}) for f in figures])
    columns = list(zip(*rows, strict=True)) or [()] * len(figures)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    with _aside(output) as aside:
        folder = Folder(aside)
        folder.system.create_dir(folder.root, recursive=True)
        table = pa.Table.from_arrays(arrays, schema=schema)
        pq.write_table(table, f"{folder.root}/part-0.parquet", filesystem=folder.system)
    return len(rows)


@contextmanager
def _aside(output: str) -> Iterator[str]:
    """A place beside ``output`` to write to; it takes ``output``'s place if the body ends well, and is gone if not."""
    place = output.rstrip("/")
    aside = f"{place}.{secrets.token_hex(4)}.writing"
    try:
        yield aside
        Folder(place).replace(Folder(aside))
    finally:
        Folder(aside).remove()


@dataclass(frozen=True)
class ResultColumn:
    """``type`` is one of timestamp, string, integer, number; ``unit`` is empty where the figure has none."""

    name: str
    type: str
    unit: str


class Result:
    """A finished result on a local file system. Times read as unix milliseconds."""

    def __init__(self, folder: Path) -> None:
        """Raises FileNotFoundError if there is no result in ``folder``."""
        self._dataset = ds.dataset(folder, format="parquet")
        if not self._dataset.files:
            raise FileNotFoundError(f"there is no result in {folder}")
        self.columns = [
            ResultColumn(field.name, _type_name(field.type), _units(self._dataset.schema).get(field.name, ""))
            for field in self._dataset.schema
        ]

    @property
    def total(self) -> int:
        """How many rows there are."""
        return int(self._dataset.count_rows())

    def page(self, offset: int, limit: int) -> list[list[Any]]:
        """Rows ``offset`` to ``offset + limit``, each a list in the order of ``columns``."""
        rows: list[list[Any]] = []
        for batch in self._dataset.to_batches(batch_size=_BATCH_ROWS, use_threads=False):
            if offset >= batch.num_rows:
                offset -= batch.num_rows
                continue
            rows.extend(self._rows(batch.slice(offset, limit - len(rows))))
            offset = 0
            if len(rows) >= limit:
                break
        return rows

    def csv(self) -> Iterator[str]:
        """The whole result as CSV text, in pieces: a heading with units, times in ISO 8601, nulls empty."""
        heading = [column.name for column in self.columns]
        yield _csv_text([heading])
        for batch in self._dataset.to_batches(batch_size=_BATCH_ROWS, use_threads=False):
            yield _csv_text([self._csv_row(row) for row in self._rows(batch)])

    def _rows(self, batch: pa.RecordBatch) -> Iterator[list[Any]]:
        plain = []
        for array in batch.columns:
            if pa.types.is_timestamp(array.type):
                array = array.cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
            plain.append([None if isinstance(v, float) and math.isnan(v) else v for v in array.to_pylist()])
        return (list(row) for row in zip(*plain, strict=True))

    def _csv_row(self, row: list[Any]) -> list[Any]:
        return [
            datetime.fromtimestamp(value / 1000, UTC).isoformat() if column.type == "timestamp" and value else value
            for column, value in zip(self.columns, row, strict=True)
        ]


def _csv_text(rows: list[list[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue()


def _type_name(arrow: pa.DataType) -> str:
    if pa.types.is_timestamp(arrow):
        return "timestamp"
    if pa.types.is_integer(arrow):
        return "integer"
    if pa.types.is_floating(arrow):
        return "number"
    return "string"


def _units(schema: pa.Schema) -> dict[str, str]:
    """Column -> unit, from the schema that Spark stores beside Parquet's own."""
    declared = (schema.metadata or {}).get(_SPARK_SCHEMA_KEY)
    if declared is None:  # written without Spark
        return {field.name: (field.metadata or {}).get(b"unit", b"").decode() for field in schema}
    return {field["name"]: field["metadata"].get("unit", "") for field in json.loads(declared)["fields"]}
