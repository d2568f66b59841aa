"""Reads hours of the archive by Arrow: all figures, and the histograms of selected rows, which are most of a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from nsqanalytics.counting.columns import NULL, TIME, Integers, as_column, integers
from nsqanalytics.counting.histograms import Histograms
from nsqanalytics.counting.readings import COUNTERS, SERIES
from nsqanalytics.counting.sampling import hour_of
from nsqanalytics.files import file_system

TEXT = pa.dictionary(pa.int32(), pa.string())
FIGURES = pa.schema(
    [
        *((name, TEXT) for name in SERIES),
        *(("taken_at", TIME), ("started_at", TIME), ("uptime_ns", pa.int64()), ("depth", pa.int64())),
        *(("client_count", pa.int64()), ("in_flight_count", pa.int64()), ("deferred_count", pa.int64())),
        *(("oldest_unfinished_age_ns", pa.int64()), ("dead_count", pa.int64())),
        *((name, pa.int64()) for name in COUNTERS if name != "done_count"),
        *(("hist_zero_count", pa.int64()), ("hist_offset", pa.int32())),
    ]
)
"""What is read of each SAMPLE row. ``channel`` is empty for a topic's own row."""
_WITH_FILE = FIGURES.append(pa.field("file", TEXT))
_COUNTS = pa.list_(pa.int64())


class UnreadableFile(Exception):
    """A file of the archive cannot be read; the message has its URI and the reason."""


@dataclass(frozen=True)
class SampleFiles:
    """``hours``: the start of each hour -> its files as (path, URI): the path in Arrow's file system of the folder
    ``root``, and the URI by which errors name the file."""

    root: str
    hours: Mapping[datetime, Sequence[tuple[str, str]]]

    def read(self, start: datetime) -> HourOfSamples:
        """Return the figures of an hour. Raises UnreadableFile."""
        tables = []
        first_rows = [0]
        for path, uri in self.hours[start]:
            with self.opened(path, uri) as file:
                stored = {*file.schema_arrow.names}
                there = [name for name in FIGURES.names if name in stored]
                tables.append(_in_schema(file.read(columns=there, use_threads=False), uri))
            first_rows.append(first_rows[-1] + tables[-1].num_rows)
        rows = pa.concat_tables(tables).unify_dictionaries() if tables else _WITH_FILE.empty_table()
        is_in_own_hour = hour_of(integers(rows["taken_at"])) == int(start.timestamp()) * 1_000_000
        rows = rows.append_column("is_in_own_hour", pa.array(is_in_own_hour))
        rows = rows.append_column("row", pa.array(np.arange(rows.num_rows)))
        return HourOfSamples(self, start, rows, np.array(first_rows))

    @contextmanager
    def opened(self, path: str, uri: str) -> Iterator[pq.ParquetFile]:
        """Open a file. Raises UnreadableFile if opening it or the body fails."""
        try:
            with self._file(path) as file:
                yield file
        except pa.ArrowMemoryError:
            raise
        except (pa.ArrowException, OSError) as error:
            raise UnreadableFile(f"a file cannot be read: {uri}: {' '.join(str(error).split())}") from None

    def _file(self, path: str) -> pq.ParquetFile:
        try:
            return self._with_texts(path, SERIES)
        except KeyError:  # a column that the file lacks
            there = pq.read_schema(path, filesystem=self._system).names
            return self._with_texts(path, [name for name in SERIES if name in there])

    def _with_texts(self, path: str, names: Sequence[str]) -> pq.ParquetFile:
        return pq.ParquetFile(
            path,
            filesystem=self._system,
            read_dictionary=list(names),
            page_checksum_verification=True,
            # Each column of a row group would be a request to an object store.
            pre_buffer=not isinstance(self._system, pafs.LocalFileSystem),
        )

    @cached_property
    def _system(self) -> pafs.FileSystem:
        return file_system(self.root)[0]


@dataclass(frozen=True)
class HourOfSamples:
    """Readings of an hour. ``rows`` has FIGURES, ``is_in_own_hour``, ``file`` (a URI) and ``row``, which is the number
    of the reading within all files of the hour.

    ``first_rows``: the number of each file's first row, then the number of all rows.
    """

    files: SampleFiles
    start: datetime
    rows: pa.Table
    first_rows: Integers

    def histograms(self, rows: Integers) -> tuple[pa.ChunkedArray, pa.ChunkedArray, pa.ChunkedArray]:
        """Return ``hist_zero_count``, ``hist_offset`` and ``hist_counts`` of some of ``rows``, given by their
        ascending positions. Raises UnreadableFile."""
        some = self.rows.select(["hist_zero_count", "hist_offset", "row"]).take(pa.array(rows))
        return some["hist_zero_count"], some["hist_offset"], self._counts(integers(some["row"]))

    def with_finish_count(self) -> HourOfSamples:
        """Return the hour with ``finish_count`` computed where a reading has a histogram without it, as in old files.

        Raises UnreadableFile.
        """
        finish_count, offset = integers(self.rows["finish_count"]).copy(), integers(self.rows["hist_offset"])
        lacking = np.flatnonzero((finish_count == NULL) & (offset != NULL))
        if not len(lacking):
            return self
        finish_count[lacking] = Histograms.of(*self.histograms(lacking)).count()
        at = self.rows.schema.get_field_index("finish_count")
        rows = self.rows.set_column(at, "finish_count", as_column(finish_count, pa.int64()))
        return replace(self, rows=rows)

    def _counts(self, numbers: Integers) -> pa.ChunkedArray:
        found = []
        of_file = np.searchsorted(self.first_rows, numbers, side="right") - 1
        for number, (path, uri) in enumerate(self.files.hours[self.start]):
            wanted = numbers[of_file == number] - self.first_rows[number]
            if len(wanted):
                with self.files.opened(path, uri) as file:
                    found += _counts(file, wanted).chunks
        return pa.chunked_array(found, _COUNTS)


def _counts(file: pq.ParquetFile, rows: Integers) -> pa.ChunkedArray:
    """Read only the row groups in which the rows are."""
    if "hist_counts" not in file.schema_arrow.names:
        return pa.chunked_array([pa.nulls(len(rows), _COUNTS)])
    metadata = file.metadata
    sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    first_rows = np.concatenate([[0], np.cumsum(sizes)])
    of_group = np.searchsorted(first_rows, rows, side="right") - 1
    found = []
    for group in np.unique(of_group).tolist():
        column = file.read_row_group(group, columns=["hist_counts"], use_threads=False)["hist_counts"]
        if not (pa.types.is_null(column.type) or pa.types.is_integer(column.type.value_type)):
            raise pa.ArrowInvalid(f"hist_counts is of the type {column.type}, not {_COUNTS}")
        found += column.take(pa.array(rows[of_group == group] - first_rows[group])).cast(_COUNTS).chunks
    return pa.chunked_array(found, _COUNTS)


def _in_schema(table: pa.Table, uri: str) -> pa.Table:
    """Return the rows in FIGURES and ``file``; columns that the file lacks are null. Raises ArrowInvalid for a column
    of another type."""
    columns = []
    for field in FIGURES:
        column = table[field.name] if field.name in table.schema.names else pa.nulls(table.num_rows, field.type)
        if not _is_alike(column.type, field.type):
            raise pa.ArrowInvalid(f"{field.name} is of the type {column.type}, not {field.type}")
        if field.type == TEXT and column.type != TEXT:
            column = column.cast(pa.string())  # fails for bytes that are no text
        if field.name == "channel":
            column = pc.fill_null(column.cast(pa.string()), "")
        columns.append(column.dictionary_encode() if pa.types.is_string(column.type) else column.cast(field.type))
    zeros = pa.array(np.zeros(table.num_rows, np.int32))
    file = pa.DictionaryArray.from_arrays(zeros, pa.array([uri]))
    return pa.Table.from_arrays([*columns, file], schema=_WITH_FILE)


def _is_alike(found: pa.DataType, declared: pa.DataType) -> bool:
    if pa.types.is_null(found):
        return True
    if declared == TEXT:
        stored = found.value_type if pa.types.is_dictionary(found) else found
        return bool(pa.types.is_string(stored) or pa.types.is_large_string(stored) or pa.types.is_binary(stored))
    if declared == TIME:
        return bool(pa.types.is_timestamp(found))
    return bool(pa.types.is_integer(found))
