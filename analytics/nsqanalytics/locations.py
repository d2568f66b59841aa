"""Locations of archives and results: paths and URIs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


class ArchiveMissing(Exception):
    """There is no archive; the message contains its expected path."""


def archive_missing(samples: str) -> ArchiveMissing:
    """Return the error for an archive whose samples would be at this path."""
    return ArchiveMissing(f"there is no archive at {samples}: has the collector run?")


@dataclass(frozen=True)
class Locations:
    """The locations that a run reads and writes: paths, or URIs that Spark supports."""

    archive: str
    output: str
    namespace: str = "nsq"
    """Of the archive's tables in an Iceberg catalog."""


def is_local(path: str) -> bool:
    """Whether this is a path or a ``file://`` URI on this machine, not a URI of another file system."""
    return "://" not in path or path.startswith("file://")


def local_path(path: str) -> Path:
    """Return the path on this machine; ``file://`` is optional."""
    return Path(path.removeprefix("file://"))


def check_folder(root: str) -> None:
    """Raise NotADirectoryError if the path is that of a file on this machine. Listed, it would be an empty archive."""
    if is_local(root) and local_path(root).exists() and not local_path(root).is_dir():
        raise NotADirectoryError(f"{local_path(root)} is not a folder")


def spark_uri(root: str, path: str) -> str:
    """Return the path or URI by which Spark reads a file below ``root`` that Arrow listed as ``path``."""
    scheme, separator, _ = root.partition("://")
    return f"{scheme}://{path.lstrip('/')}" if separator and scheme != "file" else path
