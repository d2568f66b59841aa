"""Writes the archive. If the writer is killed, each Parquet file is complete or absent.

``<root>/samples/date=2026-11-20/hour=17/<first sample's minute and second>-<random>.parquet``, hours in UTC. A file
is written in ``samples/_writing/``, which Spark skips as it does every name with a leading ``_``, synced, and moved to
its place by rename. A later writer removes the files that a killed writer left in ``_writing``. The events of sampled
messages are written in the same way (nsqanalytics/life_events.py).
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nsqanalytics.files import Folder
from nsqanalytics.locations import is_local, local_path
from nsqanalytics.schema import Sample, as_table
from nsqwire.units import Seconds

WRITING = "_writing"
LEFTOVER_AGE_S = 15 * 60
"""No write takes this long, so an older file in ``_writing`` was left by a killed writer."""
_LAYOUT: dict[str, Any] = {"compression": "zstd", "write_page_checksum": True}


def samples_path(root: str) -> str:
    """Return the folder of an archive's samples; ``root`` may be any path or URI that Spark reads."""
    return f"{root.rstrip('/')}/samples"


class HourlyWriter:
    """Appends rows to a folder of an archive, at a path or a URI, by the hour of one of their columns. Several writers
    may share one archive."""

    def __init__(self, folder: str, time_column: str) -> None:
        """Remove the files that killed writers left. Raises OSError if the archive cannot be written to."""
        self._time = time_column
        self._remote = None if is_local(folder) else Folder(folder)
        if self._remote is not None:
            return  # an object appears when it is complete, so a temporary file is not needed
        self._folder = local_path(folder)
        self._writing = self._folder / WRITING
        self._writing.mkdir(parents=True, exist_ok=True)
        self._sweep(time.time())

    def write_table(self, rows: pa.Table) -> None:
        """Add rows, in one file per UTC hour that occurs.

        On return the files are on disk. Raises OSError if writing fails; the file of each hour is then complete or
        absent.
        """
        hours = pc.floor_temporal(rows[self._time], unit="hour")
        for hour in sorted(pc.unique(hours).to_pylist()):
            table = rows.filter(pc.equal(hours, hour))
            first: datetime = pc.min(table[self._time]).as_py()
            name = f"{first:%M%S}-{secrets.token_hex(8)}.parquet"
            if self._remote is not None:
                self._write_remote(self._remote, table, hour, name)
                continue
            aside = self._writing / name
            try:
                with open(aside, "xb") as file:
                    pq.write_table(table, file, **_LAYOUT)
                    file.flush()
                    os.fsync(file.fileno())
                folder = self._folder / f"date={hour:%Y-%m-%d}" / f"hour={hour:%H}"
                self._make_folder(folder)
                os.replace(aside, folder / name)
            except BaseException:
                aside.unlink(missing_ok=True)
                raise
            _sync_directory(folder)

    def _write_remote(self, remote: Folder, table: pa.Table, hour: datetime, name: str) -> None:
        """Write a temporary file and rename it, as on a local disk, because HDFS shows files while they are written."""
        place = f"{remote.root}/date={hour:%Y-%m-%d}/hour={hour:%H}/{name}"
        aside = place if remote.system.type_name == "s3" else f"{remote.root}/{WRITING}/{name}"
        remote.system.create_dir(aside.rpartition("/")[0], recursive=True)
        pq.write_table(table, aside, filesystem=remote.system, **_LAYOUT)
        if aside != place:
            remote.move(aside, place)

    def _make_folder(self, folder: Path) -> None:
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            # Otherwise a crash of the machine could lose the folder's name, and with it a synced file.
            _sync_directory(folder.parent)
            _sync_directory(self._folder)

    def _sweep(self, now: Seconds) -> None:
        for leftover in self._writing.iterdir():
            try:
                if now - leftover.stat().st_mtime > LEFTOVER_AGE_S:
                    leftover.unlink()
            except FileNotFoundError:  # another writer has removed it
                continue


class ArchiveWriter(HourlyWriter):
    """Appends samples to an archive."""

    def __init__(self, root: str) -> None:
        """As HourlyWriter."""
        super().__init__(samples_path(root), "taken_at")

    def write(self, samples: Sequence[Sample]) -> None:
        """Add the samples, as ``write_table``. Without samples, no file is written.

        Raises ValueError for a sample that does not fit the schema, before anything is written.
        """
        if samples:
            self.write_table(as_table(samples))


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
