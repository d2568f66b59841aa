"""Finds files of the archive that cannot be read, and sets them aside so that jobs can continue without them.

``samples/date=…/hour=…/<name>`` is moved to ``samples/_damaged/date=…/hour=…/<name>``, which readers ignore, and a
rollup likewise. Nothing is deleted; an operator can repair a file and move it back. A rollup is also computed again, if
its samples still exist. The collector counts the files that are set aside, for its metric ``nsq_archive_damaged_files``
and for alerts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import NamedTuple, TypeVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from nsqanalytics.archive import samples_path
from nsqanalytics.files import SHORTEST_FILE_BYTES, File, Folder
from nsqanalytics.life_events import EVENT_SCHEMA, lives_path
from nsqanalytics.rollups import rollups_path
from nsqanalytics.schema import ARROW_SCHEMA
from nsqwire.counted import counted

DAMAGED = "_damaged"
_MOST_ATTEMPTS = 20
Result = TypeVar("Result")


class Damaged(NamedTuple):
    """A file that was set aside, and why."""

    hour: datetime
    file: File
    reason: str


def damaged_path(folder: str) -> str:
    """Return the folder for damaged files of ``folder``."""
    return f"{folder}/{DAMAGED}"


class _Part(NamedTuple):
    """A part of the archive: its folder, and the columns without which a file of it cannot be read."""

    path: str
    daily: bool
    columns: tuple[str, ...]

    @property
    def folder(self) -> Folder:
        return Folder(self.path, daily=self.daily)


def _parts(root: str) -> dict[str, _Part]:
    rolled = [(f"rollups/{grain}", rollups_path(root, grain), grain == "daily") for grain in ("hourly", "daily")]
    return {
        "samples": _Part(samples_path(root), False, _NEEDED),
        "lives": _Part(lives_path(root), False, tuple(each.name for each in EVENT_SCHEMA if not each.nullable)),
        **{name: _Part(path, daily, ("window_start",)) for name, path, daily in rolled},
    }


_NEEDED = tuple(field.name for field in ARROW_SCHEMA if not field.nullable)


def names(root: str) -> list[str]:
    """Return the files of an archive that are set aside, sorted by hour and name, as paths relative to ``root``.

    Raises OSError if they cannot be listed.
    """
    found = []
    for name, part in _parts(root).items():
        folder = Folder(damaged_path(part.path), daily=part.daily)
        paths = [file.path for files in folder.partitions().values() for file in files]
        found += [f"{name}/{DAMAGED}/{path.removeprefix(folder.root).strip('/')}" for path in paths]
    return found


def reason(folder: Folder, file: File, *, thorough: bool, columns: Sequence[str] = _NEEDED) -> str:
    """Return the reason why a file with these ``columns`` cannot be read, or an empty text if it can.

    If ``thorough``, all its pages are read. Raises OSError if the file system cannot read the file, which does not
    prove that the file is damaged.
    """
    if file.size < SHORTEST_FILE_BYTES:
        return "it is empty" if file.size == 0 else f"it has only {counted(file.size, 'byte')}"
    if not thorough:
        try:
            return _lacking(pq.read_metadata(file.path, filesystem=folder.system).schema.names, columns)
        except (pa.ArrowException, OSError):
            pass  # the cause is the file or the file system: reading all its bytes decides
    with folder.system.open_input_stream(file.path) as stream:
        content = stream.read()
    try:
        whole = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True).read()
        return _lacking(whole.schema.names, columns)
    except (pa.ArrowException, OSError) as error:
        return str(error).splitlines()[0][:200]


def _lacking(columns: Iterable[str], needed: Iterable[str]) -> str:
    there = {*columns}
    lacking = [name for name in needed if name not in there]
    return f"it has no column {', '.join(lacking)}" if lacking else ""


def set_aside(
    folder: Folder,
    hours: Iterable[tuple[datetime, Iterable[File]]],
    *,
    thorough: bool,
    columns: Sequence[str] = _NEEDED,
) -> list[Damaged]:
    """Check these files of a ``folder`` of the archive, move those that cannot be read, and return these."""
    found = []
    for hour, files in hours:
        for file in files:
            try:
                why = reason(folder, file, thorough=thorough, columns=columns)
                if why:
                    place = file.path.removeprefix(folder.root).strip("/")
                    folder.move(file.path, f"{folder.root}/{DAMAGED}/{place}")
                    found.append(Damaged(hour, file, why))
            except FileNotFoundError:  # another run has moved or removed it
                continue
    return found


def without_damaged_files(run: Callable[[], Result], root: str, found: list[Damaged]) -> Result:
    """Call ``run`` and return its result.

    If it raises an error that names a file of the archive, set aside those files of that hour that cannot be read, add
    them to ``found``, and call ``run`` again. Also call it again if another run has moved or removed the named file. If
    all can be read, raise the error.
    """
    for _ in range(_MOST_ATTEMPTS - 1):
        try:
            return run()
        except Exception as error:
            named = [_Named(*match) for match in _NAMED.findall(unquote(str(error)))]
            aside = _set_aside(named, root)
            if not aside and not _is_gone(named, root):
                raise
            found += aside
    return run()


class _Named(NamedTuple):
    """A file that an error names: its part of the archive, its hour or day, and its name."""

    part: str
    place: str
    name: str


_NAMED = re.compile(
    r"/(samples|lives|rollups/hourly|rollups/daily)/(date=\d{4}-\d\d-\d\d(?:/hour=\d\d)?)/([^/\s]+\.parquet)"
)


def _set_aside(named: Sequence[_Named], root: str) -> list[Damaged]:
    found = []
    for name, part in _parts(root).items():
        places = {each.place for each in named if each.part == name}
        if places:
            listed = part.folder.partitions().items()
            form = "date=%Y-%m-%d" if part.daily else "date=%Y-%m-%d/hour=%H"
            chosen = [(at, files) for at, files in listed if at.strftime(form) in places]
            found += set_aside(part.folder, chosen, thorough=True, columns=part.columns)
    return found


def _is_gone(named: Sequence[_Named], root: str) -> bool:
    parts = _parts(root)
    return any(not Folder(f"{parts[each.part].path}/{each.place}/{each.name}").exists for each in named)
