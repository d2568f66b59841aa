"""A small file that is overwritten in place, so that it can be written although the disk is full."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from brokerd.file_failure import named
from brokerd.log.log import sync_directory

FILE_BYTES: Final = 512
"""Size of the file: a sector, the smallest unit that a disk writes. A power loss leaves the contents from before a
write, or those after it."""


def overwrite(path: Path, content: bytes) -> None:
    """Replace the contents of a file by ``content`` and spaces, and sync it; create it if it does not exist.

    Raises FileFailed.
    """
    with named(path, "written"):
        if len(content) > FILE_BYTES:
            raise OSError(f"{len(content)} bytes are more than {FILE_BYTES}")
        is_new = not path.exists()
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(fd, content.ljust(FILE_BYTES), 0)
            os.ftruncate(fd, FILE_BYTES)
            os.fdatasync(fd)
        finally:
            os.close(fd)
        if is_new:
            sync_directory(path.parent)
