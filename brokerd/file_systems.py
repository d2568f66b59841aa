"""Syncs whole file systems with syncfs(2), if it reports errors on this system."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

REPORTS_ERRORS_FROM = (5, 8)
"""The first version of Linux whose syncfs(2) reports write errors."""


def sync_file_systems(paths: Iterable[Path]) -> bool:
    """Sync the file systems of ``paths``, leaving out paths that no longer exist. Raises OSError.

    Returns False, with nothing done, if syncfs(2) is missing or hides errors.
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
    """syncfs(2), raising OSError; None if it is missing or hides errors."""
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    if sys.platform != "linux" or release is None or tuple(map(int, release.groups())) < REPORTS_ERRORS_FROM:
        return None
    import ctypes  # imported here: it is slow to load, and few brokers sync this many files

    try:
        function = ctypes.CDLL(None, use_errno=True).syncfs
    except (OSError, AttributeError):
        return None

    def syncfs(fd: int) -> None:
        if function(fd) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    return syncfs
