"""Brings the Iceberg tables of an archive up to its files: what is missing is added, what is gone is removed.

Each run compares the files that a table has with those of the archive. It does not matter which runs were missed, or
were killed. The files of up to _PARTITIONS hours or days are added and removed in one commit: a reader sees an hour
before or after its compaction, and never its rows twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from nsqanalytics.compaction import Done
from nsqanalytics.files import File
from nsqanalytics.iceberg.catalog import CatalogUnusable, opened, shown, unusable
from nsqanalytics.iceberg.data_file import data_file
from nsqanalytics.iceberg.int96 import has_int96, rewrite
from nsqanalytics.iceberg.snapshots import KEPT, expire, join_manifests
from nsqanalytics.iceberg.state import State, TableState, read_state, write_state
from nsqanalytics.iceberg.tables import (
    STATS,
    TABLES,
    ArchiveTable,
    columns_of,
    declared_columns,
    registered_files,
    uri_of,
)

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

NOT_REGISTERED = "not registered: "
_PARTITIONS = 100
_ATTEMPTS = 4


@dataclass(frozen=True)
class _New:
    """A file that the table lacks, and its footer."""

    start: datetime
    file: File
    footer: pq.FileMetaData


def register(
    root: str, catalog_uri: str, namespace: str, now: datetime, leaving: Collection[str] = frozenset()
) -> list[Done]:
    """Bring the tables up to the files of the archive, without those at the paths ``leaving``. Return what was done.

    ``iceberg/state.json`` then says what is registered, or why nothing could be. A catalog that cannot be used is one
    row, NOT_REGISTERED with the reason; the next run does what this one could not. Raises OSError if the archive cannot
    be written to.
    """
    done: list[Done] = []
    states: list[TableState] = []
    error = ""
    try:
        catalog = opened(catalog_uri, f"{uri_of(root)}/iceberg")
        for table in TABLES:
            state = _registered(catalog, table, root, namespace, now, leaving, done)
            states += [] if state is None else [state]
    except Exception as failure:
        reason = failure if isinstance(failure, CatalogUnusable) else unusable(catalog_uri, failure)
        error = str(reason)
        done.append((now, f"{NOT_REGISTERED}{error}", 0, 0, 0, 0))
    before = read_state(root)
    if error:
        known = before.tables if before else ()
        states = [*states, *(each for each in known if each.name not in {state.name for state in states})]
    write_state(root, State(shown(catalog_uri), datetime.now(UTC), error, tuple(states)))
    return done


def _registered(
    catalog: Catalog,
    table: ArchiveTable,
    root: str,
    namespace: str,
    now: datetime,
    leaving: Collection[str],
    done: list[Done],
) -> TableState | None:
    """Bring one table up to date, and return its state; None if there is no table yet.

    Another run may do the same at the same time: one of two commits fails, and that run starts again with what is left.
    """
    from pyiceberg.exceptions import CommitFailedException

    for attempt in range(_ATTEMPTS):
        refused: list[Done] = []
        try:
            found = _update(catalog, table, root, namespace, now, leaving, done, refused)
            if found is None:
                return None
            join_manifests(found)
            expire(found, datetime.now(UTC) - KEPT)
            return _state_of(found, f"{namespace}.{table.name}")
        except CommitFailedException:
            if attempt == _ATTEMPTS - 1:
                raise
        finally:
            done += refused
    return None


def _update(
    catalog: Catalog,
    table: ArchiveTable,
    root: str,
    namespace: str,
    now: datetime,
    leaving: Collection[str],
    done: list[Done],
    refused: list[Done],
) -> Table | None:
    """Add what is missing and remove what is gone. Return the table; None if there is none and no file for it.

    ``done`` gets a row for each commit, ``refused`` one for each file that cannot be registered.
    """
    folder = table.folder(root)
    scheme = uri_of(root).partition("://")[0]
    wanted = {
        f"{scheme}://{file.path}": (start, file)
        for start, file in registered_files(table, root, now)
        if file.path not in leaving
    }
    found = table.load(catalog, namespace, root)
    if found is None and not wanted:
        return None
    present = {} if found is None else _files_of(found)
    gone = [entry for uri, entry in present.items() if uri not in wanted]
    new: list[_New] = []
    columns: dict[str, pa.Schema] = {}
    for uri, (start, file) in wanted.items():
        if uri in present:
            continue
        try:
            footer = pq.read_metadata(file.path, filesystem=folder.system)
            if has_int96(footer):
                file = rewrite(folder, file)
                footer = pq.read_metadata(file.path, filesystem=folder.system)
        except FileNotFoundError:  # another run has removed it
            continue
        except (pa.ArrowException, OSError) as error:
            refused.append(_refused(start, file, error))
            continue
        new.append(_New(start, file, footer))
        schema = columns_of(footer.schema.to_arrow_schema())
        columns[str(schema)] = schema
    if found is None:
        first = declared_columns() if table is STATS else max(columns.values(), key=len, default=None)
        if first is None:
            return None
        found = table.create(catalog, namespace, root, first)
    contradicting = _extended(found, [declared_columns()] if table is STATS else [], columns)
    for files, entries in _portions(table, new, gone):
        fitting = []
        for each in files:
            reason = contradicting.get(str(columns_of(each.footer.schema.to_arrow_schema())))
            if reason is None:
                fitting.append(each)
            else:
                refused.append(_refused(each.start, each.file, reason))
        if fitting or entries:
            _commit(found, table, scheme, fitting, entries)
            done.append(_done(f"{namespace}.{table.name}", table, fitting, entries))
    return found


def _files_of(table: Table) -> dict[str, DataFile]:
    """Return the files of the current snapshot by URI."""
    snapshot = table.current_snapshot()
    if snapshot is None:
        return {}
    manifests = snapshot.manifests(table.io)
    entries = (
        entry for manifest in manifests for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
    )
    return {entry.data_file.file_path: entry.data_file for entry in entries}


def _extended(table: Table, declared: list[pa.Schema], columns: dict[str, pa.Schema]) -> dict[str, Exception]:
    """Add the columns to the table that it lacks. Return the schemas that contradict it, with the reason."""
    from pyiceberg.exceptions import ValidationError

    contradicting: dict[str, Exception] = {}
    for schema in (*declared, *columns.values()):
        try:
            with table.update_schema() as update:
                update.union_by_name(schema)
        except (ValueError, ValidationError) as error:
            contradicting[str(schema)] = error
    return contradicting


def _portions(
    table: ArchiveTable, new: list[_New], gone: list[DataFile]
) -> Iterator[tuple[list[_New], list[DataFile]]]:
    """Divide the changes by hours or days, so that what is added and removed in one of them is in one commit."""
    changes: dict[int, tuple[list[_New], list[DataFile]]] = {}
    for each in new:
        changes.setdefault(table.partition_value(each.start), ([], []))[0].append(each)
    for entry in gone:
        changes.setdefault(entry.partition[0], ([], []))[1].append(entry)
    starts = sorted(changes)
    for at in range(0, len(starts), _PARTITIONS):
        some = [changes[start] for start in starts[at : at + _PARTITIONS]]
        yield [each for added, _ in some for each in added], [entry for _, removed in some for entry in removed]


def _commit(table: Table, of: ArchiveTable, scheme: str, new: list[_New], gone: list[DataFile]) -> None:
    """Add and remove the files in one snapshot: an append if there is nothing to remove, else an overwrite."""
    with table.transaction() as transaction:
        update = transaction.update_snapshot()
        with update.overwrite() if gone else update.fast_append() as snapshot:
            for entry in gone:
                snapshot.delete_data_file(entry)
            for each in new:
                uri, partition = f"{scheme}://{each.file.path}", of.partition_value(each.start)
                size = each.file.size
                snapshot.append_data_file(data_file(each.footer, transaction.table_metadata, uri, size, partition))


def _done(name: str, table: ArchiveTable, new: list[_New], gone: list[DataFile]) -> Done:
    starts = [each.start for each in new]
    starts += [datetime.fromtimestamp(0, UTC) + table.length * entry.partition[0] for entry in gone]
    rows, size = sum(each.footer.num_rows for each in new), sum(each.file.size for each in new)
    return (min(starts), f"registered in {name}", len(gone), len(new), rows, size)


def _refused(start: datetime, file: File, error: Exception) -> Done:
    reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
    return (start, f"{NOT_REGISTERED}{file.name}: {reason}", 1, 0, 0, file.size)


def _state_of(table: Table, name: str) -> TableState:
    snapshot = table.current_snapshot()
    summary = {} if snapshot is None or snapshot.summary is None else snapshot.summary.additional_properties
    return TableState(
        name,
        int(summary.get("total-data-files", 0)),
        int(summary.get("total-records", 0)),
        None if snapshot is None else snapshot.snapshot_id,
        None if snapshot is None else datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC),
    )
