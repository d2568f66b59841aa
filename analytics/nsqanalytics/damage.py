"""Finds files of the archive that cannot be read, and sets them aside so that jobs can continue without them.

``samples/date=…/hour=…/<name>`` is moved to ``samples/_damaged/date=…/hour=…/<name>``, which readers ignore. Nothing is
deleted; an operator can repair a file and move it back. The collector counts the files there, for its metric
``nsq_archive_damaged_files`` and for alerts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import NamedTuple, TypeVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from nsqanalytics.archive import samples_path
from nsqanalytics.files import File, Folder
from nsqanalytics.schema import ARROW_SCHEMA

DAMAGED = "_damaged"
SHORTEST = 12
"""Length of the shortest Parquet file in bytes: the magic number at both ends, and the footer's length."""
_MOST_ATTEMPTS = 20
Result = TypeVar("Result")


class Damaged(NamedTuple):
    """A file that was set aside, and why."""

    hour: datetime
    file: File
    reason: str


def damaged_path(root: str) -> str:
    return f"{samples_path(root)}/{DAMAGED}"


def names(root: str) -> list[str]:
    """Return the files of an archive that are set aside, sorted by hour and name, as paths relative to ``root``.

    Raises OSError if they cannot be listed.
    """
    folder = Folder(damaged_path(root))
    place = damaged_path(root).removeprefix(root).strip("/")
    return [
        f"{place}/{file.path.removeprefix(folder.root).strip('/')}"
        for files in folder.partitions().values()
        for file in files
    ]


def reason(folder: Folder, file: File, *, thorough: bool) -> str:
    """Return the reason why a file cannot be read as samples, or an empty text if it can.

    If ``thorough``, all its pages are read. Raises OSError if the file system cannot read the file, which does not
    prove that the file is damaged.
    """
    if file.size < SHORTEST:
        return "it is empty" if file.size == 0 else f"it has only {file.size} bytes"
    if not thorough:
        try:
            return _lacking(pq.read_metadata(file.path, filesystem=folder.system).schema.names)
        except (pa.ArrowException, OSError):
            pass  # the cause is the file or the file system: reading all its bytes decides
    with folder.system.open_input_stream(file.path) as stream:
        content = stream.read()
    try:
        return _lacking(pq.ParquetFile(pa.BufferReader(content)).read().schema.names)
    except (pa.ArrowException, OSError) as error:
        return str(error).splitlines()[0][:200]


def _lacking(columns: Iterable[str]) -> str:
    lacking = [field.name for field in ARROW_SCHEMA if not field.nullable and field.name not in columns]
    return f"it has no column {', '.join(lacking)}" if lacking else ""


def set_aside(folder: Folder, hours: Iterable[tuple[datetime, Iterable[File]]], *, thorough: bool) -> list[Damaged]:
    """Check these files of the samples' ``folder``, move those that cannot be read, and return these."""
    found = []
    for hour, files in hours:
        for file in files:
            try:
                why = reason(folder, file, thorough=thorough)
                if why:
                    place = file.path.removeprefix(folder.root).strip("/")
                    folder.move(file.path, f"{folder.root}/{DAMAGED}/{place}")
                    found.append(Damaged(hour, file, why))
            except FileNotFoundError:  # another run has moved or removed it
                continue
    return found


def going_on(run: Callable[[], Result], root: str, found: list[Damaged]) -> Result:
    """Call ``run`` and return its result.

    If it raises an error that names a file of the archive, set aside those files of that hour that cannot be read, add
    them to ``found``, and call ``run`` again. If all can be read, raise the error.
    """
    for _ in range(_MOST_ATTEMPTS - 1):
        try:
            return run()
        except Exception as error:
            aside = _set_aside_named_by(error, root)
            if not aside:
                raise
            found += aside
    return run()


def _set_aside_named_by(error: Exception, root: str) -> list[Damaged]:
    named = {*re.findall(r"/(date=\d{4}-\d\d-\d\d/hour=\d\d)/[^/\s]+\.parquet", unquote(str(error)))}
    if not named:
        return []
    folder = Folder(samples_path(root))
    hours = [(at, files) for at, files in folder.partitions().items() if f"date={at:%Y-%m-%d}/hour={at:%H}" in named]
    return set_aside(folder, hours, thorough=True)
