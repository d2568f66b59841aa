"""Rewrites rollups of older versions: their times are of Parquet's type INT96, which not all Iceberg readers know."""

from __future__ import annotations

import secrets

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from nsqanalytics.files import File, Folder
from nsqanalytics.rollups import UNFINISHED


def has_int96(footer: pq.FileMetaData) -> bool:
    """Return whether a column is of that type."""
    return any(footer.schema.column(at).physical_type == "INT96" for at in range(footer.num_columns))


def rewrite(folder: Folder, file: File) -> File:
    """Replace a rollup by the same rows with times in microseconds, and return the new file.

    The name is that of the old one, and the change is atomic. Raises OSError, or ArrowInvalid if it cannot be read.
    """
    table = pq.read_table(file.path, filesystem=folder.system, partitioning=None)
    columns = [
        field.with_type(pa.timestamp("us", tz="UTC")) if pa.types.is_timestamp(field.type) else field
        for field in table.schema
    ]
    converted = table.cast(pa.schema(columns))
    aside = f"{folder.root}/{UNFINISHED}{secrets.token_hex(6)}/{file.name}"
    parent = aside.rpartition("/")[0]
    folder.system.create_dir(parent, recursive=True)
    try:
        pq.write_table(converted, aside, filesystem=folder.system, compression="zstd")
        folder.move(aside, file.path)
    finally:
        if folder.system.get_file_info(parent).type == pafs.FileType.Directory:
            folder.system.delete_dir(parent)
    info = folder.system.get_file_info(file.path)
    return File(file.path, file.name, info.size, info.mtime)
