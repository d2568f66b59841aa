"""Syncing a whole file system in one call, where the system has one that tells of errors."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

REPORTS_ERRORS_FROM = (5, 8)
"""Before this version of Linux, syncfs(2) succeeds even if the disk has refused something."""


def sync_file_systems(paths: Iterable[Path]) -> bool:
    """Bring all that was written to the file systems of ``paths`` to their disks. Raises OSError.

    False, with nothing done, where that cannot be relied upon. A path that is gone does not count.
    """
    syncfs = _syncfs()
    if syncfs is None:
        return False
    synced = set[int]()
    for path in paths:
        try:
            device = path.stat().st_dev
            if device in synced:
                continue
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            syncfs(fd)
        finally:
            os.close(fd)
        synced.add(device)
    return True


@cache
def _syncfs() -> Callable[[int], None] | None:
    """syncfs(2), raising OSError; None where there is none, or one that hides errors."""
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    if sys.platform != "linux" or release is None or tuple(map(int, release.groups())) < REPORTS_ERRORS_FROM:
        return None
    import ctypes  # here: it takes longer to load than many a broker needs to start

    try:
        function = ctypes.CDLL(None, use_errno=True).syncfs
    except (OSError, AttributeError):
        return None

    def syncfs(fd: int) -> None:
        if function(fd) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    return syncfs
