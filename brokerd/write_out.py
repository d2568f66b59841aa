"""Starts writing changed pages of a file to the disk, with sync_file_range(2) (Linux)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache

from brokerd.background import pieces

_SYNC_FILE_RANGE_WRITE = 2


def write_out(fd: int, start: int, end: int) -> None:
    """Start writing the bytes ``[start, end)`` in pieces, so that an ``fdatasync`` afterwards mostly waits.

    Reports no errors: ``fdatasync`` reports them.
    """
    sync_file_range = _sync_file_range()
    if sync_file_range is not None:
        for offset, piece_end in pieces(start, end):
            sync_file_range(fd, offset, piece_end - offset, _SYNC_FILE_RANGE_WRITE)


@cache
def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    if sys.platform != "linux":
        return None
    import ctypes  # imported here: it is slow to load, and a broker that syncs with each publish never uses it

    try:
        function = ctypes.CDLL(None).sync_file_range
    except (OSError, AttributeError):
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    found: Callable[[int, int, int, int], int] = function
    return found
