"""A disk that fails on demand, and the broker on it."""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.failures.faulty_broker import HANG
from tests.harness.daemon import Daemon

__all__ = ["HANG", "FaultyDisk", "reports_unreadable_pages"]


def reports_unreadable_pages() -> bool:
    """Whether the system can say that a page cannot be read before it is accessed: Linux 5.14 and later."""
    with mmap.mmap(-1, mmap.PAGESIZE) as map_:
        try:
            map_.madvise(22, 0, mmap.PAGESIZE)
        except OSError:
            return False
    return True


class FaultyDisk:
    """The data path of a broker, whose system calls fail as ``fault`` requests."""

    def __init__(self, folder: Path) -> None:
        self.data_path, self._file = folder / "data", folder / "faults"
        self.data_path.mkdir()
        self._set({})

    def broker(self, *flags: str) -> Daemon:
        """A broker on this disk, which is not started yet."""
        return Daemon("tests.failures.faulty_broker", f"--faults={self._file}", f"--data-path={self.data_path}", *flags)

    @contextmanager
    def fault(self, **kinds: int | str) -> Iterator[None]:
        """Let system calls fail during the block: ``sync``, ``write``, ``read`` and ``change``, each with an errno or
        HANG. A change creates, allocates, renames or deletes a file. ``record`` is a file for the calls of the event
        loop."""
        self._set(kinds)
        try:
            yield
        finally:
            self._set({})

    def _set(self, kinds: dict[str, int | str]) -> None:
        aside = self._file.with_suffix(".new")
        aside.write_text(json.dumps(kinds))
        os.replace(aside, self._file)
