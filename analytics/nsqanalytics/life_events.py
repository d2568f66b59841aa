"""The events of sampled messages in the archive: their columns, declared once, and the events of one message.

``<root>/lives/date=2026-11-20/hour=17/<name>.parquet``, hours of the events in UTC, written as the samples are. A file
may repeat events of another one, because a collector that starts reads all that its nodes still have: an event is
identified by ``node``, ``boot_id`` and ``number``, and counts once. New versions only add columns; SCHEMA_VERSION is in
each file's metadata under VERSION_KEY.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from nsqanalytics.content import current
from nsqanalytics.files import File, Folder
from nsqanalytics.locations import check_folder
from nsqanalytics.span import HOUR

SCHEMA_VERSION = 1
VERSION_KEY = b"nsq.lives.version"
KEY = ("node", "boot_id", "number")
"""The columns that identify an event."""
_TIME = pa.timestamp("us", tz="UTC")
_TRIES = 3


def _column(name: str, type: pa.DataType, meaning: str, *, unit: str = "", nullable: bool = False) -> pa.Field:
    return pa.field(name, type, nullable=nullable, metadata={"unit": unit, "meaning": meaning})


EVENT_SCHEMA = pa.schema(
    [
        _column("at", _TIME, "when it happened, by the node's clock", unit="UTC"),
        _column("node", pa.string(), "broadcast_address:http_port"),
        _column("boot_id", pa.string(), "changes when the process restarts"),
        _column("number", pa.int64(), "number of the event since the process started: the order of its events"),
        _column("topic", pa.string(), "topic name"),
        _column("channel", pa.string(), "channel name; null for what happened in the topic itself", nullable=True),
        _column("message_id", pa.string(), "id of the message, 16 hex digits"),
        _column(
            "event",
            pa.string(),
            "published, delivered, requeued, deferred, timed_out, finished, dead, moved, dropped or cancelled",
        ),
        _column("attempts", pa.int64(), "deliveries so far", unit="deliveries"),
        _column("reason", pa.string(), "why, where the event has several reasons; null otherwise", nullable=True),
        _column("delay_ms", pa.int64(), "for how long it was deferred; null if it was not", unit="ms", nullable=True),
        _column("client_id", pa.string(), "client that did it, as /stats names it; null for none", nullable=True),
        _column("client_address", pa.string(), "its address, ip:port; null for none", nullable=True),
    ],
    metadata={VERSION_KEY: str(SCHEMA_VERSION).encode()},
)


def lives_path(root: str) -> str:
    """Return the folder of the events of an archive."""
    return f"{root.rstrip('/')}/lives"


def once(rows: pa.Table) -> pa.Table:
    """Return each event once, in order of time and number."""
    placed = rows.append_column("place", pa.array(range(len(rows)), pa.int64()))
    firsts = placed.group_by(list(KEY)).aggregate([("place", "min")])["place_min"]
    return rows.take(firsts).sort_by([("at", "ascending"), ("node", "ascending"), ("number", "ascending")])


class Life(NamedTuple):
    """The events of one message, in their order, and the files that could not be read: the path of each, relative to
    the archive, and the reason."""

    events: pa.Table
    unreadable: list[str]


def life_of(root: str, topic: str, message_id: str, since: datetime, until: datetime) -> Life:
    """Return the events of one message in [since, until).

    Reads the files of these hours. Raises OSError if they cannot be listed.
    """
    check_folder(root)
    wanted = (pc.field("message_id") == message_id) & (pc.field("topic") == topic)
    within = (pc.field("at") >= pa.scalar(since)) & (pc.field("at") < pa.scalar(until))
    folder = Folder(lives_path(root))
    for _ in range(_TRIES - 1):
        with suppress(FileNotFoundError):  # compaction has replaced a listed file by another one
            return _matching(folder, since, until, wanted & within)
    return _matching(folder, since, until, wanted & within)


def _matching(folder: Folder, since: datetime, until: datetime, wanted: pc.Expression) -> Life:
    files = files_between(folder, since, until)
    try:
        return Life(once(_read(folder, files, wanted)), [])
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException):  # of one file: the others are read one by one
        pass
    found, unreadable = [], []
    for file in files:
        try:
            found.append(_read(folder, [file], wanted))
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException) as error:
            place = file.path.removeprefix(folder.root).strip("/")
            unreadable.append(f"lives/{place}: {str(error).splitlines()[0]}")
    return Life(once(pa.concat_tables([EVENT_SCHEMA.empty_table(), *found])), unreadable)


def _read(folder: Folder, files: Sequence[File], wanted: pc.Expression) -> pa.Table:
    import pyarrow.dataset as ds  # imports pandas, which takes a second

    if not files:
        return EVENT_SCHEMA.empty_table()
    paths = [file.path for file in files]
    return ds.dataset(paths, schema=EVENT_SCHEMA, format="parquet", filesystem=folder.system).to_table(filter=wanted)


def files_between(folder: Folder, since: datetime, until: datetime) -> list[File]:
    """Return the files of the hours that overlap [since, until), without those that compaction has replaced."""
    return [
        file
        for start, files in folder.partitions().items()
        if start + HOUR > since and start < until
        for file in current(folder, files)
    ]
