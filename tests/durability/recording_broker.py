"""A broker that records what it syncs: ``python -m tests.durability.recording_broker --record=FILE [flags of nsqd]``.

The record is a series of pickled :class:`Sync` and :class:`Round`. A :class:`Sync` has the contents of the data path
from before the system call, and is written once the call has returned: what the call made durable is at least that.
Files are small, so that few messages fill many of them.
"""

from __future__ import annotations

import os
import pickle
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

PAGE = 4096
ZEROS = bytes(PAGE)


class File(NamedTuple):
    """The size of a file, and the numbers of its pages in :attr:`Sync.pages`; -1 for a page of zeros."""

    size: int
    pages: tuple[int, ...]


class Tree(NamedTuple):
    """A data path: its files and directories by inode, each directory as a map of names to inodes."""

    root: int
    files: dict[int, File]
    directories: dict[int, dict[str, int]]


class Sync(NamedTuple):
    """A completed fsync or fdatasync of ``inode``, or with None a syncfs. Times are monotonic nanoseconds."""

    began_ns: int
    ended_ns: int
    inode: int | None
    tree: Tree
    pages: dict[int, bytes]
    """The pages that no earlier entry has, by number."""


class Round(NamedTuple):
    """A call of :func:`brokerd.syncer.sync` that has returned."""

    began_ns: int
    """When the broker took the list of the files to sync: what was written to other files later is not in the round."""
    ended_ns: int


class Snapshots:
    """Reads a data path. Every file that was read stays open, so that no inode number is used for another file."""

    def __init__(self, data_path: Path) -> None:
        self._data_path = data_path
        self._open: dict[int, int] = {}
        self._numbers = {ZEROS: -1}
        self.new_pages: dict[int, bytes] = {}

    def tree(self) -> Tree:
        """The present contents."""
        tree = Tree(self._data_path.stat().st_ino, {}, {})
        self._read_directory(self._data_path, tree)
        return tree

    def close(self) -> None:
        """Close the files that were read."""
        for fd in self._open.values():
            os.close(fd)
        self._open.clear()

    def _read_directory(self, path: Path, tree: Tree) -> None:
        names = tree.directories[path.stat().st_ino] = {}
        for name in os.listdir(path):
            try:
                inode = self._keep_open(path / name)
            except FileNotFoundError:
                continue  # it was removed in the meantime
            names[name] = inode
            if stat.S_ISDIR(os.fstat(self._open[inode]).st_mode):
                self._read_directory(path / name, tree)
            else:
                tree.files[inode] = self._read_file(self._open[inode])

    def _keep_open(self, path: Path) -> int:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        inode = os.fstat(fd).st_ino
        if inode in self._open:
            os.close(fd)
        else:
            self._open[inode] = fd
        return inode

    def _read_file(self, fd: int) -> File:
        data = os.pread(fd, os.fstat(fd).st_size, 0)
        return File(len(data), tuple(self._number(data[at : at + PAGE]) for at in range(0, len(data), PAGE)))

    def _number(self, page: bytes) -> int:
        page = page.ljust(PAGE, b"\0")
        number = self._numbers.get(page)
        if number is None:
            number = self._numbers[page] = len(self._numbers)
            self.new_pages[number] = page
        return number


class Recorder:
    """Wraps the system calls that make files durable."""

    def __init__(self, record: Path, data_path: Path) -> None:
        self._record = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._snapshots = Snapshots(data_path)
        self._lock = threading.Lock()
        self._round_began_ns = time.monotonic_ns()

    def around(self, call: Callable[[int], None], *, is_of_file_system: bool = False) -> Callable[[int], None]:
        """``call(fd)``, recorded."""

        def recorded(fd: int) -> None:
            with self._lock:
                began_ns, tree = time.monotonic_ns(), self._snapshots.tree()
                inode = None if is_of_file_system else os.fstat(fd).st_ino
                call(fd)
                pages, self._snapshots.new_pages = self._snapshots.new_pages, {}
                self._write(Sync(began_ns, time.monotonic_ns(), inode, tree, pages))

        return recorded

    def _write(self, entry: Sync | Round) -> None:
        data = pickle.dumps(entry)
        assert os.write(self._record, data) == len(data)

    def around_start(self, start: Callable[[Any], None]) -> Callable[[Any], None]:
        """Record when a round begins: the broker takes the list of its files then, before its thread syncs them."""

        def recorded(syncer: Any) -> None:
            if syncer._running is None:
                self._round_began_ns = time.monotonic_ns()
            start(syncer)

        return recorded

    def around_round(self, sync: Callable[..., set[Path]]) -> Callable[..., set[Path]]:
        """:func:`brokerd.syncer.sync`, recorded."""

        def recorded(segments: Iterable[Path], new: Iterable[Path], journal: Iterable[Path]) -> set[Path]:
            began_ns = self._round_began_ns
            missing = sync(segments, new, journal)
            self._write(Round(began_ns, time.monotonic_ns()))
            return missing

        return recorded


def main(record: Path, argv: list[str]) -> int:
    """Run a broker with small files and record its syncs."""
    from brokerd import file_systems, process, syncer
    from brokerd.journal import journal
    from brokerd.log import log

    log.FIRST_SEGMENT_BYTES, log.LAST_SEGMENT_BYTES = 8192, 16384
    journal.JOURNAL_BYTES = 32768
    data_path = next(Path(flag.partition("=")[2]) for flag in argv if flag.startswith("--data-path="))
    recorder = Recorder(record, data_path)
    os.fsync = recorder.around(os.fsync)  # type: ignore[assignment]
    os.fdatasync = recorder.around(os.fdatasync)
    syncer.sync = recorder.around_round(syncer.sync)
    syncer.Syncer._start = recorder.around_start(syncer.Syncer._start)  # type: ignore[method-assign]
    syncfs = file_systems._syncfs()
    if syncfs is not None:
        recorded = recorder.around(syncfs, is_of_file_system=True)
        file_systems._syncfs = lambda: recorded
    return process.main(argv)


if __name__ == "__main__":
    from tests.durability import recording_broker  # the classes are pickled under the module's name

    records = [flag.partition("=")[2] for flag in sys.argv if flag.startswith("--record=")]
    flags = [flag for flag in sys.argv[1:] if not flag.startswith("--record=")]
    sys.exit(recording_broker.main(Path(records[0]), flags))
