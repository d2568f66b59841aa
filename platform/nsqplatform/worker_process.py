"""The identity of a worker's process, by which others find out whether it still runs."""

from __future__ import annotations

import os
import socket
from datetime import datetime, timedelta

ABANDONED_AFTER = timedelta(seconds=45)
"""A worker updates its task's row every few seconds; without an update for this time it counts as dead."""


def this_worker() -> str:
    """``host:pid`` of this process."""
    return f"{socket.gethostname()}:{os.getpid()}"


def is_dead(worker: str, seen_at: datetime | None, *, at: datetime) -> bool:
    """Whether the worker died: its process on this machine has ended, or its last update is too old."""
    host, _, pid = worker.rpartition(":")
    if host == socket.gethostname() and not _is_alive(int(pid)):
        return True
    return seen_at is None or at - seen_at > ABANDONED_AFTER


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
