"""Classification of the files in a log's directory, by name: the broker's and others."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final, NamedTuple

RETIRED: Final = "retired"
"""Name of a removed segment's file that is kept for reuse."""
_SEGMENT: Final = re.compile(r"[0-9]{20}\.log")
_SIDE_FILE: Final = re.compile(r"[0-9]{20}\.(?:idx|hdr)")


def topic_number(directory: Path) -> int | None:
    """The topic's number in the name of its directory, ``<name>.<number>``; None without one."""
    name, _, number = directory.name.rpartition(".")
    return int(number) if name and number.isascii() and number.isdecimal() else None


class NotAllocated(OSError):
    """A file could not be created or extended, usually because the disk is full. It needed ``nbytes`` of space."""

    def __init__(self, error: OSError, nbytes: int) -> None:
        super().__init__(error.errno, error.strerror, error.filename)
        self.nbytes = nbytes


class LogFiles(NamedTuple):
    """The contents of a log's directory. Only regular files with a known name are the broker's."""

    segments: list[Path]
    """The ``.log`` files, oldest first."""
    side_files: list[Path]
    """The broker's other files."""
    foreign_files: list[Path]
    """Everything else. The broker neither opens nor removes these."""

    @classmethod
    def of(cls, directory: Path) -> LogFiles:
        """List a directory. Raises OSError."""
        found = cls([], [], [])
        with os.scandir(directory) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                found._list_for(entry).append(directory / entry.name)
        return found

    def _list_for(self, entry: os.DirEntry[str]) -> list[Path]:
        if not entry.is_file(follow_symlinks=False):
            return self.foreign_files
        if _SEGMENT.fullmatch(entry.name):
            return self.segments
        return self.side_files if entry.name == RETIRED or _SIDE_FILE.fullmatch(entry.name) else self.foreign_files


def remove_log(directory: Path) -> list[Path]:
    """Delete a log's files, and the directory if nothing else is in it. Returns the foreign files. Raises OSError."""
    files = LogFiles.of(directory)
    for path in [*files.segments, *files.side_files]:
        path.unlink(missing_ok=True)
    if not files.foreign_files:
        directory.rmdir()
    return files.foreign_files
