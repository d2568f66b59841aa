"""A broker whose disk fails on demand: ``python -m tests.failures.faulty_broker --faults=FILE [flags of nsqd]``.

FILE is a JSON object: kinds of system calls, each with the number of an error, or with ``"hang"``. A call of that kind
then fails with the error, or waits until FILE says otherwise. :class:`tests.failures.disk.FaultyDisk` writes it.

Changes of mapped pages are no system calls: as on a real disk, they succeed, and the next sync reports the error.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HANG = "hang"
POLL_S = 0.01


class Faults:
    """The faults in a file, which is read at each call."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def meet(self, kind: str) -> None:
        """Wait as long as calls of ``kind`` hang. Raises OSError if they fail."""
        while (fault := json.loads(self._file.read_bytes()).get(kind)) == HANG:
            time.sleep(POLL_S)
        if fault is not None:
            raise OSError(fault, os.strerror(fault))

    def before(self, kinds: tuple[str, ...], call: Callable[..., Any]) -> Callable[..., Any]:
        """``call``, after the faults of ``kinds``."""

        def faulty(*args: Any, **kwargs: Any) -> Any:
            for kind in kinds:
                self.meet(kind)
            return call(*args, **kwargs)

        return faulty

    def before_open(self, open_: Callable[..., int]) -> Callable[..., int]:
        """``os.open``: creating a file is a change and a write, opening one for writing is a write."""

        def faulty(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
            if flags & os.O_CREAT:
                self.meet("change")
            if flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR):
                self.meet("write")
            return open_(path, flags, *args, **kwargs)

        return faulty


def main(file: Path, argv: list[str]) -> int:
    """Run a broker."""
    from brokerd import file_systems, process

    faults = Faults(file)
    os.fsync = faults.before(("sync",), os.fsync)
    os.fdatasync = faults.before(("sync",), os.fdatasync)
    if (syncfs := file_systems._syncfs()) is not None:
        faulty_syncfs = faults.before(("sync",), syncfs)
        file_systems._syncfs = lambda: faulty_syncfs
    os.open = faults.before_open(os.open)
    for name in ("pwrite", "ftruncate"):
        setattr(os, name, faults.before(("write",), getattr(os, name)))
    for name in ("posix_fallocate", "mkdir"):
        setattr(os, name, faults.before(("change", "write"), getattr(os, name)))
    for name in ("rename", "unlink", "rmdir"):
        setattr(os, name, faults.before(("change",), getattr(os, name)))
    os.pread = faults.before(("read",), os.pread)
    return process.main(argv)


if __name__ == "__main__":
    [faults_file] = [flag.partition("=")[2] for flag in sys.argv if flag.startswith("--faults=")]
    sys.exit(main(Path(faults_file), [flag for flag in sys.argv[1:] if not flag.startswith("--faults=")]))
