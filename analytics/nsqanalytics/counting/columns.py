"""Arrow columns as NumPy arrays and back: whole numbers and times as 64-bit integers, in which NULL stands for null."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

NULL = -(2**63)
"""Lower than any figure, so that a maximum ignores it."""
TIME = pa.timestamp("us", tz="UTC")


def integers(column: pa.ChunkedArray | pa.Array) -> Integers:
    """Return whole numbers, or times in microseconds since the epoch; NULL for null."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(TIME)
    numbers = column.cast(pa.int64())
    return np.asarray(pc.fill_null(numbers, NULL).to_numpy())


def floats(column: pa.ChunkedArray | pa.Array) -> Floats:
    """Return numbers; NaN for null."""
    return np.asarray(column.to_numpy(), dtype=np.float64)


def flags(column: pa.ChunkedArray | pa.Array) -> Flags:
    """Return truth values; false for null."""
    return np.asarray(pc.fill_null(column, False).to_numpy(zero_copy_only=False))


def as_column(values: NDArray[Any] | pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Return an Arrow column of the type; null for NULL and NaN."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values.cast(kind)
    if values.dtype == np.int64:
        numbers = pa.array(values, pa.int64(), mask=values == NULL)
        return numbers.cast(kind)
    return pa.array(values, kind, from_pandas=True)


def as_table(columns: Mapping[str, Any], schema: pa.Schema) -> pa.Table:
    """Return the schema's columns of ``columns`` as a table."""
    return pa.table([as_column(columns[field.name], field.type) for field in schema], schema=schema)


def codes(table: pa.Table, names: Sequence[str]) -> Integers:
    """Return a number for each row: equal if the rows are equal in these text columns, ascending in their order."""
    found = np.zeros(table.num_rows, np.int64)
    for name in names:
        encoded = table[name].combine_chunks().dictionary_encode()
        texts = encoded.dictionary
        rank = np.empty(len(texts), np.int64)
        rank[pc.sort_indices(texts).to_numpy()] = np.arange(len(texts))
        _, found = np.unique(found * max(1, len(texts)) + rank[encoded.indices.to_numpy()], return_inverse=True)
    return found
