"""Commit records: one for each batch that was appended, in the ``.idx`` file beside a segment.

Layout, big-endian, 48 bytes each, zero-filled behind the last:
``first_seq u64 | end u64 | timestamp_ns i64 | data_hash u64 | messages u32 | defer_ms u32 | length u32 | check u32``.
``end`` is the byte offset in the ``.log`` behind the batch, which is ``length`` bytes long. ``data_hash`` is XXH3-64 of
those bytes, ``check`` the low half of XXH3-64 of the record's first 44 bytes. A full segment is sealed by a record
without messages whose ``data_hash`` is that of all earlier records. The first record of a segment has no messages
either: it marks the beginning, so that a file of zeros is known to be damaged.
Source: our own; why they stand beside the log is in docs/architecture.md, "Segments".
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

from brokerd.kernel import find_batch
from brokerd.log.files import NotAllocated

_FIELDS = struct.Struct(">QQqQIII")
_CHECK = struct.Struct(">I")
RECORD_BYTES = _FIELDS.size + _CHECK.size
_DEFER_MS = range(36, 40)
"""Where its bytes are in a record."""
FIRST_INDEX_BYTES = 4096


Fields = tuple[int, int, int, int, int, int, int]
"""A Commit, or a plain tuple of its fields, which takes less time to make."""


class Commit(NamedTuple):
    """One batch. ``defer_ms`` is 0 for messages to be delivered at once; one without messages holds nothing."""

    first_seq: int
    end: int
    timestamp: int
    data_hash: int
    messages: int
    defer_ms: int
    length: int

    @property
    def next_seq(self) -> int:
        """The number behind the batch's last message."""
        return self.first_seq + self.messages

    @property
    def start(self) -> int:
        """Where the batch begins in the ``.log``."""
        return self.end - self.length

    def matches(self, log: memoryview) -> bool:
        """Tell whether the batch in ``log`` is what was written."""
        return xxh3_64_intdigest(log[self.start : self.end]) == self.data_hash


class CommitIndex:
    """The commit records of one segment, in a mapped file that grows by doubling; in memory without a path."""

    def __init__(self, path: Path | None, *, create: bool) -> None:
        """Open or create. Raises OSError, also for a full disk: space is allocated before it is mapped."""
        self._path = path
        self._count = 0
        self.was_cut = False
        self._mapped: mmap.mmap | None
        if path is None:
            self._mapped = mmap.mmap(-1, FIRST_INDEX_BYTES)
        else:
            if create:
                path.unlink(missing_ok=True)
            size = path.stat().st_size if path.exists() else 0
            # Files only ever have these sizes, so any other size means that the file was truncated.
            self.was_cut = not create and (size < FIRST_INDEX_BYTES or size & (size - 1) != 0)
            self._mapped = _map_file(path, max(size, FIRST_INDEX_BYTES))
        self._size = len(self._mapped)

    @property
    def _map(self) -> mmap.mmap:
        if self._mapped is None:
            assert self._path is not None, "in memory, the map is all there is"
            self._mapped = _map_file(self._path, self._size)
        return self._mapped

    def unmap(self) -> None:
        """Hold no descriptor and no map until they are needed again."""
        if self._path is not None:
            self._mapped = None

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, position: int) -> Commit:
        """The record at ``position``, which may be negative as in a list."""
        if position < 0:
            position += self._count
        if not 0 <= position < self._count:
            raise IndexError(position)
        return Commit(*_FIELDS.unpack_from(self._map, position * RECORD_BYTES))

    def begin(self, first_seq: int) -> None:
        """Write the first record of a segment. Raises OSError if the disk is full."""
        self.append(Commit(first_seq, 0, 0, 0, 0, 0, 0))

    @property
    def ends_with_a_page(self) -> bool:
        """True if the last record ends at a page boundary: a lost page of further records would look the same."""
        return self._count * RECORD_BYTES % mmap.PAGESIZE == 0

    def append(self, fields: Fields) -> None:
        """Add a record of a Commit's fields. Raises OSError if the disk is full; nothing was added then."""
        if (self._count + 1) * RECORD_BYTES > self._size:
            self._grow()
        self.replace(self._count, fields)
        self._count += 1

    @property
    def next_place(self) -> tuple[mmap.mmap, int]:
        """The file and the offset in it where the next record goes, which may be where the file ends."""
        return self._mapped or self._map, self._count * RECORD_BYTES

    def appended(self) -> None:
        """Count a record that was written at ``next_place``."""
        self._count += 1

    def replace(self, position: int, fields: Fields) -> None:
        """Write a record where there is room for one."""
        offset = position * RECORD_BYTES
        record = _FIELDS.pack(*fields)
        check = xxh3_64_intdigest(record) & 0xFFFFFFFF
        (self._mapped or self._map)[offset : offset + RECORD_BYTES] = record + _CHECK.pack(check)

    def seal(self) -> None:
        """Vouch for all records at once: nothing comes after them. Raises OSError if the disk is full."""
        if self._count:
            last = self[-1]
            digest = xxh3_64_intdigest(self._map[: self._count * RECORD_BYTES])
            self.append(Commit(last.next_seq, last.end, last.timestamp, digest, 0, 0, 0))

    def load(self) -> list[int]:
        """Take over the records that are there. Returns the positions of those that do not check."""
        used = len(self._map[:].rstrip(b"\0"))
        self._count = min(-(-used // RECORD_BYTES), len(self._map) // RECORD_BYTES)
        if self._count and self.checks(self._count - 1):
            seal = self[-1]
            if not seal.messages and seal.data_hash == xxh3_64_intdigest(self._map[: (self._count - 1) * RECORD_BYTES]):
                return []
        return [position for position in range(self._count) if not self.checks(position)]

    def sound(self) -> Iterator[tuple[int, Commit]]:
        """The valid records, each with its position."""
        return ((position, self[position]) for position in range(self._count) if self.checks(position))

    def truncate(self, count: int) -> None:
        """Keep the first ``count`` records, and zero what is behind them so that it is never taken for one."""
        self._count = count
        offset = count * RECORD_BYTES
        self._map[offset:] = bytes(len(self._map) - offset)

    def checks(self, position: int) -> bool:
        """Tell whether the record at ``position`` is what was written."""
        offset = position * RECORD_BYTES
        map_ = self._map
        (check,) = _CHECK.unpack_from(map_, offset + _FIELDS.size)
        return bool(check == _check(map_, offset))

    def find(self, seq: int) -> int:
        """The position of the record of the batch that holds message ``seq``."""
        return find_batch(self._map, self._count, seq)

    @property
    def records(self) -> mmap.mmap:
        """The records' bytes, for the kernel."""
        return self._map

    def deferred_from(self, position: int) -> Iterator[Commit]:
        """The records from ``position`` on that have a ``defer_ms``.

        Mostly there are none among very many, so its bytes are looked at first, without a record made of any.
        """
        start, end = position * RECORD_BYTES, self._count * RECORD_BYTES
        if any(self._map[start + byte : end : RECORD_BYTES].strip(b"\0") for byte in _DEFER_MS):
            for each in range(position, self._count):
                commit = self[each]
                if commit.defer_ms:
                    yield commit

    def _grow(self) -> None:
        size = 2 * self._size
        if self._path is None:
            grown = mmap.mmap(-1, size)
            grown[: self._size] = self._map[:]
        else:
            grown = _map_file(self._path, size)
        self._mapped, self._size = grown, size


def read_records(data: bytes) -> tuple[list[Commit], list[int]]:
    """The valid records of an ``.idx``, and the positions of the others."""
    used = len(data.rstrip(b"\0"))
    sound, damaged = list[Commit](), list[int]()
    for position in range(min(-(-used // RECORD_BYTES), len(data) // RECORD_BYTES)):
        record = data[position * RECORD_BYTES : (position + 1) * RECORD_BYTES]
        if xxh3_64_intdigest(record[: _FIELDS.size]) & 0xFFFFFFFF == _CHECK.unpack_from(record, _FIELDS.size)[0]:
            sound.append(Commit(*_FIELDS.unpack_from(record)))
        else:
            damaged.append(position)
    return sound, damaged


def _check(map_: mmap.mmap, offset: int) -> int:
    return xxh3_64_intdigest(map_[offset : offset + _FIELDS.size]) & 0xFFFFFFFF


def _map_file(path: Path, size: int) -> mmap.mmap:
    """Map a file of ``size`` bytes, made or extended first, with no descriptor left open but the map's own.

    Raises NotAllocated, and OSError if the file cannot be opened.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, size)
        return mmap.mmap(fd, size)
    except OSError as error:
        raise NotAllocated(error, max(mmap.PAGESIZE, size - os.fstat(fd).st_size)) from error
    finally:
        os.close(fd)
