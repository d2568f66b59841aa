"""Data paths as a power loss may leave them, built from the record of a broker's syncs.

A system call that returned made durable at least the contents from before it: of a file its size and pages, of a
directory its names. Anything written later may be on the disk or not, page by page and file by file, and a name may be
there without its contents. That is what POSIX promises; file systems that keep an order lose less.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.durability.recording_broker import ZEROS, File, Round, Snapshots, Sync, Tree


class Record(NamedTuple):
    """The syncs in the order in which they ended, and the contents of the data path after the last."""

    syncs: list[Sync]
    rounds: list[Round]
    last: Tree
    pages: dict[int, bytes]

    @classmethod
    def read(cls, path: Path, data_path: Path) -> Record:
        """Read the record of a process that has ended."""
        syncs, rounds, pages = list[Sync](), list[Round](), {-1: ZEROS}
        with path.open("rb") as file:
            while True:
                try:
                    entry = pickle.load(file)
                except (EOFError, pickle.UnpicklingError):  # the last one may be cut by the kill
                    break
                if isinstance(entry, Sync):
                    pages |= entry.pages
                    syncs.append(entry)
                else:
                    rounds.append(entry)
        snapshots = Snapshots(data_path)
        try:
            last = snapshots.tree()
        finally:
            snapshots.close()
        first_free = max(pages) + 1
        pages |= {first_free + number: page for number, page in snapshots.new_pages.items()}
        files = {
            inode: File(size, tuple(number if number < 0 else first_free + number for number in numbers))
            for inode, (size, numbers) in last.files.items()
        }
        return cls(syncs, rounds, last._replace(files=files), pages)

    def ends_ns(self, instant: int) -> float:
        """The end of an instant: until the sync of that position ends, the earlier ones are all that is durable."""
        return self.syncs[instant].ended_ns if instant < len(self.syncs) else float("inf")

    def build(self, instant: int, folder: Path, chance: Random | None) -> None:
        """Build what a power loss leaves before sync ``instant`` ends; without ``chance``, only what is durable."""
        Loss(self, instant, chance).build(self.last.root, folder)


class Loss:
    """A power loss before a sync ended, with the syncs before it complete."""

    def __init__(self, record: Record, instant: int, chance: Random | None) -> None:
        self._pages, self._chance = record.pages, chance
        self._trees = [sync.tree for sync in record.syncs[: instant + 1]]
        if instant >= len(record.syncs):
            self._trees.append(record.last)
        self._durable_since: dict[int, int] = {record.last.root: 0}
        """The position of the tree that has each inode's durable contents."""
        for position, sync in enumerate(record.syncs[:instant]):
            everything = [*sync.tree.files, *sync.tree.directories] if sync.inode is None else [sync.inode]
            self._durable_since.update(dict.fromkeys(everything, position))

    def build(self, inode: int, path: Path) -> None:
        """Write a directory and all that is in it."""
        path.mkdir()
        versions = [tree.directories[inode] for tree in self._trees_of(inode) if inode in tree.directories]
        durable = versions[0] if inode in self._durable_since and versions else {}
        names = durable if self._chance is None else self._chance.choice([durable, *versions])
        for name, child in names.items():
            if any(child in tree.directories for tree in self._trees):
                self.build(child, path / name)
            else:
                (path / name).write_bytes(self._contents(child))

    def _trees_of(self, inode: int) -> list[Tree]:
        """The snapshots since an inode was last made durable; all if it never was."""
        return self._trees[self._durable_since.get(inode, 0) :]

    def _contents(self, inode: int) -> bytes:
        versions = [tree.files[inode] for tree in self._trees_of(inode) if inode in tree.files]
        durable = versions[0] if inode in self._durable_since and versions else File(0, ())
        if self._chance is None:
            return self._join(durable.size, durable.pages)
        newest = self._chance.choice([durable, *versions])
        pages = []
        for at in range(len(newest.pages)):
            others = [version.pages[at] for version in (durable, *versions) if at < len(version.pages)]
            pages.append(self._chance.choice([newest.pages[at], *others, *([-1] if at >= len(durable.pages) else [])]))
        return self._join(newest.size, tuple(pages))

    def _join(self, size: int, pages: tuple[int, ...]) -> bytes:
        return b"".join(self._pages[number] for number in pages)[:size].ljust(size, b"\0")
