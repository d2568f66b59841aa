"""The received bytes of a connection until they are parsed as commands."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable

from nsqwire.commands import Command
from nsqwire.errors import NSQError
from nsqwire.scan import Input

SCRATCH_BYTES = 256 * 1024
"""Size of the read buffer that connections without an incomplete command share."""

_LENGTH = struct.Struct(">i")
_FIRST_READ_BYTES = 4 * 1024
_LONG_COMMAND_BYTES = 16 * 1024
_SPARE_BUFFERS = 8

_spare: list[mmap.mmap] = []


def _new_buffer(size: int) -> Input:
    """Return a buffer. A long one takes memory only as it is filled, and returns it to the system when it is freed."""
    if size <= 2 * _LONG_COMMAND_BYTES:
        return bytearray(size)
    if size == SCRATCH_BYTES and _spare:
        return _spare.pop()
    mapped = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):  # with huge pages, the first byte would use two megabytes
        mapped.madvise(mmap.MADV_NOHUGEPAGE)
    return mapped


def _drop_buffer(buffer: Input) -> None:
    """Keep a buffer of SCRATCH_BYTES for the next long command, because mapping memory is slow."""
    if len(buffer) == SCRATCH_BYTES and isinstance(buffer, mmap.mmap) and len(_spare) < _SPARE_BUFFERS:
        _spare.append(buffer)


class ReadBuffer:
    """The read buffer of one connection.

    Bytes ``_start`` to ``_end`` of ``_buffer`` are unread. While a command waits for its body, ``_resume`` continues to
    parse it, and the bytes from its line (``_line``) on are kept. ``scratch`` is a buffer that sessions of one thread
    share, so that an idle connection needs no buffer of its own.
    """

    def __init__(self, scratch: bytearray) -> None:
        self.unfinished_bytes = 0
        """Bytes received of an incomplete command, at the last ``next_command`` that returned None."""
        self.is_new_unfinished = False
        """True if that command is not the one that was incomplete at the previous ``next_command``."""
        self._scratch = scratch
        self._buffer: Input = scratch
        self._line = 0
        self._start = 0
        self._end = 0
        self._want = 0  # bytes from _start that the incomplete command is known to need, for sizing the buffer
        self._resume: Callable[[], Command | None] | None = None
        self._eof_error: NSQError | None = None

    def get_buffer(self) -> memoryview:
        """Return the memory for the next read, at least one byte."""
        return memoryview(self._buffer)[self._end :]

    @property
    def has_unread(self) -> bool:
        """True if received bytes are not parsed yet."""
        return self._start < self._end

    def received(self, nbytes: int) -> None:
        """Record that ``nbytes`` were read into the buffer."""
        self._end += nbytes

    def feed(self, data: bytes) -> None:
        """Add bytes from another source, such as a decompressor. Take the commands after each call."""
        at = 0
        while at < len(data):
            with self.get_buffer() as room:
                n = min(len(room), len(data) - at)
                room[:n] = data[at : at + n]
            self.received(n)
            at += n
            if at < len(data):
                self._make_room()

    def keep_unread(self) -> None:
        """Copy the unread input out of the shared buffer, which other connections overwrite."""
        if self._buffer is self._scratch:
            self._move(_new_buffer(self._end - self._kept_from() + _FIRST_READ_BYTES))

    def drop_unread(self) -> None:
        """Drop the input after an IDENTIFY that enables TLS or compression: the client must wait for the response."""
        self._start = self._end

    def drop(self) -> None:
        """Drop all input and free its memory, after the connection has ended."""
        self._buffer, self._line, self._start, self._end = self._scratch, 0, 0, 0
        self._resume, self._eof_error, self._want, self.unfinished_bytes = None, None, 0, 0

    def _need(self, count: int, then: Callable[[], Command | None], eof_error: NSQError) -> Command | None:
        """Call ``then`` once ``count`` bytes are received. If the client closes first, it is sent ``eof_error``."""
        if self._end - self._start >= count:
            self._resume, self._eof_error, self._want = None, None, 0
            return then()
        self._resume = lambda: self._need(count, then, eof_error)
        self._eof_error = eof_error
        self._want = count
        return None

    def _length(self, then: Callable[[int], Command | None], eof_error: NSQError) -> Command | None:
        return self._need(4, lambda: then(_LENGTH.unpack(self._take(4))[0]), eof_error)

    def _take(self, count: int) -> memoryview:
        view = memoryview(self._buffer)[self._start : self._start + count]
        self._start += count
        return view

    def _kept_from(self) -> int:
        return self._start if self._resume is None else self._line

    def _make_room(self) -> None:
        """Move an incomplete command to a buffer of its own, and return to the shared buffer when nothing is unread."""
        kept_from = self._kept_from()
        self.unfinished_bytes = self._end - kept_from
        self.is_new_unfinished = kept_from > 0 or self._buffer is self._scratch
        if kept_from == self._end:
            if self._buffer is not self._scratch:
                _drop_buffer(self._buffer)
            self._buffer, self._line, self._start, self._end = self._scratch, 0, 0, 0
            return
        need = self._start - kept_from + max(self._want, self._end - self._start) + _FIRST_READ_BYTES
        if self._buffer is self._scratch or not need <= len(self._buffer) <= max(2 * need, SCRATCH_BYTES):
            # A client that sends long commands gets space for several in one read.
            self._move(_new_buffer(max(need, SCRATCH_BYTES if self._want > _LONG_COMMAND_BYTES else 0)))
        elif kept_from:
            self._move(self._buffer)

    def _move(self, to: Input) -> None:
        """Move the unread bytes to the beginning of ``to`` and use it from now on."""
        kept_from = self._kept_from()
        with memoryview(to) as target, memoryview(self._buffer) as source:
            target[: self._end - kept_from] = source[kept_from : self._end]
        self._buffer = to
        self._line, self._start, self._end = 0, self._start - kept_from, self._end - kept_from
