"""The newest samples of an archive, read without Spark."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from nsqanalytics.archive import samples_path
from nsqanalytics.files import Folder
from nsqanalytics.schema import ARROW_SCHEMA

_TRIES = 3


def samples_since(root: str, since: datetime) -> pa.Table:
    """Return the channels' samples taken at ``since`` or later, in no order. Without an archive, there are none.

    Samples that two files have, such as one that compaction has not removed yet, are there once. Raises OSError, or
    pyarrow's ArrowException for a damaged file.
    """
    folder = Folder(samples_path(root))
    for _ in range(_TRIES - 1):
        with suppress(FileNotFoundError):  # compaction has replaced a listed file by another one
            return _once(_listed(folder, since))
    return _once(_listed(folder, since))


def _listed(folder: Folder, since: datetime) -> pa.Table:
    first = since.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    files = [file.path for start, some in folder.partitions().items() if start >= first for file in some]
    if not files:
        return ARROW_SCHEMA.empty_table()
    found = ds.dataset(files, schema=ARROW_SCHEMA, format="parquet", filesystem=folder.system)
    return found.to_table(filter=(pc.field("taken_at") >= pa.scalar(since)) & pc.field("channel").is_valid())


def _once(rows: pa.Table) -> pa.Table:
    key = ["taken_at", "node", "boot_id", "topic", "channel"]
    numbered = rows.append_column("number", pa.array(range(len(rows)), pa.int64()))
    firsts = numbered.group_by(key).aggregate([("number", "min")])["number_min"]
    return rows.take(firsts)
