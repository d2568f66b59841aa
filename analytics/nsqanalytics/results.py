"""Writes the result of a job as a folder of Parquet files, complete or absent, and reads pages of it without Spark."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import and_, or_
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector, FileType

from nsqanalytics.files import Folder
from nsqanalytics.parameters import BadParameter
from nsqanalytics.tables import Figure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_SPARK_SCHEMA_KEY = b"org.apache.spark.sql.parquet.row.metadata"
_BATCH_ROWS = 8_192
_EPOCH = datetime.fromtimestamp(0, UTC)


def conforming(rows: DataFrame, schema: StructType) -> DataFrame:
    """Return ``rows`` with exactly the schema's columns, types and units. Raises ValueError if a column is missing."""
    missing = set(schema.fieldNames()) - set(rows.columns)
    if missing:
        raise ValueError(f"the result lacks {', '.join(sorted(missing))}")
    return rows.select(
        *(rows[field.name].cast(field.dataType).alias(field.name, metadata=field.metadata) for field in schema)
    )


def replace_result(rows: DataFrame, output: str, order: list[str]) -> int:
    """Write ``rows`` to the folder ``output`` (a path or URI), replacing its contents; return the number of rows.

    Rows are sorted by ``order``; a leading ``-`` means descending. They are written to another folder, which is then
    renamed, so a killed run leaves the old result or none, but never a partial one.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    written = Observation()
    # One file, which keeps the order of the rows. Results are small.
    ordered = rows.repartition(1).sortWithinPartitions(*(F.desc(n[1:]) if n[0] == "-" else F.asc(n) for n in order))
    with _aside(output) as aside:
        ordered.observe(written, F.count(F.lit(1)).alias("rows")).write.parquet(aside)
    return int(written.get["rows"])


ARROW_TYPES: dict[str, pa.DataType] = {
    "timestamp": pa.timestamp("us", tz="UTC"),
    "string": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "histogram": pa.struct({"zero": pa.int64(), "offset": pa.int32(), "counts": pa.list_(pa.int64())}),
}
"""The types of columns, by the ``type`` of a Figure."""


def replace_table(
    rows: Sequence[tuple[Any, ...]],
    figures: Sequence[Figure],
    output: str,
    covered: Mapping[str, datetime] | None = None,
) -> int:
    """Like ``replace_result``, without Spark, for few rows. ``covered`` is as for :func:`tables.spark_table`."""
    about = {name: moment.astimezone(UTC).isoformat() for name, moment in (covered or {}).items()}
    schema = pa.schema([pa.field(f.name, ARROW_TYPES[f.type], metadata={"unit": f.unit} | about) for f in figures])
    columns = list(zip(*rows, strict=True)) or [()] * len(figures)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    with _aside(output) as aside:
        folder = Folder(aside)
        folder.system.create_dir(folder.root, recursive=True)
        table = pa.Table.from_arrays(arrays, schema=schema)
        pq.write_table(table, f"{folder.root}/part-0.parquet", filesystem=folder.system)
    return len(rows)


UNFINISHED_AGE = timedelta(hours=2)
"""A temporary result that has not been written to for this long was left by a killed run."""


@contextmanager
def _aside(output: str) -> Iterator[str]:
    """A temporary path beside ``output``. It replaces ``output`` if the body succeeds, and is removed otherwise.

    After ``output`` is replaced, the temporary paths of killed runs beside it are removed too.
    """
    place = output.rstrip("/")
    aside = f"{place}.{secrets.token_hex(4)}.writing"
    try:
        yield aside
        Folder(place).replace(Folder(aside))
    finally:
        Folder(aside).remove()
    _sweep_unfinished(Folder(place))


def _sweep_unfinished(place: Folder) -> None:
    """Remove the folders beside ``place`` that killed runs have left, UNFINISHED_AGE after their last write."""
    parent, _, name = place.root.rpartition("/")
    left = re.compile(re.escape(name) + r"\.[0-9a-f]{8}\.writing(\.old)?")
    for info in place.system.get_file_info(FileSelector(parent or ".", allow_not_found=True)):
        if info.type == FileType.Directory and left.fullmatch(info.base_name):
            inside = place.system.get_file_info(FileSelector(info.path, recursive=True, allow_not_found=True))
            written = [each.mtime for each in (info, *inside) if each.mtime is not None]
            if written and datetime.now(UTC) - max(written) > UNFINISHED_AGE:
                place.system.delete_dir(info.path)


@dataclass(frozen=True)
class ResultColumn:
    """``type`` is timestamp, string, integer or number; ``unit`` is empty if the figure has none."""

    name: str
    type: str
    unit: str


TIMES = ("window_start", "span_start", "hour")
"""The time columns; a result has at most one of them."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The rows of a result that match everything given.

    An empty ``channel`` selects the rows without one, which are a topic's own. ``since`` and ``until`` select rows
    whose window, span or hour begins in [since, until). Each word of ``words`` must occur in one of the row's texts, in
    upper or lower case.
    """

    topic: str | None = None
    channel: str | None = None
    figure: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    words: str = ""


EVERYTHING = Selection()


class Result:
    """A finished result on a local file system. Times read as Unix milliseconds.

    ``columns`` are those of single values. A latency result also has ``histogram``, which nsqanalytics/heat.py reads.
    """

    def __init__(self, folder: Path) -> None:
        """Raises FileNotFoundError if there is no result in ``folder``."""
        import pyarrow.dataset as ds  # it imports pandas where that is installed, which takes half a second

        self.dataset = ds.dataset(folder, format="parquet")
        if not self.dataset.files:
            raise FileNotFoundError(f"there is no result in {folder}")
        declared = _declared(self.dataset.schema)
        self.columns = [
            ResultColumn(field.name, _type_name(field.type), declared[field.name].get("unit", ""))
            for field in self.dataset.schema
            if not pa.types.is_nested(field.type)
        ]

    @property
    def names(self) -> list[str]:
        """The names of ``columns``."""
        return [column.name for column in self.columns]

    @property
    def total(self) -> int:
        """Number of rows."""
        return int(self.dataset.count_rows())

    @property
    def covered(self) -> dict[str, int]:
        """The periods that the result covers, in Unix milliseconds; the ends are exclusive.

        ``covered_since`` and ``covered_until`` are the period, ``before_since`` and ``before_until`` the period it is
        compared with. Empty for a maintenance job.
        """
        declared = _declared(self.dataset.schema)[self.dataset.schema.names[0]]
        return {
            name: (datetime.fromisoformat(value) - _EPOCH) // timedelta(milliseconds=1)
            for name, value in declared.items()
            if name.endswith(("_since", "_until"))
        }

    @property
    def hours(self) -> str:
        """The hours of the week that are compared, as text; empty for all hours of both periods."""
        return _declared(self.dataset.schema)[self.dataset.schema.names[0]].get("hours", "")

    @property
    def time(self) -> str | None:
        """The name of the time column; None if there is none."""
        return next((name for name in TIMES if name in self.dataset.schema.names), None)

    def count(self, selection: Selection = EVERYTHING) -> int:
        """Number of rows that match. Raises BadParameter, as :meth:`matching`."""
        return int(self.dataset.count_rows(filter=self.matching(selection)))

    def matching(self, selection: Selection) -> pc.Expression | None:
        """Return the selection as a filter; None for all rows.

        Raises BadParameter for a topic, channel, figure or time of a result that has no such column.
        """
        conditions = []
        if selection.topic is not None:
            conditions.append(pc.field(self.named("topic", "topic")) == selection.topic)
        if selection.channel is not None:
            channel = pc.field(self.named("channel", "channel"))
            conditions.append(channel == selection.channel if selection.channel else channel.is_null())
        if selection.figure is not None:
            conditions.append(pc.field(self.named("figure", "figure")) == selection.figure)
        for name, bound in (("since", selection.since), ("until", selection.until)):
            if bound is not None:
                if self.time is None:
                    raise BadParameter("the rows of this result have no time", name)
                limit = pa.scalar(bound, self.dataset.schema.field(self.time).type)
                conditions.append(pc.field(self.time) >= limit if name == "since" else pc.field(self.time) < limit)
        texts = [pc.field(column.name) for column in self.columns if column.type == "string"]
        for word in selection.words.split():
            found = [pc.match_substring(text, word, ignore_case=True) for text in texts]
            conditions.append(reduce(or_, found, pc.scalar(False)))
        return reduce(and_, conditions) if conditions else None

    def named(self, parameter: str, column: str) -> str:
        """Return ``column`` if the result has it. Otherwise raise BadParameter for ``parameter``."""
        if column not in self.names:
            raise BadParameter(f"there is no column {column!r}; there are {', '.join(self.names)}", parameter)
        return column

    def page(
        self,
        offset: int,
        limit: int,
        selection: Selection = EVERYTHING,
        *,
        sort: str = "",
        columns: Sequence[str] = (),
    ) -> list[list[Any]]:
        """Return rows ``offset`` to ``offset + limit`` of those that match, each a list in the order of ``columns``.

        ``sort`` is a column's name, with a leading ``-`` for descending; empty keeps the order of the result. Rows
        without a value come last in both directions, and equal rows keep the result's order. Texts sort naturally:
        ``node-2`` before ``node-10``. Raises BadParameter for a column that the result does not have.
        """
        wanted = [self.named("columns", name) for name in columns] or self.names
        if not sort:
            return self._in_order(offset, limit, self.matching(selection), wanted)
        rows = self._sorted(self.matching(selection), self.named("sort", sort.removeprefix("-")), sort[0] == "-")
        page = self.dataset.take(rows.slice(offset, limit), columns=wanted)
        return [row for batch in page.to_batches() for row in _plain(batch)]

    def _in_order(self, offset: int, limit: int, matching: pc.Expression | None, columns: list[str]) -> list[list[Any]]:
        rows: list[list[Any]] = []
        read = self.dataset.to_batches(
            columns=columns, filter=matching, batch_size=_BATCH_ROWS, use_threads=False, batch_readahead=1
        )
        for batch in read:
            if offset >= batch.num_rows:
                offset -= batch.num_rows
                continue
            rows.extend(_plain(batch.slice(offset, limit - len(rows))))
            offset = 0
            if len(rows) >= limit:
                break
        return rows

    def _sorted(self, matching: pc.Expression | None, column: str, descending: bool) -> pa.Array:
        """Return the numbers of the rows that match, sorted. Reads only the columns needed for this."""
        kept = pc.scalar(True) if matching is None else matching
        read = self.dataset.to_table(columns={"key": pc.field(column), "kept": kept})
        numbers = pc.indices_nonzero(read["kept"])
        key = _natural_ranks(read["key"]) if pa.types.is_string(read["key"].type) else read["key"]
        by = [("key", "descending" if descending else "ascending")]
        return numbers.take(pc.sort_indices(pa.table({"key": key.take(numbers)}), sort_keys=by))

    def csv(self) -> Iterator[str]:
        """Yield the whole result as CSV text, in pieces: a heading with units, times in ISO 8601, nulls empty."""
        yield _csv_text([[_heading(column) for column in self.columns]])
        for batch in self.dataset.to_batches(columns=self.names, batch_size=_BATCH_ROWS, use_threads=False):
            yield _csv_text([self._csv_row(row) for row in _plain(batch)])

    def _csv_row(self, row: list[Any]) -> list[Any]:
        return [
            datetime.fromtimestamp(value / 1000, UTC).isoformat() if column.type == "timestamp" and value else value
            for column, value in zip(self.columns, row, strict=True)
        ]


def _plain(batch: pa.RecordBatch) -> Iterator[list[Any]]:
    """The rows of a batch as JSON values."""
    plain = []
    for array in batch.columns:
        if pa.types.is_timestamp(array.type):
            array = array.cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
        plain.append([None if isinstance(v, float) and math.isnan(v) else v for v in array.to_pylist()])
    return (list(row) for row in zip(*plain, strict=True))


def _natural_ranks(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return each text's rank in natural order. A result has few different texts, so sorting them in Python is fast."""
    encoded = texts.dictionary_encode()
    if not encoded.num_chunks:
        return pa.chunked_array([], pa.int64())
    known = encoded.chunk(0).dictionary.to_pylist()  # all chunks have the same one
    ranks = [0] * len(known)
    for rank, at in enumerate(sorted(range(len(known)), key=lambda at: (natural_key(known[at]), known[at]))):
        ranks[at] = rank
    return pa.chunked_array([pa.array(ranks, pa.int64()).take(chunk.indices) for chunk in encoded.chunks])


def natural_key(text: str) -> str:
    """Return a sort key for natural order without case: ``node-2`` before ``node-10``."""
    return _DIGITS.sub(lambda digits: digits[0].zfill(12), text.lower())


_DIGITS = re.compile(r"[0-9]+")


def _heading(column: ResultColumn) -> str:
    """Return a heading such as ``in_rate (messages/s)``; without the unit if the name ends in it (``p99_ms``)."""
    is_said = column.name.endswith((f"_{column.unit}", "_percent")) or not column.unit
    return column.name if is_said else f"{column.name} ({column.unit})"


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


def _declared(schema: pa.Schema) -> dict[str, dict[str, str]]:
    """Column -> its metadata, from the schema that Spark stores in addition to Parquet's own."""
    declared = (schema.metadata or {}).get(_SPARK_SCHEMA_KEY)
    if declared is None:  # written without Spark
        return {
            field.name: {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
            for field in schema
        }
    return {field["name"]: field["metadata"] for field in json.loads(declared)["fields"]}
