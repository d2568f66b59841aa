"""Headers of messages: the ``.hdr`` file beside a segment, which only a segment with headers has.

A file has a header (:mod:`brokerd.file_header`), then entries, ascending by number, big-endian:
``marker 00 "HDR" | length u32 | seq u64 | timestamp i64 | check u64 | header block``. ``timestamp`` is that of the
message, so that an entry of a publish that failed, or of another topic, is never taken for the message's. ``check`` is
XXH3-64 of the 24 bytes before it and the block. No block contains a control character, so the entry after a damaged one
is found by its marker. An entry is written before the commit record of its message.
Why the headers are stored beside the log: docs/architecture.md, "Headers of messages".
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from xxhash import xxh3_64_intdigest

from brokerd.file_header import HEADER_BYTES, HEADERS, WRITTEN
from brokerd.log.reclamation import free_in_a_thread
from nsqdaemon.descriptors import require_descriptor_for_file
from nsqwire.headers import MAX_BLOCK_BYTES
from nsqwire.units import Nanoseconds

SUFFIX: Final = ".hdr"
MAX_FILE_BYTES: Final = 64 * 1024 * 1024
"""A segment whose headers take this much is full. One with a single, larger batch has a larger file."""
PIECE_BYTES: Final = 16 * 1024
"""Bytes that are read and kept together: a client usually takes the messages in order."""
_FREED_IN_A_THREAD_FROM: Final = 256 * 1024

_MARKER: Final = b"\0HDR"
_HEAD: Final = struct.Struct(">4sIQqQ")
_CHECKED: Final = struct.Struct(">4sIQq")
_MAX_ENTRY_BYTES: Final = _HEAD.size + MAX_BLOCK_BYTES


class Entry(NamedTuple):
    """The headers of one message, at ``[start, end)`` of the file."""

    start: int
    end: int
    seq: int
    timestamp: Nanoseconds
    block: bytes


def entry_bytes(blocks: Sequence[bytes]) -> int:
    """Return the bytes that the entries of these blocks take in a file."""
    return sum(_HEAD.size + len(block) for block in blocks if block)


class HeaderFile:
    """The headers of one segment's messages. Without a path they are in memory."""

    def __init__(self, path: Path | None, end: int) -> None:
        """``end`` is the size of the file."""
        self.path = path
        self.end = end
        self.damaged: tuple[int, int] | None = None
        """The first damaged bytes ``[start, end)`` that were found."""
        self._memory = bytearray(WRITTEN[HEADERS.kind]) if path is None else None
        self._fd = -1
        self._is_checked = path is None
        self._last_seq: int | None = None
        self._tail = _Piece(0, -1)
        self._read = _Piece(0, -1)

    @classmethod
    def create(cls, path: Path | None) -> HeaderFile:
        """Create an empty file. Raises OSError; no file is left then."""
        file = cls(path, HEADER_BYTES)
        if path is not None:
            require_descriptor_for_file()
            file._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                file._write(WRITTEN[HEADERS.kind], 0)
            except OSError:
                file.close()
                path.unlink(missing_ok=True)
                raise
        file._is_checked, file._last_seq = True, -1
        return file

    @classmethod
    def existing(cls, path: Path) -> HeaderFile | None:
        """The file at ``path``; None if there is none, or something that the broker cannot have written.

        Raises OSError.
        """
        try:
            found = path.stat()
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(found.st_mode) or (found.st_size > MAX_FILE_BYTES and not _has_header(path)):
            return None
        return cls(path, max(found.st_size, HEADER_BYTES))

    # -- writing --------------------------------------------------------------------------------------------------

    def append(self, first_seq: int, blocks: Sequence[bytes], timestamp: Nanoseconds) -> None:
        """Add the headers of consecutive messages; an empty block is that of a message without headers.

        Raises OSError, with nothing added, if the disk is full.
        """
        if not self._is_checked:
            self.cut(first_seq)
        parts, last_seq, tail = list[bytes](), self.last_seq, self._tail
        if tail.nbytes > PIECE_BYTES or tail.last < last_seq:
            tail = _Piece(first_seq, first_seq - 1)
        found = [(seq, block) for seq, block in enumerate(blocks, first_seq) if block]
        for seq, block in found:
            head = _CHECKED.pack(_MARKER, len(block), seq, timestamp)
            parts += (head, xxh3_64_intdigest(head + block).to_bytes(8), block)
        if not found:
            return
        data = b"".join(parts)
        self._write(data, self.end)
        self.end += len(data)
        self._last_seq = found[-1][0]
        for seq, block in found:
            tail.add(seq, timestamp, block)
        tail.last = self._last_seq
        self._tail = tail

    def cut(self, next_seq: int) -> None:
        """Remove the entries from ``next_seq`` on: those of publishes that were not acknowledged. Raises OSError."""
        if self.path is not None and self._bytes(0, HEADER_BYTES) != WRITTEN[HEADERS.kind]:
            os.pwrite(self.open(), WRITTEN[HEADERS.kind], 0)
        start, _ = self._search(next_seq)
        cut = next((entry.start for entry in self._entries(start, self.end) if entry.seq >= next_seq), None)
        if cut is not None:
            self._truncate(cut)
        self._is_checked = True

    def _truncate(self, end: int) -> None:
        if self._memory is not None:
            del self._memory[end:]
        else:
            os.ftruncate(self.open(), end)
        self.end = end
        self._forget()

    def _write(self, data: bytes, offset: int) -> None:
        if self._memory is not None:
            self._memory[offset:] = data
            return
        fd = self.open()
        try:
            if os.pwrite(fd, data, offset) != len(data):
                raise OSError(errno.ENOSPC, "headers were written in part only", str(self.path))
        except OSError:
            with suppress(OSError):
                os.ftruncate(fd, offset)
            raise

    # -- reading --------------------------------------------------------------------------------------------------

    @property
    def last_seq(self) -> int:
        """The number of the last message with headers; -1 if there is none. Raises OSError."""
        if self._last_seq is None:
            at, last_seq = self._search(1 << 64)
            for entry in self._entries(at, self.end):
                at, last_seq = entry.end, max(last_seq, entry.seq)
            if at < self.end:
                self._found_damage(at, self.end)  # here, because nothing reads on after the last message with headers
            self._last_seq = last_seq
        return self._last_seq

    def find(self, seq: int, timestamp: Nanoseconds) -> bytes:
        """The header block of the message with this number and timestamp; empty if there is none, or it is damaged.

        Raises OSError if the file cannot be read.
        """
        if seq > self.last_seq:
            return b""
        piece = self._tail if self._tail.covers(seq) else self._read
        if not piece.covers(seq):
            piece = self._read = self._piece_with(seq)
        found, block = piece.blocks.get(seq, (0, b""))
        return block if found == timestamp else b""

    def entries(self) -> Iterator[Entry | tuple[int, int]]:
        """Yield all entries, and the damaged ranges ``(start, end)`` between them, in order. Raises OSError."""
        at = HEADER_BYTES
        for entry in self._entries(at, self.end):
            if entry.start > at:
                yield at, entry.start
            yield entry
            at = entry.end
        if at < self.end:
            yield at, self.end

    def open(self) -> int:
        """The descriptor; -1 for a file in memory. Raises OSError."""
        if self._fd < 0 and self.path is not None:
            require_descriptor_for_file()
            self._fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        return self._fd

    def _piece_with(self, seq: int) -> _Piece:
        """Read the entries around message ``seq``: those from it on, and some after them."""
        before = self._read
        if before.end and before.last < seq:  # messages are usually read in order
            piece = self._read_piece(before.last + 1, before.end)
            if piece.last >= seq:
                return piece
        piece = self._read_piece(seq, self._search(seq)[0])
        while piece.last < seq and piece.end < self.end:
            piece = self._read_piece(seq, piece.end)
        piece.last = max(piece.last, seq)
        return piece

    def _read_piece(self, first: int, start: int) -> _Piece:
        """Read PIECE_BYTES from ``start`` on. Entries before it have lower numbers than ``first``."""
        piece, at, stop = _Piece(first, first - 1), start, min(start + PIECE_BYTES, self.end)
        for entry in self._entries(start, stop):
            if entry.start > at:
                self._found_damage(at, entry.start)
            at = entry.end
            piece.add(entry.seq, entry.timestamp, entry.block)
            piece.last = max(piece.last, entry.seq)
        if at < stop:
            self._found_damage(at, stop)
        piece.end = max(at, stop)
        return piece

    def _search(self, seq: int) -> tuple[int, int]:
        """Return an offset before which all entries have numbers below ``seq``, and the number of the entry that ends
        there, or -1. If there is an entry of ``seq`` or a higher number, the first one is not far after the offset."""
        low, high, below = HEADER_BYTES, self.end, -1
        while high - low > 2 * PIECE_BYTES:
            middle = (low + high) // 2
            entry = next(self._entries(middle, high), None)
            if entry is None or entry.seq >= seq:
                high = middle
            else:
                low, below = entry.end, entry.seq
        return low, below

    def _entries(self, start: int, stop: int) -> Iterator[Entry]:
        """Yield the undamaged entries that begin in ``[start, stop)``."""
        while start < stop:
            piece_end = min(start + PIECE_BYTES, stop)
            data = self._bytes(start, min(piece_end + _MAX_ENTRY_BYTES, self.end))
            at, limit = 0, piece_end - start
            while 0 <= (at := data.find(_MARKER, at)) < limit:
                entry = _entry_at(data, at, start)
                if entry is None:
                    at += 1
                else:
                    yield entry
                    at = entry.end - start
            start = max(piece_end, start + max(at, 0))

    def _bytes(self, start: int, end: int) -> bytes:
        if self._memory is not None:
            return bytes(self._memory[start:end])
        return os.pread(self.open(), end - start, start)

    def _found_damage(self, start: int, end: int) -> None:
        self.damaged = self.damaged or (start, end)

    def _forget(self) -> None:
        self._last_seq = None
        self._tail, self._read = _Piece(0, -1), _Piece(0, -1)

    # -- the end --------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the descriptor until it is needed again, and forget what was read."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if self.path is not None:
            self._tail, self._read = _Piece(0, -1), _Piece(0, -1)

    def remove(self, *, at_once: bool = True) -> None:
        """Delete the file. A thread frees the space of a large one, unless ``at_once``."""
        if self.path is None:
            return
        fd = -1
        if not at_once and self.end >= _FREED_IN_A_THREAD_FROM:
            with suppress(OSError):
                fd, self._fd = self.open(), -1
        self.close()
        self.path.unlink(missing_ok=True)
        if fd >= 0:
            free_in_a_thread(fd, self.end)


class _Piece:
    """The entries of all messages from ``first`` to ``last`` that have headers. ``end`` is the offset after them."""

    __slots__ = ("blocks", "end", "first", "last", "nbytes")

    def __init__(self, first: int, last: int) -> None:
        self.first = first
        self.last = last
        self.end = 0
        self.nbytes = 0
        self.blocks: dict[int, tuple[Nanoseconds, bytes]] = {}

    def covers(self, seq: int) -> bool:
        return self.first <= seq <= self.last

    def add(self, seq: int, timestamp: Nanoseconds, block: bytes) -> None:
        self.blocks[seq] = timestamp, block
        self.nbytes += len(block)


def _has_header(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(HEADER_BYTES) == WRITTEN[HEADERS.kind]


def _entry_at(data: bytes, at: int, start: int) -> Entry | None:
    """The entry at ``data[at:]``; None if it is damaged. ``start`` is the offset of ``data`` in the file."""
    if len(data) - at < _HEAD.size:
        return None
    _, length, seq, timestamp, check = _HEAD.unpack_from(data, at)
    begin = at + _HEAD.size
    end = begin + length
    if end > len(data) or xxh3_64_intdigest(data[at : at + _CHECKED.size] + data[begin:end]) != check:
        return None
    return Entry(start + at, start + end, seq, timestamp, data[begin:end])
