"""Kills a broker between, before and in the middle of its writes to journal and log."""

from __future__ import annotations

from collections.abc import Callable

from brokerd.journal.journal import Journal
from brokerd.log.commits import RECORD_BYTES, Commit, CommitIndex


class Killed(BaseException):
    """The process ends here. No handler of the broker may catch it."""


class Fuse:
    """Kills the process at its n-th next write to journal or log."""

    def __init__(self) -> None:
        self.writes = 0
        self.is_blown = False
        self.how = "after"
        self.cut = 0

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


def fused_journal_append(append: Callable[[Journal, bytes], None]) -> Callable[[Journal, bytes], None]:
    def fused(self: Journal, record: bytes) -> None:
        before = self._generation, self._offset

        def tear(cut: int) -> None:
            if (self._generation, self._offset) == before:
                return  # it was dropped
            end = self._offset
            start = end - len(record) - 8
            self._map[start : start + 8] = bytes(8)  # it is written last
            self._map[min(start + 8 + cut, end) : end] = bytes(max(0, len(record) - cut))

        FUSE.around(lambda: append(self, record), tear)

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
    """A torn write leaves some of the records, and a part of the next."""

    def fused(self: CommitIndex, packed: bytes) -> None:
        def tear(cut: int) -> None:
            end = len(self) * RECORD_BYTES
            start = min(end - len(packed) + cut * len(packed) // RECORD_BYTES, end - 1)
            self.records[start:end] = bytes(end - start)

        FUSE.around(lambda: extend(self, packed), tear)

    return fused
