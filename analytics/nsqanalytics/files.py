"""The files of an archive or of its rollups, at a local path or at a URI that both Arrow and Spark support."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow.fs as pafs

from nsqanalytics.locations import is_local, local_path
from nsqanalytics.span import DAY, HOUR

SHORTEST_FILE_BYTES = 12
"""Length of the shortest Parquet file: the magic number at both ends, and the footer's length."""
FEW_BYTES = 2_000_000
"""Content of some 20,000 to 40,000 readings. Spark reads as much in one task."""
FEW_ROWS = 200_000
"""Readings of as many rows need some 200 MB of a task's memory. Those of idle channels have less than a byte of content
each, so a small file may have millions."""
_FRAME_BYTES = 10_500
"""Size of a file of samples without its rows: mostly the description of its columns."""
_PARTITION = re.compile(r"date=(\d{4}-\d\d-\d\d)/(?:hour=([01]\d|2[0-3])/)?", re.ASCII)


@dataclass(frozen=True, order=True)
class File:
    """One file. ``path`` is in the format of its file system; ``name`` is its last part."""

    path: str
    name: str
    size: int
    changed_at: datetime | None

    @property
    def content_bytes(self) -> int:
        """Approximate size of the rows alone, which are a small part of a file that a collector wrote."""
        return max(0, self.size - _FRAME_BYTES)


def file_system(root: str) -> tuple[pafs.FileSystem, str]:
    """Return Arrow's file system for a path or URI, and the path in it.

    ``s3a://`` is Spark's name for what Arrow calls ``s3://``; credentials come from the environment, as with Spark.
    """
    if is_local(root):
        return pafs.LocalFileSystem(), str(local_path(root))
    system, path = pafs.FileSystem.from_uri(root.replace("s3a://", "s3://", 1))
    return system, path


class Folder:
    """A folder partitioned as ``date=YYYY-MM-DD/hour=HH/``, or, if ``daily``, as ``date=YYYY-MM-DD/``.

    Methods raise OSError if the file system does.
    """

    def __init__(self, root: str, *, daily: bool = False) -> None:
        self._daily = daily
        self.system, self.root = file_system(root)

    def partitions(self) -> dict[datetime, list[File]]:
        """Return start of hour (or day) -> its Parquet files, sorted by time and name; empty if there is no folder.

        Files in other folders, and those whose name begins with ``_`` or ``.``, are ignored.
        """
        found: dict[datetime, list[File]] = {}
        selector = pafs.FileSelector(self.root, recursive=True, allow_not_found=True)
        for info in self.system.get_file_info(selector):
            start = self._start(info.path.removeprefix(self.root).lstrip("/"))
            is_ours = info.base_name.endswith(".parquet") and not info.base_name.startswith(("_", "."))
            if info.type == pafs.FileType.File and is_ours and start is not None:
                found.setdefault(start, []).append(File(info.path, info.base_name, info.size, info.mtime))
        return {start: sorted(found[start]) for start in sorted(found)}

    def delete(self, files: Iterable[File]) -> None:
        """Delete files. Those that another run has removed are ignored."""
        for file in files:
            try:
                self.system.delete_file(file.path)
            except FileNotFoundError:  # another run has removed it
                continue

    def move(self, source: str, target: str) -> None:
        """Rename a file. An object store copies the object instead; the copy appears when it is complete."""
        self.system.create_dir(target.rpartition("/")[0], recursive=True)
        self.system.move(source, target)

    def replace(self, aside: Folder) -> None:
        """Replace this folder with ``aside``, which is in the same file system.

        An object store cannot rename folders: the old files are deleted first, then the new ones moved one by one.
        """
        if self.system.type_name == "s3":
            self.remove()
            files = self.system.get_file_info(pafs.FileSelector(aside.root, recursive=True))
            for info in sorted(files, key=lambda info: (info.base_name.startswith("_"), info.path)):
                if info.type == pafs.FileType.File:
                    self.move(info.path, self.root + info.path.removeprefix(aside.root))
            aside.remove()
            return
        old = f"{aside.root}.old"
        had_one = self.exists
        if had_one:
            self.system.move(self.root, old)
        try:
            self.system.move(aside.root, self.root)
        except OSError:
            if had_one:
                self.system.move(old, self.root)
            raise
        if had_one:
            self.system.delete_dir(old)

    @property
    def exists(self) -> bool:
        """Whether the folder exists."""
        return bool(self.system.get_file_info(self.root).type != pafs.FileType.NotFound)

    def remove(self) -> None:
        """Delete the folder and its contents, if it exists."""
        if self.exists:
            self.system.delete_dir(self.root)

    def _start(self, path: str) -> datetime | None:
        """Return the start of the hour or day of a file by its path below the folder; None if it is elsewhere."""
        found = _PARTITION.match(path)
        if found is None or (found[2] is None) != self._daily:
            return None
        try:
            day = datetime.fromisoformat(found[1]).replace(tzinfo=UTC)
            day + DAY  # 9999-12-31 has no end that a datetime can hold
        except (ValueError, OverflowError):
            return None
        return day + HOUR * int(found[2] or 0)


def fingerprint(*parts: str) -> str:
    """Return a digest of the parts in their order, 16 hex digits."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
