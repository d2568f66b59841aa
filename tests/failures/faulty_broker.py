"""A broker whose disk fails on demand: ``python -m tests.failures.faulty_broker --faults=FILE [flags of nsqd]``.

FILE is a JSON object: kinds of system calls, each with the number of an error, or with ``"hang"``. A call of that kind
then fails with the error, or waits until FILE says otherwise. With ``"record"`` and a path, each call in the event
loop's thread adds a line to that file: its name, and the function of the broker that made it.
:class:`tests.failures.disk.FaultyDisk` writes FILE.

Changes of mapped pages are no system calls: as on a real disk, they succeed, and the next sync reports the error.
"""

from __future__ import annotations

import json
import os
import sys
import threading
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

    def _kinds(self) -> dict[str, Any]:
        kinds: dict[str, Any] = json.loads(self._file.read_bytes())
        return kinds

    def meet(self, kind: str) -> None:
        """Wait as long as calls of ``kind`` hang. Raises OSError if they fail."""
        while (fault := self._kinds().get(kind)) == HANG:
            time.sleep(POLL_S)
        if fault is not None:
            raise OSError(fault, os.strerror(fault))

    def note(self, name: str) -> None:
        """Record a call of the event loop's thread, if that is wanted."""
        if threading.current_thread() is threading.main_thread() and (path := self._kinds().get("record")):
            with open(path, "a") as file:
                file.write(f"{name} {caller()}\n")

    def before(self, kinds: tuple[str, ...], call: Callable[..., Any]) -> Callable[..., Any]:
        """``call``, after the faults of ``kinds``."""

        def faulty(*args: Any, **kwargs: Any) -> Any:
            self.note(call.__name__)
            for kind in kinds:
                self.meet(kind)
            return call(*args, **kwargs)

        return faulty

    def before_open(self, open_: Callable[..., int]) -> Callable[..., int]:
        """``os.open``: creating a file is a change and a write, opening one for writing is a write."""

        def faulty(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
            self.note("open")
            if flags & os.O_CREAT:
                self.meet("change")
            if flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR):
                self.meet("write")
            return open_(path, flags, *args, **kwargs)

        return faulty


def caller() -> str:
    """The function of the broker that is running, such as ``log.segment.Segment.remove``; else the outermost one."""
    frame = sys._getframe(1)
    while True:
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith("brokerd.") or frame.f_back is None:
            return f"{module.removeprefix('brokerd.')}.{frame.f_code.co_qualname}"
        frame = frame.f_back


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
    for name in ("stat", "lstat", "statvfs", "scandir", "listdir", "truncate"):
        setattr(os, name, faults.before((), getattr(os, name)))
    return process.main(argv)


if __name__ == "__main__":
    [faults_file] = [flag.partition("=")[2] for flag in sys.argv if flag.startswith("--faults=")]
    sys.exit(main(Path(faults_file), [flag for flag in sys.argv[1:] if not flag.startswith("--faults=")]))
