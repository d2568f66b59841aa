"""Frames of the stream between a primary and its follower.

Layout, big-endian: ``length u32 | kind u8 | epoch u64 | number u64 | check u64 | payload``. ``length`` is that of the
payload. ``epoch`` is that of the sender's term, and ``number`` counts the frames of file actions of one connection;
in an acknowledgement it is the number of the last frame that was applied. ``check`` is XXH3-64 of everything between
the length and the check, and the payload.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from xxhash import xxh3_64

from brokerd.mirror.errors import InvalidStream

MAX_PAYLOAD_BYTES: Final = 16 * 1024 * 1024
_HEAD: Final = struct.Struct(">IBQQQ")
_CHECKED: Final = struct.Struct(">BQQ")


class Kind(IntEnum):
    """The kinds of frames. The follower sends HELLO, SUMS, SUMS_END and ACK; the primary sends the others."""

    HELLO = 1
    """Who connects: JSON of :class:`brokerd.mirror.follower.Hello`."""
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
    """Sent by the primary when it has nothing else to send; answered with ACK."""
    REFUSED = 10
    """The follower may not join: the reason, for its log."""


def encode_frame(
    kind: Kind, epoch: int, number: int, payload: Sequence[bytes | memoryview]
) -> list[bytes | memoryview]:
    """The parts of a frame, of which the payload's are not copied."""
    checked = _CHECKED.pack(kind, epoch, number)
    digest = xxh3_64(checked)
    nbytes = 0
    for part in payload:
        digest.update(part)
        nbytes += len(part)
    return [b"".join((nbytes.to_bytes(4), checked, digest.digest())), *payload]


class Frame(NamedTuple):
    """One frame."""

    kind: Kind
    epoch: int
    number: int
    payload: bytes = b""

    def to_bytes(self) -> bytes:
        """The bytes of the frame."""
        return b"".join(encode_frame(self.kind, self.epoch, self.number, (self.payload,)))


class FrameReader:
    """Collects bytes of a stream into frames."""

    def __init__(self) -> None:
        self._unread = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Add bytes, and return the frames that they complete. Raises InvalidStream."""
        unread = self._unread
        unread += data
        frames, at = list[Frame](), 0
        while len(unread) - at >= _HEAD.size:
            length, kind, epoch, number, check = _HEAD.unpack_from(unread, at)
            if length > MAX_PAYLOAD_BYTES:
                raise InvalidStream(f"a frame of {length:,} bytes is too large")
            end = at + _HEAD.size + length
            if len(unread) < end:
                break
            with memoryview(unread) as view:
                payload = bytes(view[at + _HEAD.size : end])
            digest = xxh3_64(_CHECKED.pack(kind, epoch, number))
            digest.update(payload)
            if digest.intdigest() != check:
                raise InvalidStream("a frame was altered on the way")
            try:
                frames.append(Frame(Kind(kind), epoch, number, payload))
            except ValueError:
                raise InvalidStream(f"there is no frame of kind {kind}") from None
            at = end
        del unread[:at]
        return frames
