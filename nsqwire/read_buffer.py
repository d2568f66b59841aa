"""The bytes of a conversation between the read that brings them and the command they belong to."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable

from nsqwire.commands import Command
from nsqwire.errors import NSQError
from nsqwire.scan import Input

SCRATCH_BYTES = 256 * 1024
"""Size of the read buffer that all connections share while they have nothing unfinished."""

_LENGTH = struct.Struct(">i")
_FIRST_READ_BYTES = 4 * 1024
_LONG_COMMAND_BYTES = 16 * 1024
_SPARE_BUFFERS = 8

_spare: list[mmap.mmap] = []


def _new_buffer(size: int) -> Input:
    """Return a buffer. A long one takes memory as it is filled, and returns it to the system when dropped."""
    if size <= 2 * _LONG_COMMAND_BYTES:
        return bytearray(size)
    if size == SCRATCH_BYTES and _spare:
        return _spare.pop()
    mapped = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):  # otherwise the first byte would take two megabytes
        mapped.madvise(mmap.MADV_NOHUGEPAGE)
    return mapped


def _drop_buffer(buffer: Input) -> None:
    """Keep a buffer of the usual size for the next long command, because mapping memory is slow."""
    if len(buffer) == SCRATCH_BYTES and isinstance(buffer, mmap.mmap) and len(_spare) < _SPARE_BUFFERS:
        _spare.append(buffer)


class ReadBuffer:
    """Bytes ``_start`` to ``_end`` of ``_buffer`` are unread. A command that needs more bytes than there are keeps
    those from ``_line`` on and goes on with ``_resume``.

    ``scratch`` is a buffer that sessions of one thread share: an idle connection then owns none.
    """

    def __init__(self, scratch: bytearray) -> None:
        self.unfinished_bytes = 0
        """Bytes received of an incomplete command, at the last ``next_command`` that returned None."""
        self.is_new_unfinished = False
        """True if that command is a different one than at the ``next_command`` before."""
        self._scratch = scratch
        self._buffer: Input = scratch
        self._line = 0
        self._start = 0
        self._end = 0
        self._want = 0  # bytes the unfinished command is known to need from _start, for sizing the buffer
        self._resume: Callable[[], Command | None] | None = None
        self._eof_error: NSQError | None = None

    def get_buffer(self) -> memoryview:
        """Return where the next read may put bytes; at least one byte long."""
        return memoryview(self._buffer)[self._end :]

    @property
    def has_unread(self) -> bool:
        """True if there are received bytes that are in no command yet."""
        return self._start < self._end

    def received(self, nbytes: int) -> None:
        """Say that ``nbytes`` were put into the buffer."""
        self._end += nbytes

    def feed(self, data: bytes) -> None:
        """Add bytes that were read elsewhere (a decompressor, a test). Take the commands after each call."""
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
        """Move the unread input out of the shared buffer, into which other connections read."""
        if self._buffer is self._scratch:
            self._move(_new_buffer(self._end - self._kept_from() + _FIRST_READ_BYTES))

    def drop_unread(self) -> None:
        """Forget what came with IDENTIFY: a client that changes to TLS or compression waits for the answer first."""
        self._start = self._end

    def drop(self) -> None:
        """Drop all input and free its memory, after the conversation is over."""
        self._buffer, self._line, self._start, self._end = self._scratch, 0, 0, 0
        self._resume, self._eof_error, self._want, self.unfinished_bytes = None, None, 0, 0

    def _need(self, count: int, then: Callable[[], Command | None], eof_error: NSQError) -> Command | None:
        """Go on with ``then`` once ``count`` bytes are there; ``eof_error`` tells what is cut short otherwise."""
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
        """Leave the shared buffer if something unfinished is in it; let go of an own one that is empty."""
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
            # A client that sends long commands gets room for several at a read.
            self._move(_new_buffer(max(need, SCRATCH_BYTES if self._want > _LONG_COMMAND_BYTES else 0)))
        elif kept_from:
            self._move(self._buffer)

    def _move(self, to: Input) -> None:
        """Go on in ``to``, at its beginning."""
        kept_from = self._kept_from()
        with memoryview(to) as target, memoryview(self._buffer) as source:
            target[: self._end - kept_from] = source[kept_from : self._end]
        self._buffer = to
        self._line, self._start, self._end = 0, self._start - kept_from, self._end - kept_from
