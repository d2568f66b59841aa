"""Maps of files: a new one, whose space is allocated, and pages that can be read."""

from __future__ import annotations

import errno
import mmap
import os
from pathlib import Path
from typing import Final

_POPULATE_READ: Final = 22
"""``MADV_POPULATE_READ`` of Linux 5.14 and later: maps pages, and fails where an access would raise SIGBUS."""
_UNREADABLE: Final = (errno.EFAULT, 133)
"""Its errors for a page that cannot be read; 133 is EHWPOISON."""


def map_new_file(fd: int, nbytes: int) -> mmap.mmap:
    """Allocate ``nbytes`` for an empty file, and map it. Raises OSError.

    The system does not read ahead in the map. Otherwise the first access waits until as many pages as the disk's
    read-ahead are filled with zeros, which takes milliseconds if that is megabytes. :func:`read_ahead` allows it again.
    """
    os.posix_fallocate(fd, 0, nbytes)
    map_ = mmap.mmap(fd, nbytes)
    map_.madvise(mmap.MADV_RANDOM)
    return map_


def read_ahead(map_: mmap.mmap) -> None:
    """Let the system read ahead in a map that is full: most of it is read in order."""
    map_.madvise(mmap.MADV_NORMAL)


def require_readable(map_: mmap.mmap, start: int, end: int, path: Path) -> None:
    """Check that bytes ``[start, end)`` of the file at ``path`` can be read. Raises OSError with EIO.

    Without this check, the system would end the process with SIGBUS at the first access. Systems that cannot tell are
    assumed to be able to read them.
    """
    start -= start % mmap.PAGESIZE
    if not start < min(end, len(map_)):
        return
    try:
        map_.madvise(_POPULATE_READ, start, end - start)
    except OSError as error:
        if error.errno in _UNREADABLE:
            raise OSError(errno.EIO, "a part of the file cannot be read", str(path)) from error
