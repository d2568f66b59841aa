"""Frames of the stream between a primary and its follower.

Layout, big-endian: ``length u32 | kind u8 | epoch u64 | number u64 | check u64 | payload``. ``length`` is that of the
payload. ``epoch`` is that of the sender's term, and in HELLO of the last term that the sender has seen. ``number``
counts the frames of file actions of one connection; in an acknowledgement it is the number of the last frame that was
applied; in other frames it is 0. ``check`` is XXH3-64 of the bytes between the length and the check, followed by the
payload.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from xxhash import xxh3_64, xxh3_64_digest, xxh3_64_intdigest

from brokerd.mirror.errors import InvalidStream

MAX_PAYLOAD_BYTES: Final = 16 * 1024 * 1024
MAX_HELLO_BYTES: Final = 64 * 1024
"""Largest payload of HELLO, in bytes. Any client can send one."""
_TLS_BEGINS: Final = 0x1603  # the first two bytes of a handshake, RFC 8446, 5.1
JOINED_BELOW: Final = 16 * 1024
"""Frames with a payload of fewer bytes are encoded in one piece."""
BUFFER_BYTES: Final = 64 * 1024
_HEAD: Final = struct.Struct(">IBQQQ")
_CHECKED: Final = struct.Struct(">BQQ")


class Kind(IntEnum):
    """The kinds of frames. The follower sends HELLO, SUMS, SUMS_END, ACK and STAMPED; the primary sends the others."""

    HELLO = 1
    """Who connects: JSON of :class:`brokerd.mirror.hello.Hello`."""
    WELCOME = 11
    """The follower may join: JSON of :class:`brokerd.mirror.hello.Welcome`."""
    MANIFEST = 2
    """A part of the list of the primary's files at the cut: JSON."""
    MANIFEST_END = 3
    SUMS = 4
    """The checksums of one of the follower's files, by blocks."""
    SUMS_END = 5
    ACTIONS = 6
    """File actions (:mod:`brokerd.mirror.actions`)."""
    CUT = 7
    """All files are copied up to the cut; the actions since then follow. Numbered as ACTIONS are."""
    ACK = 8
    PING = 9
    """Sent by the primary in regular intervals, so that each member hears from the other; answered with ACK."""
    REFUSED = 10
    """The follower may not join: the reason, for its log."""
    STAMPS = 12
    """The stamps to store: JSON of :class:`brokerd.mirror.stamps.Stamps`. Sent only to a follower that stores them."""
    STAMPED = 13
    """The stamps of a STAMPS frame, whose payload it repeats, are stored."""


_KINDS: Final = {int(kind): kind for kind in Kind}  # Kind(number) takes as long as the rest of a small frame


def encode_frame(
    kind: Kind, epoch: int, number: int, payload: Sequence[bytes | memoryview]
) -> list[bytes | memoryview]:
    """The parts of a frame. A small frame is one part; otherwise the parts of the payload are not copied."""
    checked = _CHECKED.pack(kind, epoch, number)
    nbytes = sum(map(len, payload))
    if nbytes < JOINED_BELOW:
        body = b"".join(payload)
        return [b"".join((nbytes.to_bytes(4), checked, xxh3_64_digest(checked + body), body))]
    digest = xxh3_64(checked)
    for part in payload:
        digest.update(part)
    return [b"".join((nbytes.to_bytes(4), checked, digest.digest())), *payload]


class Frame(NamedTuple):
    """One frame."""

    kind: Kind
    epoch: int
    number: int
    payload: bytes | memoryview = b""

    def to_bytes(self) -> bytes:
        """The bytes of the frame."""
        return b"".join(encode_frame(self.kind, self.epoch, self.number, (self.payload,)))


class FrameReader:
    """Takes the frames out of a stream.

    The stream's bytes are either passed to ``feed``, or read into ``get_buffer()`` and taken by ``read``, so that large
    payloads are not copied. A frame with a payload of more than ``max_payload_bytes`` is an error.
    """

    def __init__(self, buffer_bytes: int = BUFFER_BYTES, max_payload_bytes: int = MAX_PAYLOAD_BYTES) -> None:
        self.max_payload_bytes = max_payload_bytes
        self._buffer_bytes = buffer_bytes
        self._buffer = memoryview(b"")  # until it is needed: many connections send nothing, or whole frames to feed
        self._start = self._end = 0  # of the bytes in the buffer that are not parsed yet

    def get_buffer(self) -> memoryview:
        """The buffer for the stream's next bytes, with room at least for the rest of the frame that has begun.

        Ends the validity of payloads that ``read`` has returned.
        """
        unread = self._end - self._start
        if not unread:
            self._start = self._end = 0
            if not self._buffer:
                self._buffer = memoryview(bytearray(self._buffer_bytes))
            return self._buffer
        length = int.from_bytes(self._buffer[self._start : self._start + 4]) if unread >= 4 else 0
        needed = _HEAD.size + min(length, self.max_payload_bytes)
        if self._start + needed > len(self._buffer):
            before = self._buffer[self._start : self._end]
            if needed > len(self._buffer):
                self._buffer = memoryview(bytearray(needed))
            self._buffer[:unread] = before
            self._start, self._end = 0, unread
        return self._buffer[self._end :]

    def read(self, nbytes: int) -> list[Frame]:
        """The frames that ``nbytes`` more bytes of the stream complete. Raises InvalidStream."""
        self._end += nbytes
        frames, self._start = _frames_in(self._buffer, self._start, self._end, self.max_payload_bytes)
        return frames

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that ``data`` completes. Their payloads stay valid. Raises InvalidStream."""
        frames, at = list[Frame](), 0
        if self._start == self._end:
            frames, at = _frames_in(data, 0, len(data), self.max_payload_bytes)
        while at < len(data):
            room = self.get_buffer()
            nbytes = min(len(room), len(data) - at)
            room[:nbytes] = data[at : at + nbytes]
            at += nbytes
            frames += (frame._replace(payload=bytes(frame.payload)) for frame in self.read(nbytes))
        return frames


def _frames_in(data: bytes | memoryview, at: int, end: int, max_payload_bytes: int) -> tuple[list[Frame], int]:
    """The complete frames of ``data[at:end]``, whose payloads are slices of it, and the offset after them."""
    frames = list[Frame]()
    while end - at >= _HEAD.size:
        length, number_of_kind, epoch, number, check = _HEAD.unpack_from(data, at)
        if length >> 16 == _TLS_BEGINS:
            raise InvalidStream("it begins with TLS: --mirror-tls is set on one member only")
        if length > max_payload_bytes:
            raise InvalidStream(f"a frame of {length:,} bytes is too large")
        next_at = at + _HEAD.size + length
        if end < next_at:
            break
        payload = data[at + _HEAD.size : next_at]
        if _check_of(data[at + 4 : at + 4 + _CHECKED.size], payload) != check:
            raise InvalidStream("a frame was altered on the way")
        kind = _KINDS.get(number_of_kind)
        if kind is None:
            raise InvalidStream(f"there is no frame of kind {number_of_kind}")
        frames.append(Frame(kind, epoch, number, payload))
        at = next_at
    return frames, at


def _check_of(checked: bytes | memoryview, payload: bytes | memoryview) -> int:
    if not payload:
        return xxh3_64_intdigest(checked)
    digest = xxh3_64(checked)
    digest.update(payload)
    return digest.intdigest()
