"""The map of a new file, whose space is allocated."""

from __future__ import annotations

import mmap
import os


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
