"""The newest samples of an archive, read without Spark."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from nsqanalytics.archive import samples_path
from nsqanalytics.files import Folder
from nsqanalytics.schema import ARROW_SCHEMA


def samples_since(root: str, since: datetime) -> pa.Table:
    """Return the channels' samples taken at ``since`` or later, in no order. Without an archive, there are none.

    Samples that a file repeats, such as one that compaction has not removed yet, are there once. Raises OSError.
    """
    folder = Folder(samples_path(root))
    first = since.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    hours = folder.partitions()
    files = [file.path for start, some in hours.items() if start >= first for file in some]
    if not files:
        return ARROW_SCHEMA.empty_table()
    found = ds.dataset(files, schema=ARROW_SCHEMA, format="parquet", filesystem=folder.system)
    rows = found.to_table(filter=(pc.field("taken_at") >= pa.scalar(since)) & pc.field("channel").is_valid())
    return _once(rows)


def _once(rows: pa.Table) -> pa.Table:
    key = ["taken_at", "node", "boot_id", "topic", "channel"]
    numbered = rows.append_column("number", pa.array(range(len(rows)), pa.int64()))
    firsts = numbered.group_by(key).aggregate([("number", "min")])["number_min"]
    return rows.take(firsts)
