"""Sorted streams of Arrow batches, divided into tables that contain whole groups of rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

BYTES_AT_ONCE = 32_000_000
"""A table has about as many bytes, and at least one group."""


def whole_groups(
    batches: Iterable[pa.RecordBatch], key: Sequence[str], enough: int | None = None
) -> Iterator[pa.Table]:
    """Yield tables of at least ``enough`` bytes, by default BYTES_AT_ONCE, but for the last.

    Rows that are equal in ``key``, which are consecutive in the stream, are in the same table.
    """
    buffered: list[pa.RecordBatch] = []
    enough = BYTES_AT_ONCE if enough is None else enough
    size, needed = 0, enough
    for batch in batches:
        buffered.append(batch)
        size += batch.nbytes
        if size < needed:
            continue
        table = pa.Table.from_batches(buffered)
        complete = _without_last(table, key)
        if complete:
            yield table.slice(0, complete)
            buffered, needed = table.slice(complete).to_batches(), enough
            size = sum(part.nbytes for part in buffered)
        else:  # one group: looking again after every batch would take a time that is quadratic in its size
            needed = 2 * size
    if buffered and sum(part.num_rows for part in buffered):
        yield pa.Table.from_batches(buffered)


def _without_last(table: pa.Table, key: Sequence[str]) -> int:
    """Return the number of rows before the last group."""
    is_last = None
    for name in key:
        same = pc.equal(table[name], table[name][-1])
        is_last = same if is_last is None else pc.and_(is_last, same)
    return int(pc.index(is_last, True).as_py())
