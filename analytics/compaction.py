"""Many small files of an hour become one, and old ones go. No Spark: an hour is rewritten by Arrow.

The compacted file names, in its metadata, the files that it replaces. Both are there until a later run, at least GRACE
on, removes the small ones: a report that listed them before would otherwise lose them while it reads. A reading that is
there twice counts once (docs/analytics.md), so nothing is wrong meanwhile. A file is whole or absent throughout.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from analytics.archive import samples_path
from analytics.files import HOUR, File, Folder
from analytics.rollups import rollups_path
from analytics.schema import ARROW_SCHEMA

GRACE = timedelta(hours=2)
"""The platform's limit on a run: what was listed by one that began before is not needed any more after it."""
REPLACES_KEY = b"nsq.replaces"
_PREFIX = "compact-"
_SORTED = [(name, "ascending") for name in ("taken_at", "node", "topic", "channel", "boot_id")]
"""In the order of time, and with an index of its pages: what asks for the last readings of a window then reads a few
pages of histograms instead of all of them (analytics/transforms/activity.py)."""
LAYOUT = {"compression": "zstd", "row_group_size": 1 << 17, "write_page_index": True}
Done = tuple[datetime, str, int, int, int, int]
"""hour, action, files before, files after, rows, bytes."""


def compact(root: str, older_than: timedelta, now: datetime) -> Iterator[Done]:
    """Compact the hours that ended at least ``older_than`` ago; first sweep what earlier runs replaced."""
    folder = Folder(samples_path(root))
    for hour, files in folder.partitions().items():
        left = list(files)
        for file in files:
            if file.name.startswith(_PREFIX) and file.changed_at is not None and now - file.changed_at >= GRACE:
                replaced = _replaced(folder, file)
                gone = [other for other in left if other.name in replaced]
                folder.delete(gone)
                left = [other for other in left if other not in gone]
                if gone:
                    yield (hour, "swept", len(gone) + len(left), len(left), 0, sum(other.size for other in gone))
        covered: set[str] = set()
        for file in left:
            if file.name.startswith(_PREFIX):
                covered |= _replaced(folder, file)
        fresh = [file for file in left if file.name not in covered]
        if len(fresh) > 1 and hour + HOUR + older_than <= now:
            rows, size = _rewrite(folder, fresh)
            yield (hour, "compacted", len(fresh), 1, rows, size)


def retain(root: str, samples: timedelta, rollups: timedelta, now: datetime) -> Iterator[Done]:
    """Remove the samples of hours, and rollups of hours and days, that ended longer ago than they are kept."""
    for path, kept, length, action in (
        (samples_path(root), samples, HOUR, "samples removed"),
        (rollups_path(root, "hourly"), rollups, HOUR, "rollup removed"),
        (rollups_path(root, "daily"), rollups, timedelta(days=1), "rollup removed"),
    ):
        folder = Folder(path)
        for start, files in folder.partitions().items():
            if start + length + kept <= now:
                folder.delete(files)
                yield (start, action, len(files), 0, 0, sum(file.size for file in files))


def _rewrite(folder: Folder, files: list[File]) -> tuple[int, int]:
    tables = [_brought_up(pq.read_table(file.path, filesystem=folder.system, partitioning=None)) for file in files]
    table = pa.concat_tables(tables).sort_by(_SORTED)
    names = ",".join(file.name for file in files)
    table = table.replace_schema_metadata({**(ARROW_SCHEMA.metadata or {}), REPLACES_KEY: names.encode()})
    parent = files[0].path.rpartition("/")[0]
    name = f"{_PREFIX}{secrets.token_hex(8)}.parquet"
    aside = f"{folder.root}/_writing/{name}"
    folder.system.create_dir(aside.rpartition("/")[0], recursive=True)
    try:
        pq.write_table(table, aside, filesystem=folder.system, **LAYOUT)
        folder.move(aside, f"{parent}/{name}")
    except BaseException:
        if folder.system.get_file_info(aside).type != pafs.FileType.NotFound:
            folder.system.delete_file(aside)
        raise
    return table.num_rows, folder.system.get_file_info(f"{parent}/{name}").size


def _brought_up(table: pa.Table) -> pa.Table:
    """A file of an older version as of this one: columns that it lacks are null, finish_count is its histogram's."""
    columns = []
    for field in ARROW_SCHEMA:
        if field.name in table.schema.names:
            columns.append(table[field.name].cast(field.type))
        elif field.name == "finish_count":
            columns.append(_finished(table))
        else:
            columns.append(pa.chunked_array([pa.nulls(table.num_rows, field.type)]))
    return pa.Table.from_arrays(columns, schema=ARROW_SCHEMA)


def _finished(table: pa.Table) -> pa.ChunkedArray:
    counts = table["hist_counts"].combine_chunks()
    sums = [None if row is None else sum(row) for row in counts.to_pylist()]
    return pa.chunked_array([pc.add(pa.array(sums, pa.int64()), table["hist_zero_count"].combine_chunks())])


def _replaced(folder: Folder, file: File) -> set[str]:
    metadata = pq.read_metadata(file.path, filesystem=folder.system).metadata or {}
    return set(filter(None, metadata.get(REPLACES_KEY, b"").decode().split(",")))
