"""Frames, the unit of everything a broker sends: ``size i32 | type i32 | data``, big-endian, size = 4 + len(data).

A message frame's data is ``timestamp i64 (ns) | attempts u16 | id 16 ASCII hex digits | body``. Type 3 is a message
with headers, for clients that agreed to headers in IDENTIFY: ``header size i32 | header block`` are between its id and
its body (:mod:`nsqwire.headers`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

from nsqwire.units import Nanoseconds

RESPONSE, ERROR, MESSAGE, MESSAGE_WITH_HEADERS = 0, 1, 2, 3

HEADER = struct.Struct(">iI")
MESSAGE_HEAD = struct.Struct(">iIqH16s")
MESSAGE_HEAD_BYTES = MESSAGE_HEAD.size
"""Bytes before the body of a message frame, size field included: 34."""

MESSAGE_ID_BYTES = 16

HEARTBEAT = b"_heartbeat_"
_HTTP = int.from_bytes(b"HTTP", "big")

Span = tuple[int, int, int]
"""A frame's type, and the offsets at which its data begins and ends."""
DEFAULT_MAX_FRAME_BYTES = 64 * 1024 * 1024


class FrameError(Exception):
    """A frame's size is impossible, so the stream is not a broker's. Nothing after it can be read."""


class Message(NamedTuple):
    """A delivered message."""

    timestamp: Nanoseconds
    """When the broker accepted it, Unix nanoseconds."""
    attempts: int
    """1 at the first delivery."""
    id: bytes
    """16 lower-case hex digits."""
    body: bytes
    header_block: bytes = b""
    """Empty if it has no headers."""


def encode_frame(frame_type: int, data: bytes) -> bytes:
    """Return the frame's bytes."""
    return HEADER.pack(4 + len(data), frame_type) + data


def decode_message(data: bytes | memoryview, start: int = 0, end: int | None = None) -> Message:
    """Read a message frame's data, ``data[start:end]``. Raises FrameError if it is shorter than its head."""
    if (len(data) if end is None else end) - start < _HEAD_BYTES:
        raise FrameError(f"message frame of {len(data)} bytes is shorter than its head")
    timestamp, attempts, id = _HEAD.unpack_from(data, start)
    return Message(timestamp, attempts, id, bytes(data[start + _HEAD_BYTES : end]))


def decode_message_with_headers(data: bytes | memoryview, start: int = 0, end: int | None = None) -> Message:
    """Read the data of a frame of type 3, ``data[start:end]``. Raises FrameError if its sizes are impossible.

    The header block is not decoded: a bad one does not make the body unreadable.
    """
    end = len(data) if end is None else end
    block = start + _HEAD_BYTES + HEADER_SIZE.size
    if end < block:
        raise FrameError(f"message frame of {end - start} bytes is shorter than its head")
    timestamp, attempts, id = _HEAD.unpack_from(data, start)
    (size,) = HEADER_SIZE.unpack_from(data, start + _HEAD_BYTES)
    if not 0 <= size <= end - block:
        raise FrameError(f"header block of {size} bytes does not fit in a message frame of {end - start}")
    return Message(timestamp, attempts, id, bytes(data[block + size : end]), bytes(data[block : block + size]))


HEADER_SIZE = struct.Struct(">i")
"""The size of a header block, before the block."""
_HEAD = struct.Struct(">qH16s")
_HEAD_BYTES = _HEAD.size


class FrameReader:
    """Splits a byte stream into frames. Feed it received bytes, then iterate over the complete frames."""

    def __init__(self, max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES) -> None:
        self._buffer = bytearray()
        self._max = max_frame_bytes

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Add received bytes."""
        self._buffer += data

    def take(self, data: bytes) -> tuple[bytes, list[Span]]:
        """Add received bytes; return a buffer and the positions of the complete frames in it.

        Faster than iterating for many small frames, because it does not copy each. Raises FrameError as iteration does.
        """
        buffer = self._buffer
        if buffer:
            buffer += data
            if len(buffer) < 8 or len(buffer) < 4 + HEADER.unpack_from(buffer)[0]:
                self._check_first()
                return b"", []
            data = bytes(buffer)
            buffer.clear()
        spans: list[Span] = []
        append, unpack, most, length, start = spans.append, HEADER.unpack_from, self._max, len(data), 0
        while start + 8 <= length:
            size, frame_type = unpack(data, start)
            if not 4 <= size <= most:
                self._refuse(size)
            end = start + 4 + size
            if end > length:
                break
            append((frame_type, start + 8, end))
            start = end
        if start < length:
            buffer += data[start:]
        return data, spans

    def take_rest(self) -> bytes:
        """Remove and return the bytes after the last frame read, for a layer that takes over the stream."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """Yield ``(frame type, data)``. Raises FrameError on a size below 4 or above the limit."""
        buffer, start = self._buffer, 0
        try:
            while len(buffer) - start >= 8:
                size, frame_type = HEADER.unpack_from(buffer, start)
                if not 4 <= size <= self._max:
                    self._refuse(size)
                end = start + 4 + size
                if len(buffer) < end:
                    break
                data = bytes(memoryview(buffer)[start + 8 : end])
                start = end
                yield frame_type, data
        finally:
            del buffer[:start]

    def _check_first(self) -> None:
        if len(self._buffer) >= 8 and not 4 <= (size := HEADER.unpack_from(self._buffer)[0]) <= self._max:
            self._refuse(size)

    def _refuse(self, size: int) -> NoReturn:
        if size == _HTTP:
            raise FrameError("an HTTP server answered: this is not the broker's TCP address")
        raise FrameError(f"frame size {size} is not within 4..{self._max}")
