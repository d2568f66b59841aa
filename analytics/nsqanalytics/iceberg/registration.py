"""Brings the Iceberg tables of an archive up to its files: what is missing is added, what is gone is removed.

Each run compares the files that a table has with those of the archive. It does not matter which runs were missed, or
were killed. The files of up to _PARTITIONS hours or days, with about _FILES new files, are added and removed in one
commit: a reader sees an hour before or after its compaction, and never its rows twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
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
_FILES = 1_000
_ATTEMPTS = 4


@dataclass(frozen=True)
class Described:
    """A file that the table lacks, its URI and its footer."""

    start: datetime
    file: File
    uri: str
    footer: pq.FileMetaData

    @cached_property
    def columns(self) -> pa.Schema:
        """Its columns, for the table's schema."""
        return columns_of(self.footer.schema.to_arrow_schema())

    def refused(self, error: Exception) -> Done:
        """Return the row for a file that cannot be registered."""
        return _refused(self.start, self.file, error)


class TableRegistration:
    """The registration of an archive's files in one table, in a namespace of a catalog.

    Files at the paths ``leaving`` are not registered, as if they were gone. ``done`` gets a row for each commit and for
    each file that cannot be registered.
    """

    def __init__(
        self, catalog: Catalog, namespace: str, table: ArchiveTable, root: str, leaving: Collection[str]
    ) -> None:
        self.done: list[Done] = []
        self._catalog = catalog
        self._namespace = namespace
        self._table = table
        self._root = root
        self._leaving = leaving
        self._folder = table.folder(root)
        self._scheme = uri_of(root).partition("://")[0]

    def run(self, now: datetime) -> TableState | None:
        """Bring the table up to date, and return its state; None if there is no table yet.

        Another run may do the same at the same time: one of two commits fails, and that run starts again with what is
        left.
        """
        from pyiceberg.exceptions import CommitFailedException

        for attempt in range(_ATTEMPTS):
            refused: list[Done] = []
            try:
                found = self._update(now, refused)
                if found is None:
                    return None
                join_manifests(found)
                expire(found, datetime.now(UTC) - KEPT)
                return _state_of(found, self._name)
            except CommitFailedException:
                if attempt == _ATTEMPTS - 1:
                    raise
                refused.clear()  # the next attempt finds these files again
            finally:
                self.done += refused
        return None

    @property
    def _name(self) -> str:
        return f"{self._namespace}.{self._table.name}"

    def _update(self, now: datetime, refused: list[Done]) -> Table | None:
        """Add what is missing and remove what is gone. Return the table; None if there is none and no file for it.

        ``refused`` gets a row for each file that cannot be registered.
        """
        wanted = {
            f"{self._scheme}://{file.path}": (start, file)
            for start, file in registered_files(self._table, self._root, now)
            if file.path not in self._leaving
        }
        found = self._found(is_to_be_replaced=bool(wanted))
        if found is None and not wanted:
            return None
        if found is not None:
            self._table.complete(found)
        present = {} if found is None else _files_of(found)
        new = [each for uri, each in wanted.items() if uri not in present]
        gone = [entry for uri, entry in present.items() if uri not in wanted]
        for some, entries in _portions(self._table, new, gone):
            described = [each for start, file in some if (each := self._described(start, file, refused)) is not None]
            if found is None:
                found = self._created(described)
            if found is not None:
                self._exchange(found, described, entries, refused)
        return found

    def _found(self, *, is_to_be_replaced: bool) -> Table | None:
        """Return the table; None if there is none.

        A table whose metadata are gone from this archive is then removed from the catalog if ``is_to_be_replaced``: the
        archive has all that was in it but its snapshots. Otherwise, this raises FileNotFoundError.
        """
        try:
            return self._table.load(self._catalog, self._namespace, self._root)
        except FileNotFoundError as error:
            if not is_to_be_replaced or self._table.location(self._root).partition("://")[2] not in str(error):
                raise
            self._table.forget(self._catalog, self._namespace)
            return None

    def _described(self, start: datetime, file: File, refused: list[Done]) -> Described | None:
        """Read a file's footer. Return None, and add a row to ``refused``, if it cannot be read; None alone if another
        run has removed it."""
        try:
            footer = pq.read_metadata(file.path, filesystem=self._folder.system)
            if has_int96(footer):
                file = rewrite(self._folder, file)
                footer = pq.read_metadata(file.path, filesystem=self._folder.system)
        except FileNotFoundError:
            return None
        except (pa.ArrowException, OSError) as error:
            refused.append(_refused(start, file, error))
            return None
        if self._table.time not in footer.schema.to_arrow_schema().names:
            refused.append(_refused(start, file, ValueError(f"it has no column {self._table.time}")))
            return None
        return Described(start, file, f"{self._scheme}://{file.path}", footer)

    def _created(self, files: list[Described]) -> Table | None:
        """Create the table, with the columns of the file that has most; None without any."""
        columns = (
            declared_columns() if self._table is STATS else max((each.columns for each in files), key=len, default=None)
        )
        if columns is None:
            return None
        return self._table.create(self._catalog, self._namespace, self._root, columns)

    def _exchange(self, found: Table, new: list[Described], gone: list[DataFile], refused: list[Done]) -> None:
        """Add the files that fit the table, and remove others, in one commit."""
        contradicting = _extended(found, new, [declared_columns()] if self._table is STATS else [])
        refused += [
            each.refused(contradicting[str(each.columns)]) for each in new if str(each.columns) in contradicting
        ]
        fitting = [each for each in new if str(each.columns) not in contradicting]
        if fitting or gone:
            _commit(found, self._table, fitting, gone)
            self.done.append(_done(self._name, self._table, fitting, gone))


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
            registration = TableRegistration(catalog, namespace, table, root, leaving)
            try:
                state = registration.run(now)
            finally:
                done += registration.done
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


def _extended(table: Table, files: Iterable[Described], declared: list[pa.Schema]) -> dict[str, Exception]:
    """Add the columns to the table that it lacks. Return those that contradict it, or that Iceberg cannot have,
    as text, with the reason."""
    from pyiceberg.exceptions import ValidationError
    from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException

    contradicting: dict[str, Exception] = {}
    for text, columns in {str(each): each for each in (*declared, *(file.columns for file in files))}.items():
        try:
            with table.update_schema() as update:
                update.union_by_name(columns)
        except (ValueError, ValidationError, UnsupportedPyArrowTypeException) as error:
            contradicting[text] = error
    return contradicting


def _portions(
    table: ArchiveTable, new: list[tuple[datetime, File]], gone: list[DataFile]
) -> Iterator[tuple[list[tuple[datetime, File]], list[DataFile]]]:
    """Divide the changes by hours or days, so that what is added and removed in one of them is in one commit."""
    changes: dict[int, tuple[list[tuple[datetime, File]], list[DataFile]]] = {}
    for start, file in new:
        changes.setdefault(table.partition_value(start), ([], []))[0].append((start, file))
    for entry in gone:
        changes.setdefault(entry.partition[0], ([], []))[1].append(entry)
    added: list[tuple[datetime, File]] = []
    removed: list[DataFile] = []
    partitions = 0
    for partition in sorted(changes):
        added += changes[partition][0]
        removed += changes[partition][1]
        partitions += 1
        if partitions == _PARTITIONS or len(added) >= _FILES:
            yield added, removed
            added, removed, partitions = [], [], 0
    if added or removed:
        yield added, removed


def _commit(table: Table, of: ArchiveTable, new: list[Described], gone: list[DataFile]) -> None:
    """Add and remove the files in one snapshot: an append if there is nothing to remove, else an overwrite."""
    with table.transaction() as transaction:
        update, metadata = transaction.update_snapshot(), transaction.table_metadata
        with update.overwrite() if gone else update.fast_append() as snapshot:
            for entry in gone:
                snapshot.delete_data_file(entry)
            for each in new:
                partition = of.partition_value(each.start)
                snapshot.append_data_file(data_file(each.footer, metadata, each.uri, each.file.size, partition))


def _done(name: str, table: ArchiveTable, new: list[Described], gone: list[DataFile]) -> Done:
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
