"""Kills a broker before, in the middle of or after one of its writes to journal and log."""

from __future__ import annotations

import os
from collections.abc import Callable

from brokerd.journal.journal import Journal
from brokerd.journal.recovery import RECORD_HEAD
from brokerd.log.commits import RECORD_BYTES, Commit, CommitIndex
from brokerd.log.headers import HeaderFile


class Killed(BaseException):
    """The process ends here. No handler of the broker may catch it."""


class Fuse:
    """Kills the process at its n-th next write to journal or log."""

    def __init__(self) -> None:
        self.writes = 0
        self.is_blown = False
        self.how = "after"
        """When the kill comes: ``before`` the write or ``after`` it; with ``torn``, only a part of it is written."""
        self.cut = 0
        """That part: bytes of a record of the journal or of an index; of any other write, a share of RECORD_BYTES."""

    def around(self, write: Callable[[], None], tear: Callable[[int], None]) -> None:
        """Call ``write``, or kill the process before, in the middle of or after it. ``tear`` writes only the first
        bytes.

        A dead process writes nothing more, even where the exception passes a ``finally``.
        """
        if self.is_blown:
            raise Killed
        self.writes -= 1
        if self.writes:
            write()
            return
        if self.how != "before":
            write()
        if self.how == "torn":
            tear(self.cut)
        self.is_blown = True
        raise Killed

    def put_out(self) -> None:
        """Cancel the pending kill."""
        self.writes, self.is_blown = 0, False


FUSE = Fuse()


def fused_journal_put(put: Callable[[Journal, bytes], None]) -> Callable[[Journal, bytes], None]:
    """Wrap the write of one record, which may also be the one that begins a journal or marks a gap."""

    def fused(self: Journal, record: bytes) -> None:
        def tear(cut: int) -> None:
            end = self._offset
            start = end - len(record) - RECORD_HEAD.size
            body = start + RECORD_HEAD.size
            self._map[start:body] = bytes(RECORD_HEAD.size)  # it is written last
            self._map[min(body + cut, end) : end] = bytes(max(0, len(record) - cut))

        FUSE.around(lambda: put(self, record), tear)

    return fused


def fused_header_write(write: Callable[[HeaderFile, bytes, int], None]) -> Callable[[HeaderFile, bytes, int], None]:
    """Wrap the write of a publish's headers, or of the header of their file."""

    def fused(self: HeaderFile, data: bytes, offset: int) -> None:
        def tear(cut: int) -> None:
            if self.path is not None:
                os.truncate(self.path, offset + cut * len(data) // RECORD_BYTES)

        FUSE.around(lambda: write(self, data, offset), tear)

    return fused


def fused_commit_append(append: Callable[[CommitIndex, Commit], None]) -> Callable[[CommitIndex, Commit], None]:
    def fused(self: CommitIndex, commit: Commit) -> None:
        def tear(cut: int) -> None:
            end = len(self) * RECORD_BYTES
            start = min(end - RECORD_BYTES + cut, end - 1)
            self.records[start:end] = bytes(end - start)

        FUSE.around(lambda: append(self, commit), tear)

    return fused


def fused_commit_extend(extend: Callable[[CommitIndex, bytes], None]) -> Callable[[CommitIndex, bytes], None]:
    """An interrupted write leaves some of the records, and a part of the next."""

    def fused(self: CommitIndex, packed: bytes) -> None:
        def tear(cut: int) -> None:
            end = len(self) * RECORD_BYTES
            start = min(end - len(packed) + cut * len(packed) // RECORD_BYTES, end - 1)
            self.records[start:end] = bytes(end - start)

        FUSE.around(lambda: extend(self, packed), tear)

    return fused
