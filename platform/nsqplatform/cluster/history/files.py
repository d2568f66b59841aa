"""The files of figures over time: Parquet with one row per series.

``<root>/10s/2026-11-22T03.parquet``   an hour in steps of 10 s
``<root>/1m/2026-11-22.parquet``       a day in steps of a minute
``<root>/1h/2026-11.parquet``          a month in steps of an hour, all in UTC

``series`` is ``scope:name``, such as ``channel:orders/billing``; each metric is a list with a float32 for each step of
the file, NaN where it was unknown. Rows are sorted by ``series``, so that the statistics of the row groups identify the
one group that contains a series: a reader reads only that group, and of it only the requested metrics. A file is
written under a temporary name, synced and renamed, so that readers see a complete file or none. Every page has a
checksum. So has the footer, because some damaged footers make pyarrow abort the process.

    pages | b"NSQH" | CRC-32 of the footer u32 | footer | its length u32 | b"PAR1"      little-endian

Parquet readers locate the footer from the end of the file, so they ignore the bytes between it and the pages.
"""

from __future__ import annotations

import os
import secrets
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from nsqplatform.cluster.history.grains import OVER_TIME, Grain, Values
from nsqwire.units import WholeSeconds

METRICS = tuple(sorted(OVER_TIME))
GROUP_ROWS, MAX_GROUPS = 32, 64
"""Minimum number of rows of a row group, and maximum number of groups of a file. The number of groups is limited
because the footer is read as a whole."""


CHECK, CHECKED = struct.Struct("<4sI"), b"NSQH"
END = struct.Struct("<I4s")
WRITTEN_KEY = "nsq.history.written_at"
"""Metadata: the Unix second at which the file was written."""


class Rows(NamedTuple):
    """Series in order, and for each metric an array of one row per series."""

    series: Sequence[str]
    values: Mapping[str, Values]


def series_of(scope: str, name: str) -> str:
    return f"{scope}:{name}"


DAMAGE = (OSError, pa.ArrowException, struct.error, LookupError, ValueError, TypeError, AttributeError, MemoryError)


class DamagedFile(Exception):
    """A file, or the requested part of it, cannot be read."""


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    """Report all errors that damage causes as DamagedFile; pyarrow documents no common class of them."""
    try:
        yield
    except FileNotFoundError:
        raise
    except DAMAGE as error:
        raise DamagedFile(f"{path}: {error}") from error


def _check_footer(path: Path) -> None:
    """Raises ValueError unless the checksum of the footer matches."""
    with open(path, "rb") as file:
        check, footer, _ = _split(file)
    if check != CHECK.pack(CHECKED, crc32(footer)):
        raise ValueError("the footer is damaged")


def _split(file: BinaryIO) -> tuple[bytes, bytes, bytes]:
    """The checksum before the footer, the footer, and the end of the file after it.

    Raises struct.error, OSError or ValueError if the length is wrong.
    """
    size = file.seek(-END.size, os.SEEK_END)
    end = file.read()
    length, _ = END.unpack(end)
    if length + CHECK.size > size:
        raise ValueError("the length of the footer is wrong")
    file.seek(size - length - CHECK.size)
    found = file.read(CHECK.size + length)
    return found[: CHECK.size], found[CHECK.size :], end


class HistoryFile:
    """One file of a grain, open for reading.

    Raises FileNotFoundError if there is none, and DamagedFile, also from its methods: a damaged row group does not
    prevent reading the others.
    """

    def __init__(self, path: Path, steps: int) -> None:
        self.path = path
        self._steps = steps
        with _damage(path):
            _check_footer(path)
            self._file = pq.ParquetFile(path, page_checksum_verification=True)

    def __enter__(self) -> HistoryFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def written_at(self) -> WholeSeconds:
        """Unix seconds."""
        with _damage(self.path):
            return int(self._file.metadata.metadata[WRITTEN_KEY.encode()])

    @property
    def series(self) -> list[str]:
        with _damage(self.path):
            names: list[str] = self._file.read(columns=["series"])["series"].to_pylist()
        return names

    def read(self, series: str, metrics: Sequence[str]) -> dict[str, Values]:
        """The values of one series; metrics and series that the file lacks are left out."""
        rows = self._rows(series, series, metrics)
        return {metric: values[0] for metric, values in rows.values.items()} if rows.series else {}

    def rows(self, first: str, last: str) -> Rows:
        """All metrics of the series from ``first`` to ``last``."""
        return self._rows(first, last, METRICS)

    def _rows(self, first: str, last: str, metrics: Sequence[str]) -> Rows:
        with _damage(self.path):
            begin, end = self._groups(first, last)
            there = [metric for metric in metrics if metric in self._file.schema_arrow.names]
            if begin >= end:
                return Rows([], {})
            table = self._file.read_row_groups([*range(begin, end)], columns=["series", *there])
            names: list[str] = table["series"].to_pylist()
            places = [place for place, name in enumerate(names) if first <= name <= last]
            if not places:
                return Rows([], {})
            low, high = places[0], places[-1] + 1
            return Rows(names[low:high], {metric: self._matrix(table[metric])[low:high] for metric in there})

    def _matrix(self, column: pa.ChunkedArray) -> Values:
        # Not to_numpy, which imports pandas: that takes longer than the rest of a first request.
        values = pa.concat_arrays([chunk.flatten() for chunk in column.chunks])
        if values.null_count or values.type != pa.float32():
            raise ValueError("a value is missing, or no float32")
        flat = np.frombuffer(values.buffers()[1], np.float32, len(values), values.offset * values.type.byte_width)
        return flat.reshape(-1, self._steps)

    def _groups(self, first: str, last: str) -> tuple[int, int]:
        """The row groups that may contain series from ``first`` to ``last``, as a half-open range."""
        metadata = self._file.metadata
        begin, high = 0, metadata.num_row_groups
        while begin < high:
            middle = (begin + high) // 2
            if metadata.row_group(middle).column(0).statistics.max < first:
                begin = middle + 1
            else:
                high = middle
        end = begin
        while end < metadata.num_row_groups and metadata.row_group(end).column(0).statistics.min <= last:
            end += 1
        return begin, end


def group_size(series: int) -> int:
    """The number of rows of a row group in a file with this many series."""
    return max(GROUP_ROWS, -(-series // MAX_GROUPS))


def write(path: Path, steps: int, groups: Iterable[Rows], *, at: WholeSeconds) -> None:
    """Write a file of row groups in order of their series, at Unix second ``at``. Raises OSError."""
    schema = pa.schema([("series", pa.string()), *((metric, pa.list_(pa.float32(), steps)) for metric in METRICS)])
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"_{secrets.token_hex(8)}.parquet")
    try:
        with open(temporary, "x+b") as file:
            with pq.ParquetWriter(file, schema, compression="zstd", write_page_checksum=True) as writer:
                writer.add_key_value_metadata({WRITTEN_KEY: str(at)})
                for rows in groups:
                    writer.write_table(_table(rows, steps, schema), row_group_size=len(rows.series))
            _add_check(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


def _add_check(file: BinaryIO) -> None:
    """Insert the checksum before the footer."""
    file.flush()
    _, footer, end = _split(file)
    file.seek(-len(footer) - len(end), os.SEEK_END)
    file.write(CHECK.pack(CHECKED, crc32(footer)) + footer + end)


def _table(rows: Rows, steps: int, schema: pa.Schema) -> pa.Table:
    unknown = np.full((len(rows.series), steps), np.nan, np.float32)
    columns = [
        pa.FixedSizeListArray.from_arrays(pa.array(rows.values.get(metric, unknown).reshape(-1)), steps)
        for metric in METRICS
    ]
    return pa.Table.from_arrays([pa.array(rows.series, pa.string()), *columns], schema=schema)


def path_of(root: Path, grain: Grain, start: int) -> Path:
    return root / grain.file_name(start)
