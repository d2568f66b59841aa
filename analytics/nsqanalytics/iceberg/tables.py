"""The tables of an archive: which files each has, how it is partitioned, and its columns."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from nsqanalytics.archive import samples_path
from nsqanalytics.content import current
from nsqanalytics.files import File, Folder
from nsqanalytics.locations import is_local, local_path
from nsqanalytics.rollups import Rollups, rollups_path
from nsqanalytics.schema import ARROW_SCHEMA, COLUMNS
from nsqanalytics.span import DAY, HOUR

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

PROPERTIES = {
    # Otherwise each commit would leave a file with the metadata of the whole table.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "2",
    # After a conflict, what is missing is found anew: another run may have registered the same files.
    "commit.retry.num-retries": "0",
}
NAMES = "schema.name-mapping.default"
_EPOCH = datetime.fromtimestamp(0, UTC)


class OtherArchive(Exception):
    """The table belongs to another archive; the message names both."""


@dataclass(frozen=True)
class ArchiveTable:
    """One table: its name, the column and the length of its partitions, which are the folders of the archive."""

    name: str
    dataset: Literal["samples", "rollups/hourly", "rollups/daily"]
    time: str
    partition: Literal["hour", "day"]

    @property
    def length(self) -> timedelta:
        """Length of a partition."""
        return DAY if self.partition == "day" else HOUR

    def partition_value(self, start: datetime) -> int:
        """Return what Iceberg calls the partition: hours or days since 1970."""
        return (start - _EPOCH) // self.length

    def folder(self, root: str) -> Folder:
        """Return the folder of its files in the archive ``root``."""
        if self.dataset == "samples":
            return Folder(samples_path(root))
        return Folder(rollups_path(root, self.dataset.removeprefix("rollups/")), daily=self.partition == "day")

    def location(self, root: str) -> str:
        """Return the URI of the folder with the table's own metadata."""
        return f"{uri_of(root)}/iceberg/{self.name}"

    def create(self, catalog: Catalog, namespace: str, root: str, columns: pa.Schema) -> Table:
        """Create the table. Raises CommitFailedException if another run has created it meanwhile, and may have added
        files."""
        from pyiceberg.exceptions import (
            CommitFailedException,
            NamespaceAlreadyExistsError,
            TableAlreadyExistsError,
        )

        try:
            catalog.create_namespace(namespace)
        except NamespaceAlreadyExistsError:
            pass
        try:
            table = catalog.create_table(
                (namespace, self.name),
                columns,
                location=self.location(root),
                properties={**PROPERTIES, "format-version": "2"},
            )
        except TableAlreadyExistsError as error:
            raise CommitFailedException(str(error)) from error
        self.complete(table)
        return table

    def complete(self, table: Table) -> None:
        """Give the table its partitions and the names of its columns in files, unless it has them.

        A run that is killed after it has created the table leaves it without.
        """
        if NAMES in table.properties:
            return
        with table.transaction() as transaction:
            with transaction.update_spec() as spec:
                spec.add_field(self.time, self.partition, self.partition)
            # The files have no field ids: columns are found by name.
            mapping = transaction.table_metadata.schema().name_mapping.model_dump_json()
            transaction.set_properties({NAMES: mapping})

    def load(self, catalog: Catalog, namespace: str, root: str) -> Table | None:
        """Return the table, or None if there is none. Raises OtherArchive."""
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        try:
            table = catalog.load_table((namespace, self.name))
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        if table.location().rstrip("/") != self.location(root):
            raise OtherArchive(
                f"the table {namespace}.{self.name} belongs to another archive: its location is {table.location()},"
                f" not {self.location(root)}"
            )
        return table

    def forget(self, catalog: Catalog, namespace: str) -> None:
        """Remove the table from the catalog, if it is there. No file is removed."""
        from pyiceberg.exceptions import NoSuchTableError

        with suppress(NoSuchTableError):
            catalog.drop_table((namespace, self.name))


STATS = ArchiveTable("stats", "samples", "taken_at", "hour")
HOURLY = ArchiveTable("rollups_hourly", "rollups/hourly", "window_start", "hour")
DAILY = ArchiveTable("rollups_daily", "rollups/daily", "window_start", "day")
TABLES = (STATS, HOURLY, DAILY)


def uri_of(root: str) -> str:
    """Return the archive's URI, as it is in the tables: ``file://…``, or that of an object store."""
    if is_local(root):
        return f"file://{local_path(root).absolute()}".rstrip("/")
    return root.replace("s3a://", "s3://", 1).rstrip("/")


def registered_files(table: ArchiveTable, root: str, now: datetime) -> Iterable[tuple[datetime, File]]:
    """Yield the files that the table should have, with the start of their hour or day.

    Only hours and days that have ended: until then, a collector adds a file every ten seconds. Of the samples, files
    that compaction has replaced are left out. Of the rollups of an hour or day, the valid one is taken; while there is
    none, as after a late file, the newest.
    """
    if table is STATS:
        folder = table.folder(root)
        for start, files in folder.partitions().items():
            if start + table.length <= now:
                yield from ((start, file) for file in current(folder, files))
        return
    rollups = Rollups(root)
    for start, files in table.folder(root).partitions().items():
        if start + table.length > now:
            continue
        if table is HOURLY:
            hour = rollups.hours.get(start)
            valid = None if hour is None else hour.rollup
        else:
            valid = rollups.day(start)[1]
        yield start, valid or max(files, key=lambda file: (file.changed_at or _EPOCH, file.name))


def declared_columns() -> pa.Schema:
    """Return the columns of the samples with their meanings; each may be empty, because older files lack some."""
    return pa.schema(
        [
            field.with_nullable(True).with_metadata(
                {"doc": _doc(COLUMNS[field.name].meaning, COLUMNS[field.name].unit)}
            )
            for field in ARROW_SCHEMA
        ]
    )


def _doc(meaning: str, unit: str) -> str:
    return f"{meaning} ({unit})" if unit else meaning


def columns_of(schema: pa.Schema) -> pa.Schema:
    """Return the columns of a file for an Iceberg schema: each may be empty, and times are UTC."""
    return pa.schema([field.with_nullable(True).remove_metadata() for field in schema])
