"""The formats of the files in a data path, checked before any of them is changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from brokerd.data_path import LAST_STATS, PREVIOUS_STATS, TOPICS
from brokerd.file_header import HEADER_BYTES, JSON_MEMBER, UnsupportedFormat, read_header
from brokerd.journal.recovery import FILES as JOURNAL_FILES
from brokerd.log.files import LogFiles
from brokerd.topic_directories import TopicDirectory


def check_formats(data_path: Path) -> int:
    """Check that this release can read all files of a data path. Returns the number of files without a header.

    Raises UnsupportedFormat for a file that it cannot read, and OSError.
    """
    unversioned = 0
    for path, at in _files(data_path):
        with path.open("rb", buffering=0) as file:
            data = file.read(at + HEADER_BYTES)[at:]
        header = read_header(data[: HEADER_BYTES - 1] + b"\n" if at else data)
        if header is not None and not header.is_supported:
            raise UnsupportedFormat(path, header)
        unversioned += header is None and any(data)
    return unversioned


def _files(data_path: Path) -> Iterator[tuple[Path, int]]:
    """The broker's files, each with the offset of its header."""
    for path in sorted(data_path.iterdir()):
        if path.is_file() and not path.is_symlink():
            if JOURNAL_FILES.fullmatch(path.name):
                yield path, 0
            elif path.name in (LAST_STATS, PREVIOUS_STATS):
                yield path, len(JSON_MEMBER)
    topics = data_path / TOPICS
    for directory in sorted(topics.iterdir()) if topics.is_dir() else ():
        if TopicDirectory.at(directory) is not None:
            try:
                files = LogFiles.of(directory)
            except PermissionError:
                continue  # the directory is not the broker's
            yield from ((path, 0) for path in [*files.segments, *files.side_files])
