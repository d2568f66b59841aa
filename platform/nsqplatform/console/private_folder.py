"""The data folder is private: other users of the machine can read nothing in it."""

from __future__ import annotations

import contextlib
import stat
from pathlib import Path

GROUP_AND_OTHERS = stat.S_IRWXG | stat.S_IRWXO
"""The permissions of the group and of all others."""
ENTRIES = (
    *("platform.sqlite3", "platform.sqlite3-wal", "platform.sqlite3-shm", "secret_key"),
    *("archive", "brokerd", "history", "redis", "reports", "run"),
)
"""The files and subfolders that the platform creates there."""


def make_private(folder: Path) -> None:
    """Create ``folder`` with mode 0700, or take its permissions, and those of ENTRIES, from the group and others.

    What belongs to another user stays as it is (in a container, a volume can belong to root), and so does a folder that
    all users share, such as ``/tmp``. Raises OSError if the folder cannot be created.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in (folder, *(folder / name for name in ENTRIES)):
        with contextlib.suppress(FileNotFoundError, PermissionError):
            mode = stat.S_IMODE(path.stat().st_mode)
            if mode & GROUP_AND_OTHERS and not mode & stat.S_ISVTX:
                path.chmod(mode & ~GROUP_AND_OTHERS)
