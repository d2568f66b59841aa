"""The data folder is private: other users of the machine can read nothing in it."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

GROUP_AND_OTHERS = stat.S_IRWXG | stat.S_IRWXO
"""The permissions of the group and of all others."""
ENTRIES = (
    *("platform.sqlite3", "platform.sqlite3-*", "secret_key", "redis.sock"),
    *("archive", "archive-*", "history", "history-*", "brokerd", "redis", "reports", "run"),
)
"""The files and subfolders that the platform creates there, as patterns."""


def make_private(folder: Path) -> None:
    """Create ``folder`` with mode 0700, or take its permissions, and those of ENTRIES, from the group and others.

    What belongs to another user stays as it is (in a container, a volume can belong to root), and so does a folder that
    all users share, such as ``/tmp``. Raises OSError if the folder cannot be created.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in (folder, *(path for pattern in ENTRIES for path in folder.glob(pattern))):
        with contextlib.suppress(FileNotFoundError, PermissionError):
            mode = stat.S_IMODE(path.stat().st_mode)
            if mode & GROUP_AND_OTHERS and not mode & stat.S_ISVTX:
                path.chmod(mode & ~GROUP_AND_OTHERS)


def create_private_file(path: Path) -> None:
    """Create an empty file with mode 0600, unless it exists or its folder does not. SQLite gives the files beside a
    database the mode of the database."""
    with contextlib.suppress(FileExistsError, FileNotFoundError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
