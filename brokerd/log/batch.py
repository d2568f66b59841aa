"""Batches: messages that are appended to a log together. The kernel writes their frames.

Each class takes the bodies in one of the forms in which they arrive. ``nbytes`` is the size of the frames,
``body_bytes`` that of the bodies alone.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Protocol

from brokerd.kernel import append_batches, append_bodies, append_deferred, append_messages
from nsqwire.frame import MESSAGE_HEAD_BYTES

SIZE_BYTES = 4
"""Size of a message body, i32, before each message of an MPUB body."""
COUNT_BYTES = 4
"""Number of messages, u32, at the start of an MPUB body."""


class Batch(Protocol):
    """``count`` messages accepted at ``timestamp_ns``, Unix nanoseconds, and deferred by ``defer_ms`` (0: not)."""

    count: int
    body_bytes: int
    nbytes: int
    timestamp_ns: int
    defer_ms: int

    def write(self, buffer: memoryview, offset: int, first_seq: int) -> object:
        """Write the frames to ``buffer[offset:]``, with ids from ``first_seq`` on."""
        ...


class BodyBatch:
    """Bodies in separate objects, as of a single PUB or DPUB, and of requests to ``/pub``."""

    __slots__ = ("_bodies", "_id_head", "body_bytes", "count", "defer_ms", "nbytes", "timestamp_ns")

    def __init__(
        self, bodies: Sequence[bytes | memoryview], id_head: bytes, timestamp_ns: int, defer_ms: int = 0
    ) -> None:
        self._bodies = bodies
        self._id_head = id_head
        self.count = len(bodies)
        self.defer_ms = defer_ms
        self.body_bytes = sum(map(len, bodies))
        self.nbytes = self.body_bytes + MESSAGE_HEAD_BYTES * self.count
        self.timestamp_ns = timestamp_ns

    @property
    def delays(self) -> bytes:
        """The delay of each message in milliseconds, ``u32`` in the machine's byte order."""
        return (array("I", [self.defer_ms]) * self.count).tobytes()

    def write(self, buffer: memoryview, offset: int, first_seq: int) -> object:
        return append_bodies(buffer, offset, self._bodies, self.timestamp_ns, self._id_head, first_seq)


class HeaderBatch(BodyBatch):
    """As BodyBatch, with the header block of each message, which is empty for a message without headers."""

    __slots__ = ("blocks",)

    def __init__(
        self,
        bodies: Sequence[bytes | memoryview],
        blocks: Sequence[bytes],
        id_head: bytes,
        timestamp_ns: int,
        defer_ms: int = 0,
    ) -> None:
        super().__init__(bodies, id_head, timestamp_ns, defer_ms)
        self.blocks = blocks


class MessageBatch:
    """Messages of an MPUB or a run of PUBs: ``count`` × (``gap`` ignored bytes, ``size i32 | body``), sizes checked."""

    __slots__ = ("_gap", "_id_head", "_messages", "body_bytes", "count", "defer_ms", "nbytes", "timestamp_ns")

    def __init__(self, messages: memoryview, count: int, gap: int, id_head: bytes, timestamp_ns: int) -> None:
        self._messages = messages
        self._gap = gap
        self._id_head = id_head
        self.count = count
        self.defer_ms = 0
        self.body_bytes = len(messages) - (gap + SIZE_BYTES) * count
        self.nbytes = self.body_bytes + MESSAGE_HEAD_BYTES * count
        self.timestamp_ns = timestamp_ns

    def write(self, buffer: memoryview, offset: int, first_seq: int) -> object:
        return append_messages(
            buffer, offset, self._messages, self.count, self.timestamp_ns, self._id_head, first_seq, self._gap
        )


class MpubBatch:
    """The ``count`` messages of a run of MPUBs: ``mpubs`` × (``gap`` ignored bytes, MPUB body), sizes checked."""

    __slots__ = ("_commands", "_gap", "_id_head", "_mpubs", "body_bytes", "count", "defer_ms", "nbytes", "timestamp_ns")

    def __init__(
        self, commands: memoryview, mpubs: int, count: int, gap: int, id_head: bytes, timestamp_ns: int
    ) -> None:
        self._commands = commands
        self._mpubs = mpubs
        self._gap = gap
        self._id_head = id_head
        self.count = count
        self.defer_ms = 0
        self.body_bytes = len(commands) - (gap + COUNT_BYTES) * mpubs - SIZE_BYTES * count
        self.nbytes = self.body_bytes + MESSAGE_HEAD_BYTES * count
        self.timestamp_ns = timestamp_ns

    def write(self, buffer: memoryview, offset: int, first_seq: int) -> object:
        return append_batches(
            buffer, offset, self._commands, self._mpubs, self.timestamp_ns, self._id_head, first_seq, self._gap
        )


class DpubBatch:
    """The messages of ``count`` DPUB commands, each with its own delay."""

    __slots__ = ("_commands", "_id_head", "body_bytes", "count", "delays", "nbytes", "timestamp_ns")

    def __init__(self, commands: memoryview, count: int, body_bytes: int, id_head: bytes, timestamp_ns: int) -> None:
        self._commands = commands
        self._id_head = id_head
        self.count = count
        self.body_bytes = body_bytes
        self.nbytes = body_bytes + MESSAGE_HEAD_BYTES * count
        self.timestamp_ns = timestamp_ns
        self.delays = b""
        """As in BodyBatch; empty until the batch is written."""

    def write_deferred(self, buffer: memoryview, offset: int, first_seq: int, segment_offset: int) -> bytes:
        """Write the frames to ``buffer[offset:]``, and return their packed commit records.

        ``segment_offset`` is the offset of the first frame in its segment.
        """
        records, self.delays = append_deferred(
            buffer, offset, self._commands, self.count, self.timestamp_ns, self._id_head, first_seq, segment_offset
        )
        return records
