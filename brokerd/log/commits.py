"""Commit records: one for each batch that was appended, in the ``.idx`` file beside a segment.

Layout, big-endian, 48 bytes each, zero-filled behind the last:
``first_seq u64 | end u64 | timestamp_ns i64 | data_hash u64 | messages u32 | defer_ms u32 | reserved u32 | check u32``.
``end`` is the byte offset in the ``.log`` behind the batch; it starts where the record before ends. ``data_hash`` is
XXH3-64 of the batch's bytes, ``check`` the low half of XXH3-64 of the record's first 44 bytes.
Source: our own; why they stand beside the log is in docs/architecture.md, "Segments".
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

_FIELDS = struct.Struct(">QQqQIII")
_CHECK = struct.Struct(">I")
RECORD_BYTES = _FIELDS.size + _CHECK.size
_FIRST_BYTES = 4096


class Commit(NamedTuple):
    """One batch. ``defer_ms`` is 0 for messages to be delivered at once."""

    first_seq: int
    end: int
    timestamp: int
    data_hash: int
    messages: int
    defer_ms: int

    @property
    def next_seq(self) -> int:
        """The number behind the batch's last message."""
        return self.first_seq + self.messages


class CommitIndex:
    """The commit records of one segment, in a mapped file that grows by doubling; in memory without a path."""

    def __init__(self, path: Path | None, *, create: bool) -> None:
        """Open or create. Raises OSError, also for a full disk: space is allocated before it is mapped."""
        self._path = path
        self._count = 0
        if path is None:
            self._map = mmap.mmap(-1, _FIRST_BYTES)
        else:
            size = path.stat().st_size if path.exists() and not create else 0
            self._map = _mapped(path, max(size, _FIRST_BYTES))

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, position: int) -> Commit:
        """The record at ``position``, which may be negative as in a list."""
        if position < 0:
            position += self._count
        fields = _FIELDS.unpack_from(self._map, position * RECORD_BYTES)
        return Commit(*fields[:6])

    def append(self, commit: Commit) -> None:
        """Add a record. Raises OSError if the disk is full; nothing was added then."""
        offset = self._count * RECORD_BYTES
        if offset + RECORD_BYTES > len(self._map):
            self._grow()
        _FIELDS.pack_into(self._map, offset, *commit, 0)
        check = xxh3_64_intdigest(self._map[offset : offset + _FIELDS.size]) & 0xFFFFFFFF
        _CHECK.pack_into(self._map, offset + _FIELDS.size, check)
        self._count += 1

    def recover(self, log: memoryview, first_seq: int) -> None:
        """Take over the records up to the first that does not check, or whose batch does not.

        A record checks if it follows on the one before and its two hashes hold. What is behind it is overwritten by the
        next append; the caller compares lengths to learn whether anything was cut.
        """
        self._count = 0
        end, next_seq = 0, first_seq
        while (self._count + 1) * RECORD_BYTES <= len(self._map):
            offset = self._count * RECORD_BYTES
            (check,) = _CHECK.unpack_from(self._map, offset + _FIELDS.size)
            if check != xxh3_64_intdigest(self._map[offset : offset + _FIELDS.size]) & 0xFFFFFFFF:
                break
            commit = self[self._count]
            if commit.first_seq != next_seq or not end < commit.end <= len(log) or not commit.messages:
                break
            if xxh3_64_intdigest(log[end : commit.end]) != commit.data_hash:
                break
            end, next_seq = commit.end, commit.next_seq
            self._count += 1

    def trust(self) -> None:
        """Take over all records without reading the batches: the segment was sealed by a newer one."""
        low, high = 0, len(self._map) // RECORD_BYTES
        while low < high:
            middle = (low + high) // 2
            if self[middle].messages:
                low = middle + 1
            else:
                high = middle
        self._count = low

    def erase_behind(self) -> bool:
        """Zero what lies behind the last record, so that it is never taken for one. True if anything was there."""
        offset = self._count * RECORD_BYTES
        rest = len(self._map) - offset
        dirty = self._map[offset:].strip(b"\0") != b""
        if dirty:
            self._map[offset:] = bytes(rest)
        return dirty

    def find(self, seq: int) -> int:
        """The position of the record of the batch that holds message ``seq``."""
        low, high = 0, self._count
        while low < high:
            middle = (low + high) // 2
            if self[middle].next_seq <= seq:
                low = middle + 1
            else:
                high = middle
        return low

    def close(self) -> None:
        """Let go of the file; the records stay."""
        self._map.close()

    def _grow(self) -> None:
        size = 2 * len(self._map)
        if self._path is None:
            grown = mmap.mmap(-1, size)
            grown[: len(self._map)] = self._map[:]
        else:
            grown = _mapped(self._path, size)
        self._map.close()
        self._map = grown


def _mapped(path: Path, size: int) -> mmap.mmap:
    """Map a file of ``size`` bytes, made or extended first, with no descriptor left open."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, size)
        return mmap.mmap(fd, size)
    finally:
        os.close(fd)
