"""The file of a member's stamps, ``mirror.stamps`` in its data path. It is not mirrored: each member writes its own."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from brokerd.file_failure import named
from brokerd.log.log import sync_directory
from brokerd.mirror.errors import InvalidStream
from brokerd.mirror.stamps import Stamps

STAMPS: Final = "mirror.stamps"
FILE_BYTES: Final = 256
"""Size of the file. It is within one sector, so a power loss leaves the stamps before or after a write; and once it
exists, writing it takes no space."""


def read_stamps(data_path: Path) -> Stamps:
    """The stamps of a data path; empty ones if it has none, or none that can be read. Raises OSError."""
    with suppress(FileNotFoundError, InvalidStream):
        return Stamps.from_bytes((data_path / STAMPS).read_bytes())
    return Stamps()


def write_stamps(data_path: Path, stamps: Stamps) -> None:
    """Overwrite the stamps of a data path, and sync them. Raises FileFailed."""
    path = data_path / STAMPS
    with named(path, "written"):
        is_new = not path.exists()
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(fd, stamps.to_bytes().ljust(FILE_BYTES), 0)
            os.fdatasync(fd)
        finally:
            os.close(fd)
        if is_new:
            sync_directory(data_path)
