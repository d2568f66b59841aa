"""Maps of files: parts that cannot be read."""

from __future__ import annotations

import errno
import mmap
import os
from pathlib import Path

import pytest

from brokerd.new_map import map_new_file, require_readable
from tests.failures.disk import reports_unreadable_pages

PAGES = 8


def test_a_part_that_cannot_be_read_is_an_error_with_the_file(tmp_path: Path) -> None:
    """A file that was cut stands for a disk that fails: access to either would be a SIGBUS."""
    path = tmp_path / "file"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    map_ = map_new_file(fd, PAGES * mmap.PAGESIZE)
    os.ftruncate(fd, 2 * mmap.PAGESIZE)
    os.close(fd)
    require_readable(map_, 10, 2 * mmap.PAGESIZE, path)
    require_readable(map_, 100, 100, path)
    require_readable(map_, PAGES * mmap.PAGESIZE, PAGES * mmap.PAGESIZE + 1, path)
    if reports_unreadable_pages():
        with pytest.raises(OSError, match="a part of the file cannot be read") as unreadable:
            require_readable(map_, 10, 2 * mmap.PAGESIZE + 1, path)
        assert (unreadable.value.errno, unreadable.value.filename) == (errno.EIO, str(path))
    map_.close()
