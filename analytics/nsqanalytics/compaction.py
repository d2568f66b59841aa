"""Compaction merges the small files of an hour into one, and retention removes old files. Both use Arrow, not Spark.

The metadata of a compacted file lists the files that it replaces (nsqanalytics/content.py). A run at least GRACE later
removes these, because running reports may still read them. Meanwhile the readings are stored twice, which changes no
figure, because a repeated reading counts once (docs/analytics.md). Every file is complete or absent at any time. A file
that cannot be read is set aside (nsqanalytics/damage.py), and its hour is compacted without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from nsqanalytics.archive import LEFTOVER_AGE_S, WRITING, samples_path
from nsqanalytics.content import REPLACES_KEY, compacted_name, current, is_compacted, replaced_by
from nsqanalytics.damage import Damaged, damaged_path, set_aside
from nsqanalytics.files import SHORTEST_FILE_BYTES, File, Folder
from nsqanalytics.life_events import EVENT_SCHEMA, lives_path
from nsqanalytics.rollups import rollups_path
from nsqanalytics.schema import ARROW_SCHEMA
from nsqanalytics.span import DAY, HOUR

GRACE = timedelta(hours=2)
"""Longest duration of a run in the platform. This long after a compaction, no run reads the replaced files any more."""


class _Kind(NamedTuple):
    """What compacted files contain, and how they are sorted.

    They have small row groups and a page index. A query for the last readings of a window then reads few of the
    histograms (nsqanalytics/counting/sample_files.py), and one for the events of a message a few pages of the hour.
    """

    schema: pa.Schema
    sorted_by: tuple[str, ...]
    action: str

    @property
    def needed(self) -> list[str]:
        """The columns that every file has."""
        return [field.name for field in self.schema if not field.nullable]


_SAMPLES = _Kind(ARROW_SCHEMA, ("taken_at", "node", "topic", "channel", "boot_id"), "compacted")
_LIVES = _Kind(EVENT_SCHEMA, ("topic", "message_id", "at", "node", "number"), "lives compacted")
LAYOUT: dict[str, Any] = {
    "compression": "zstd",
    "row_group_size": 1 << 14,
    "write_page_index": True,
    "write_page_checksum": True,
}
"""Of the histograms, which are most of a file, a report reads the row groups at the ends of its windows. Groups of this
size add 3 % to the bytes of an hour of 1,000 channels."""
Done = tuple[datetime, str, int, int, int, int]
"""Hour, action, files before, files after, rows, bytes."""


def compact(root: str, older_than: timedelta, now: datetime) -> Iterator[Done]:
    """Remove the files that earlier runs replaced, and compact the hours that ended at least ``older_than`` ago: of the
    samples, and of the events of sampled messages.

    Yields what was done.
    """
    yield from _compact(Folder(samples_path(root)), _SAMPLES, older_than, now)
    yield from _compact(Folder(lives_path(root)), _LIVES, older_than, now)


def _compact(folder: Folder, kind: _Kind, older_than: timedelta, now: datetime) -> Iterator[Done]:
    # No file is older than by this machine's clock, even if ``now`` is later.
    clock = min(now, datetime.now(UTC))
    sweep_unfinished(folder, clock)
    for hour, files in folder.partitions().items():
        # An hour's only file is opened only if it is too short for Parquet: runs do not open compacted files again.
        checked = files if len(files) > 1 else [file for file in files if file.size < SHORTEST_FILE_BYTES]
        for damaged in set_aside(folder, [(hour, list(checked))], thorough=False, columns=kind.needed):
            files.remove(damaged.file)
            yield set_aside_row(damaged)
        by, swept = _replaced_long_ago(folder, files, clock)
        if damaged_now := set_aside(folder, [(hour, by)] if swept else [], thorough=True, columns=kind.needed):
            yield from map(set_aside_row, damaged_now)
            continue  # the files that a damaged one replaced stay: a later run compacts them again
        folder.delete(swept)
        left = [file for file in files if file not in swept]
        if swept:
            yield (hour, "swept", len(files), len(left), 0, sum(file.size for file in swept))
        if hour + HOUR <= now - older_than:
            yield from _compacted(folder, kind, hour, current(folder, left))


def set_aside_row(damaged: Damaged) -> Done:
    """Return the row of the result for a file that was set aside."""
    return (damaged.hour, f"damaged, set aside: {damaged.file.name}: {damaged.reason}", 1, 0, 0, damaged.file.size)


def sweep_unfinished(folder: Folder, now: datetime) -> None:
    """Remove the files that killed writers left in ``_writing``: those older than LEFTOVER_AGE_S."""
    selector = pafs.FileSelector(f"{folder.root}/{WRITING}", allow_not_found=True)
    for info in folder.system.get_file_info(selector):
        if info.type == pafs.FileType.File and (now - info.mtime).total_seconds() > LEFTOVER_AGE_S:
            folder.delete([File(info.path, info.base_name, info.size, info.mtime)])


@dataclass(frozen=True)
class Expired:
    """The files of one hour or day that are to be removed, in one folder of the archive."""

    folder: Folder
    start: datetime
    action: str
    files: list[File]


def expired(root: str, samples: timedelta, rollups: timedelta, now: datetime) -> Iterator[Expired]:
    """Yield the samples, and the events of sampled messages, of hours that ended at least ``samples`` ago, and the
    rollups of days, with those of their hours, that ended at least ``rollups`` ago."""
    hourly, daily = rollups_path(root, "hourly"), rollups_path(root, "daily")
    for folder, kept, length, action in (
        (Folder(samples_path(root)), samples, HOUR, "samples removed"),
        (Folder(damaged_path(samples_path(root))), samples, HOUR, "damaged samples removed"),
        (Folder(lives_path(root)), samples, HOUR, "lives removed"),
        (Folder(damaged_path(lives_path(root))), samples, HOUR, "damaged lives removed"),
        (Folder(hourly), rollups, DAY, "rollup removed"),
        (Folder(damaged_path(hourly)), rollups, DAY, "damaged rollup removed"),
        (Folder(daily, daily=True), rollups, DAY, "rollup removed"),
        (Folder(damaged_path(daily), daily=True), rollups, DAY, "damaged rollup removed"),
    ):
        for start, files in folder.partitions().items():
            # The rollups of hours are removed together with the rollup of their day.
            began = start.replace(hour=0) if length == DAY else start
            if began + length <= now - kept:
                yield Expired(folder, start, action, files)


def retain(root: str, samples: timedelta, rollups: timedelta, now: datetime) -> Iterator[Done]:
    """Remove what is expired. Yields what was done."""
    for each in expired(root, samples, rollups, now):
        each.folder.delete(each.files)
        yield (each.start, each.action, len(each.files), 0, 0, sum(file.size for file in each.files))


def _replaced_long_ago(folder: Folder, files: list[File], now: datetime) -> tuple[list[File], list[File]]:
    """Return the compacted files older than GRACE, and the files that they replaced."""
    if len(files) == 1:
        return [], []
    by = [f for f in files if is_compacted(f) and f.changed_at is not None and now - f.changed_at >= GRACE]
    replaced = frozenset[str]().union(*(replaced_by(folder, file) for file in by))
    return by, [file for file in files if file.name in replaced]


def _compacted(folder: Folder, kind: _Kind, hour: datetime, files: list[File]) -> Iterator[Done]:
    """Merge the files if there are several. Files that cannot be read are set aside."""
    while len(files) > 1:
        try:
            rows, size = _rewrite(folder, kind, files)
        except (pa.ArrowException, OSError) as error:
            damaged = set_aside(folder, [(hour, files)], thorough=True, columns=kind.needed)
            if not damaged:
                raise type(error)(f"date={hour:%Y-%m-%d}/hour={hour:%H}: {error}") from error
            yield from map(set_aside_row, damaged)
            files = [file for file in files if file not in {each.file for each in damaged}]
            continue
        yield (hour, kind.action, len(files), 1, rows, size)
        return


def _rewrite(folder: Folder, kind: _Kind, files: list[File]) -> tuple[int, int]:
    checked: dict[str, Any] = {"partitioning": None, "page_checksum_verification": True}
    read = (pq.read_table(file.path, filesystem=folder.system, **checked) for file in files)
    tables = [_converted(each, kind.schema) for each in read]
    table = pa.concat_tables(tables).sort_by([(name, "ascending") for name in kind.sorted_by])
    # The names of all files whose rows it contains, also through another compacted file, which may be removed earlier.
    older = frozenset[str]().union(*(replaced_by(folder, file) for file in files if is_compacted(file)))
    names = ",".join(sorted(older.union(file.name for file in files)))
    table = table.replace_schema_metadata({**(kind.schema.metadata or {}), REPLACES_KEY: names.encode()})
    parent = files[0].path.rpartition("/")[0]
    name = compacted_name(files)
    aside = f"{folder.root}/{WRITING}/{name}"
    folder.system.create_dir(aside.rpartition("/")[0], recursive=True)
    try:
        pq.write_table(table, aside, filesystem=folder.system, **LAYOUT)
        folder.move(aside, f"{parent}/{name}")
    except BaseException:
        if folder.system.get_file_info(aside).type != pafs.FileType.NotFound:
            folder.system.delete_file(aside)
        raise
    return table.num_rows, folder.system.get_file_info(f"{parent}/{name}").size


def _converted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Convert a file of an older version: missing columns are null, finish_count is the total of the histogram."""
    columns = []
    for field in schema:
        if field.name in table.schema.names:
            columns.append(table[field.name].cast(field.type))
        elif field.name == "finish_count":
            columns.append(_finished(table))
        else:
            columns.append(pa.chunked_array([pa.nulls(table.num_rows, field.type)]))
    return pa.Table.from_arrays(columns, schema=schema)


def _finished(table: pa.Table) -> pa.ChunkedArray:
    counts = table["hist_counts"].combine_chunks()
    sums = [None if row is None else sum(row) for row in counts.to_pylist()]
    return pa.chunked_array([pc.add(pa.array(sums, pa.int64()), table["hist_zero_count"].combine_chunks())])
