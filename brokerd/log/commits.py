"""Commit records: one for each batch that was appended, in the ``.idx`` file beside a segment.

A file has a header (:mod:`brokerd.file_header`), then records of 48 bytes (:mod:`brokerd.kernel.commit`), then zeros.
``end`` is the byte offset in the ``.log`` after the batch, which is ``length`` bytes long. ``data_hash`` is XXH3-64 of
those bytes. The first record of a segment has no messages: it marks the beginning, so that a file of zeros is
recognised as damaged. Its ``end`` is the offset of the first frame. The lowest bit of its ``data_hash`` is 1 if
messages of the segment have headers; the bits above are the topic's number plus 1, so that the index of another topic
is recognised, or 0 if the number is unknown. A full segment is sealed by a record without messages, whose ``data_hash``
is the hash of all earlier records. Files of format 0 have no header.
Why the records are stored beside the log: docs/architecture.md, "Segments".
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

from brokerd.file_header import HEADER_BYTES, INDEX, WRITTEN, data_start
from brokerd.kernel import find_batch
from brokerd.kernel.commit import DEFER_MS, FIELDS, RECORD_BYTES, is_sound, pack_record
from brokerd.log.files import NotAllocated, topic_number
from brokerd.new_map import map_new_file, require_readable
from brokerd.zero_padding import end_of_contents
from nsqwire.units import Nanoseconds

FIRST_INDEX_BYTES = 4096
_HAS_HEADERS = 1
"""The lowest bit of the first record's ``data_hash``."""
_HEADER = WRITTEN[INDEX.kind]

Fields = tuple[int, int, int, int, int, int, int]
"""A Commit, or a plain tuple of its fields, which is faster to create."""


class Commit(NamedTuple):
    """One commit record. ``defer_ms`` is 0 if the messages are delivered at once.

    A record with no ``messages`` is not that of a batch.
    """

    first_seq: int
    end: int
    timestamp: Nanoseconds
    data_hash: int
    messages: int
    defer_ms: int
    length: int

    @property
    def next_seq(self) -> int:
        """The number after the batch's last message."""
        return self.first_seq + self.messages

    @property
    def start(self) -> int:
        """The byte offset in the ``.log`` at which the batch begins."""
        return self.end - self.length

    def matches(self, log: memoryview) -> bool:
        """Return whether the batch in ``log`` is undamaged."""
        return xxh3_64_intdigest(log[self.start : self.end]) == self.data_hash


class CommitRecords:
    """The commit records in the bytes of an ``.idx``. Reading changes nothing."""

    def __init__(self, data: memoryview, *, is_new: bool = False) -> None:
        self._start = data_start(bytes(data[:HEADER_BYTES]))
        self._records: memoryview | None = data[self._start :]
        used = 0 if is_new else end_of_contents(self._records)  # reading a new file fills its pages
        self._count = min(-(-used // RECORD_BYTES), len(self._records) // RECORD_BYTES)

    @property
    def records(self) -> memoryview:
        """The bytes after the header, including the space for further records."""
        assert self._records is not None
        return self._records

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, position: int) -> Commit:
        """The record at ``position``, which may be negative as in a list. A damaged one is returned as it is."""
        if position < 0:
            position += self._count
        if not 0 <= position < self._count:
            raise IndexError(position)
        return Commit(*FIELDS.unpack_from(self.records, position * RECORD_BYTES))

    @property
    def says_headers(self) -> bool:
        """True if the first record says that messages of the segment have headers."""
        return bool(self._first_hash & _HAS_HEADERS)

    def other_topic(self, directory: Path) -> int | None:
        """The number of the topic whose index it is, if that is not the topic of ``directory``; None otherwise."""
        found = (self._first_hash >> 1) - 1
        return None if found < 0 or topic_number(directory) in (None, found) else found

    @property
    def _first_hash(self) -> int:
        """The ``data_hash`` of the first record; 0 if it is damaged."""
        return first.data_hash if self._count and self.checks(0) and not (first := self[0]).messages else 0

    @property
    def ends_with_a_page(self) -> bool:
        """True if the last record ends at a page boundary. Further records may then be lost with the next page."""
        return (self._start + self._count * RECORD_BYTES) % mmap.PAGESIZE == 0

    @property
    def end(self) -> int:
        """The byte offset in the ``.idx`` after the last record."""
        return self._start + self._count * RECORD_BYTES

    def checks(self, position: int) -> bool:
        """Return whether the record at ``position`` is undamaged."""
        return is_sound(self._bytes_of(position))

    def damaged(self) -> list[int]:
        """The positions of the damaged records."""
        if self._count and self.checks(self._count - 1):
            seal = self[-1]
            if not seal.messages and seal.data_hash == xxh3_64_intdigest(self._bytes_below(self._count - 1)):
                return []
        return [position for position in range(self._count) if not self.checks(position)]

    def valid(self) -> Iterator[tuple[int, Commit]]:
        """The valid records, each with its position."""
        return ((position, self[position]) for position in range(self._count) if self.checks(position))

    def find(self, seq: int) -> int:
        """The position of the record of the batch with message ``seq``."""
        return find_batch(self.records, self._count, seq)

    def deferred_from(self, position: int) -> Iterator[Commit]:
        """Yield the records from ``position`` on whose messages were deferred.

        Most segments have none, so the bytes of ``defer_ms`` are compared with zeros before any record is unpacked.
        """
        data = bytes(self.records[position * RECORD_BYTES : self._count * RECORD_BYTES])
        if any(data[byte::RECORD_BYTES].strip(b"\0") for byte in DEFER_MS):
            for each in range(position, self._count):
                commit = self[each]
                if commit.defer_ms:
                    yield commit

    def _bytes_of(self, position: int) -> bytes:
        return bytes(self.records[position * RECORD_BYTES : (position + 1) * RECORD_BYTES])

    def _bytes_below(self, position: int) -> memoryview:
        return self.records[: position * RECORD_BYTES]


def index_bytes(batches: int) -> int:
    """Return the size of an index with space for ``batches``, besides the records of its beginning and its end."""
    return max(FIRST_INDEX_BYTES, 1 << (HEADER_BYTES + (batches + 2) * RECORD_BYTES - 1).bit_length())


class CommitIndex(CommitRecords):
    """The commit records of one segment, in a mapped file that grows by doubling. Without a path they are in memory."""

    def __init__(self, path: Path | None, *, create: bool, batches: int = 0) -> None:
        """Open the file, or create it with space for that many ``batches``.

        Raises OSError if the file cannot be read, or if the disk is full: space is allocated before it is mapped.
        """
        self._path = path
        size = 0
        if path is not None and create:
            path.unlink(missing_ok=True)
        elif path is not None:
            size = path.stat().st_size if path.exists() else 0
        # Files only ever have these sizes, so any other size means that the file was truncated.
        self.was_cut = not create and (size < FIRST_INDEX_BYTES or size & (size - 1) != 0)
        self._size = max(size, index_bytes(batches))
        map_ = self._map()
        if path is not None and not create:
            require_readable(map_, 0, self._size, path)
        super().__init__(memoryview(map_), is_new=create)

    def _map(self) -> mmap.mmap:
        """Map the file, and write the header if it is missing or damaged."""
        map_ = mmap.mmap(-1, self._size) if self._path is None else _map_file(self._path, self._size)
        if map_[:HEADER_BYTES] != _HEADER and data_start(map_[:HEADER_BYTES]):
            map_[:HEADER_BYTES] = _HEADER
        return map_

    @property
    def records(self) -> memoryview:
        """The bytes after the header, including the space for further records. Maps the file again if needed."""
        if self._records is None:
            assert self._path is not None, "in memory, the map is all there is"
            self._records = memoryview(self._map())[self._start :]
        return self._records

    @property
    def allocated_bytes(self) -> int:
        """Size of the file."""
        return self._size

    def unmap(self) -> None:
        """Close the descriptor and the map until they are needed again."""
        if self._path is not None:
            self._records = None

    def detach(self) -> mmap.mmap | None:
        """Return the map of a deleted file, to be closed. Nothing can be read or written afterwards."""
        records, self._records, self._path = self._records, None, None
        if records is None:
            return None
        map_ = records.obj
        assert isinstance(map_, mmap.mmap)
        records.release()
        return map_

    def begin(self, first_seq: int, start: int) -> None:
        """Write the first record of a segment, whose frames begin at ``start``. Raises OSError if the disk is full."""
        topic = None if self._path is None else topic_number(self._path.parent)
        self.append(Commit(first_seq, start, 0, 0 if topic is None else topic + 1 << 1, 0, 0, 0))

    def say_headers(self) -> None:
        """Write into the first record that messages of the segment have headers."""
        if self._count and self.checks(0) and not self[0].messages:
            self.replace(0, self[0]._replace(data_hash=self._first_hash | _HAS_HEADERS))

    def append(self, fields: Fields) -> None:
        """Add a record of a Commit's fields. Raises OSError if the disk is full; nothing was added then."""
        self.reserve(1)
        self.replace(self._count, fields)
        self._count += 1

    def reserve(self, count: int) -> None:
        """Allocate space for ``count`` more records. Raises OSError if the disk is full."""
        while self._start + (self._count + count) * RECORD_BYTES > self._size:
            self._grow()

    def growth(self, count: int) -> Callable[[], mmap.mmap] | None:
        """Return a function that allocates space for ``count`` more records, and returns the map for ``adopt``.

        Any thread may call it. None if there is space, or if the records are in memory.
        """
        size, needed = self._size, self._start + (self._count + count) * RECORD_BYTES
        if needed <= size or self._path is None:
            return None
        while size < needed:
            size *= 2
        return partial(_map_file, self._path, size)

    def adopt(self, grown: mmap.mmap) -> None:
        """Use a map that ``growth`` has made."""
        if self._path is None:
            grown.close()
        else:
            self._size, self._records = len(grown), memoryview(grown)[self._start :]

    def extend(self, records: bytes | memoryview) -> None:
        """Add packed records, whose space was allocated by ``reserve``."""
        offset = self._count * RECORD_BYTES
        (self._records or self.records)[offset : offset + len(records)] = records
        self._count += len(records) // RECORD_BYTES

    @property
    def next_place(self) -> tuple[memoryview, int]:
        """``records``, and the offset of the next record in it, which is its length if there is no space left."""
        return self._records or self.records, self._count * RECORD_BYTES

    def appended(self) -> None:
        """Count a record that was written at ``next_place``."""
        self._count += 1

    def replace(self, position: int, fields: Fields) -> None:
        """Write a record at ``position``, whose space is allocated."""
        offset = position * RECORD_BYTES
        (self._records or self.records)[offset : offset + RECORD_BYTES] = pack_record(*fields)

    def seal(self) -> None:
        """Append the seal of a full segment, with the hash of all records. Raises OSError if the disk is full."""
        if self._count:
            last = self[-1]
            digest = xxh3_64_intdigest(self._bytes_below(self._count))
            self.append(Commit(last.next_seq, last.end, last.timestamp, digest, 0, 0, 0))

    def truncate(self, count: int) -> None:
        """Keep the first ``count`` records, and overwrite the others with zeros."""
        self._count = count
        offset = count * RECORD_BYTES
        self.records[offset:] = bytes(len(self.records) - offset)

    def _grow(self) -> None:
        before, self._size = self.records, 2 * self._size
        try:
            grown = self._map()
        except OSError:
            self._size //= 2
            raise
        self._records = memoryview(grown)[self._start :]
        if self._path is None:
            self._records[: len(before)] = before


def _map_file(path: Path, size: int) -> mmap.mmap:
    """Create the file or extend it to ``size`` bytes, and map it. Only the map keeps a descriptor open.

    Raises NotAllocated, and another OSError if the file cannot be opened.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        return map_new_file(fd, size) if os.fstat(fd).st_size < size else mmap.mmap(fd, size)
    except OSError as error:
        raise NotAllocated(error, max(mmap.PAGESIZE, size - os.fstat(fd).st_size)) from error
    finally:
        os.close(fd)
