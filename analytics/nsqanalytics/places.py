"""Where archives and results are: paths and URIs, and the folders in them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


class ArchiveMissing(Exception):
    """There is nothing to report on; the message says where we looked."""


@dataclass(frozen=True)
class Place:
    """Where a run reads and writes: paths or URIs that Spark knows."""

    archive: str
    output: str


def is_local(path: str) -> bool:
    """Whether a path is on this machine's file system, and not a URI for Spark alone."""
    return "://" not in path or path.startswith("file://")


def local_path(path: str) -> Path:
    return Path(path.removeprefix("file://"))
