"""The plain twin of the kernel, which defines what its functions do.

The log contains the message frames that consumers are sent at the first delivery:
``size i32 | type i32 = 2 | timestamp i64 | attempts u16 = 1 | id 16 hex digits | body``. The id is six hex digits that
identify the topic on this node (``id_head``) and ten with the low 40 bits of the message's sequence number.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Sequence

from xxhash import xxh3_64_intdigest

from brokerd.kernel.commit import RECORD_BYTES, pack_record
from brokerd.kernel.waiting import WAITING_RANGE
from nsqdaemon.http.heads import plain_head
from nsqwire.frame import MESSAGE, MESSAGE_HEAD, MESSAGE_HEAD_BYTES
from nsqwire.histogram import Histogram
from nsqwire.scan import (
    FIN_LINE_BYTES,
    Input,
    fin_run,
    mpub_run,
    nop_run,
    pub_run,
    req_run,
    scan_messages,
    touch_run,
)
from nsqwire.units import Nanoseconds

__all__ = [
    "Window",
    "append_batches",
    "append_bodies",
    "append_commands",
    "append_messages",
    "fin_run",
    "mpub_run",
    "nop_run",
    "pack_lines",
    "plain_head",
    "pub_run",
    "req_run",
    "scan_messages",
    "touch_run",
    "write_record",
]

Buffer = bytes | bytearray | memoryview | mmap.mmap

SEQ_BITS = 40
SEQ_MASK = (1 << SEQ_BITS) - 1

_SIZE = struct.Struct(">i")
_JOURNAL_HEAD = struct.Struct(">II")
_SIZE_TYPE_TIMESTAMP = struct.Struct(">iIq")


def pack_lines(body: bytes, max_size: int) -> tuple[bytes, int]:
    """Pack each non-empty line of ``body`` as ``size i32 | line``. Returns the packed lines and their count.

    Lines end in ``\\n`` or with the body. If a line is longer than ``max_size`` bytes, the count is -1 and nothing is
    packed.
    """
    lines = [line for line in body.split(b"\n") if line]
    if any(len(line) > max_size for line in lines):
        return b"", -1
    return b"".join(part for line in lines for part in (_SIZE.pack(len(line)), line)), len(lines)


def append_messages(
    log: Buffer,
    offset: int,
    messages: Buffer,
    count: int,
    timestamp: Nanoseconds,
    id_head: bytes,
    first_seq: int,
    gap: int = 0,
) -> int:
    """Write the frames of ``messages`` at ``log[offset:]``.

    ``messages`` is ``count`` × (``gap`` ignored bytes, ``size i32 | body``). The caller has checked the sizes and that
    the frames fit. Returns the offset after the last frame.
    """
    at = 0
    for seq in range(first_seq, first_seq + count):
        at += gap
        (size,) = _SIZE.unpack_from(messages, at)
        at += 4
        offset = _append(log, offset, memoryview(messages)[at : at + size], timestamp, id_head, seq)
        at += size
    return offset


def append_batches(
    log: Buffer,
    offset: int,
    commands: Buffer,
    count: int,
    timestamp: Nanoseconds,
    id_head: bytes,
    first_seq: int,
    gap: int,
) -> int:
    """Write the frames of ``commands`` at ``log[offset:]``, as append_messages does.

    ``commands`` is ``count`` × (``gap`` ignored bytes, ``messages i32 | messages × (size i32 | body)``).
    """
    at = 0
    for _ in range(count):
        (messages,) = _SIZE.unpack_from(commands, at + gap)
        at += gap + 4
        start = offset
        offset = append_messages(log, start, memoryview(commands)[at:], messages, timestamp, id_head, first_seq)
        at += offset - start - (MESSAGE_HEAD_BYTES - 4) * messages
        first_seq += messages
    return offset


def append_commands(
    commands: Input,
    nbytes: int,
    line: bytes,
    max_size: int,
    max_body: int,
    log: Buffer,
    offset: int,
    end: int,
    id_head: bytes,
    first_seq: int,
    timestamp: Nanoseconds,
    index: Buffer,
    index_offset: int,
    segment_offset: int,
) -> tuple[int, int, int]:
    """Append the messages of the publishes in ``commands[:nbytes]`` as one batch, and write its commit record.

    All of them must be PUBs or MPUBs with the command line ``line``, newline included. The frames are written to
    ``log[offset:end]``, and the commit record (:mod:`brokerd.kernel.commit` has its layout) to ``index`` at
    ``index_offset``. ``segment_offset`` is the offset of the first frame in its segment. Returns the number of
    commands, the number of messages, and the bytes of the frames; ``(0, 0, 0)``, with nothing written, if the input has
    anything else or there is no room.
    """
    gap = len(line)
    if line[:1] == b"M":
        _, count, messages, stop = mpub_run(commands, 0, nbytes, max_size, max_body)
        body_bytes = stop - (gap + 8) * count - 4 * messages
    else:
        _, count, stop = pub_run(commands, 0, nbytes, max_size)
        messages, body_bytes = count, stop - (gap + 4) * count
    behind = offset + body_bytes + MESSAGE_HEAD_BYTES * messages
    record_end = index_offset + RECORD_BYTES
    if not count or stop != nbytes or commands[:gap] != line or behind > end or record_end > len(index):
        return 0, 0, 0
    if line[:1] == b"M":
        append_batches(log, offset, commands, count, timestamp, id_head, first_seq, gap + 4)
    else:
        append_messages(log, offset, commands, count, timestamp, id_head, first_seq, gap)
    data_hash = xxh3_64_intdigest(memoryview(log)[offset:behind])
    written = behind - offset
    record = pack_record(first_seq, segment_offset + written, timestamp, data_hash, messages, 0, written)
    index[index_offset:record_end] = record  # type: ignore[index]
    return count, messages, written


def write_record(log: Buffer, offset: int, record: bytes) -> int:
    """Write a journal record of at least one byte at ``log[offset:]``: ``length u32 | check u32 | record``.

    ``check`` is the low half of the record's XXH3-64. The head is written last and makes the record valid. Returns the
    offset after the record. Raises ValueError if it does not fit.
    """
    start = offset + _JOURNAL_HEAD.size
    end = start + len(record)
    if offset < 0 or end > len(log):
        raise ValueError("the record does not fit")
    log[start:end] = record  # type: ignore[index]
    _JOURNAL_HEAD.pack_into(log, offset, len(record), xxh3_64_intdigest(record) & 0xFFFFFFFF)
    return end


def append_bodies(
    log: Buffer, offset: int, bodies: Sequence[Buffer], timestamp: Nanoseconds, id_head: bytes, first_seq: int
) -> int:
    """Write the frames of ``bodies`` at ``log[offset:]``, as append_messages does."""
    for seq, body in enumerate(bodies, first_seq):
        offset = _append(log, offset, body, timestamp, id_head, seq)
    return offset


def _append(log: Buffer, offset: int, body: Buffer, timestamp: Nanoseconds, id_head: bytes, seq: int) -> int:
    size = MESSAGE_HEAD_BYTES + len(body)
    message_id = id_head + b"%010x" % (seq & SEQ_MASK)
    MESSAGE_HEAD.pack_into(log, offset, size - 4, MESSAGE, timestamp, 1, message_id)
    log[offset + MESSAGE_HEAD_BYTES : offset + size] = body  # type: ignore[index]
    return offset + size


class Window:
    """The messages of one channel that are in flight for the first time, and the latencies of all finished messages.

    Messages below ``head`` were delivered or skipped. ``floor`` is the lowest one still in flight here, or ``head``. A
    message that needs more state (a second delivery, a deferral, a new timeout) is removed and set aside.
    """

    def __init__(self, first_seq: int) -> None:
        self.head = first_seq
        self._in_flight: dict[int, tuple[int, int]] = {}  # seq -> (timestamp ns, client), in order of seq
        self._histogram = Histogram()

    @property
    def floor(self) -> int:
        """The lowest sequence number in flight here, or ``head``."""
        return next(iter(self._in_flight), self.head)

    @property
    def in_flight_count(self) -> int:
        """Number of messages in flight here."""
        return len(self._in_flight)

    def deliver(
        self, log: Buffer, offset: int, end: int, max_count: int, max_bytes: int, client: int
    ) -> tuple[int, int]:
        """Put the messages from ``log[offset:end]`` in flight with ``client``. The first one has the number ``head``.

        At most ``max_count`` messages, and at most ``max_bytes`` bytes unless the first message is longer. Returns
        their number and the offset after the last. The bytes from ``offset`` to there are sent to the client.
        """
        start, count = offset, 0
        while count < max_count and offset < end:
            size, _, timestamp = _SIZE_TYPE_TIMESTAMP.unpack_from(log, offset)
            if count and offset + 4 + size - start > max_bytes:
                break
            self._in_flight[self.head] = (timestamp, client)
            self.head += 1
            offset += 4 + size
            count += 1
        return count, offset

    def skip(self, count: int) -> None:
        """Advance ``head`` by ``count`` messages without delivering them."""
        self.head += count

    def finish(
        self, lines: Buffer, count: int, id_head: bytes, client: int, now_ns: int
    ) -> tuple[list[tuple[int, int]], list[bytes]]:
        """Execute ``count`` FIN lines of ``client``, of 21 bytes each.

        Returns the finished ranges ``(first seq, count)``, in the order of the lines, and the ids that are not in
        flight here with this client. Records the latency of each finished message.
        """
        ranges: list[tuple[int, int]] = []
        missed: list[bytes] = []
        for at in range(4, count * FIN_LINE_BYTES, FIN_LINE_BYTES):
            message_id = bytes(lines[at : at + 16])
            seq = seq_of(message_id, id_head, self.head)
            entry = None if seq is None else self._in_flight.get(seq)
            if seq is None or entry is None or entry[1] != client:
                missed.append(message_id)
                continue
            del self._in_flight[seq]
            self._histogram.record(now_ns - entry[0])
            if ranges and sum(ranges[-1]) == seq:
                ranges[-1] = (ranges[-1][0], ranges[-1][1] + 1)
            else:
                ranges.append((seq, 1))
        return ranges, missed

    def take(self, first_seq: int, count: int, client: int) -> list[int]:
        """Remove the messages of a range that are in flight with ``client``. Returns their numbers, ascending."""
        last = min(first_seq + count, self.head)
        taken = [seq for seq in range(max(first_seq, self.floor), last) if self.client_of(seq) == client]
        for seq in taken:
            del self._in_flight[seq]
        return taken

    def pop(self, seq: int, client: int) -> int | None:
        """Remove a message in flight with ``client``. Returns its timestamp, or None if it is not in flight there."""
        if self.client_of(seq) != client:
            return None
        return self._in_flight.pop(seq)[0]

    def in_flight_ranges(self) -> bytes:
        """The messages in flight, ascending, as packed :data:`brokerd.kernel.waiting.WAITING_RANGE`."""
        ranges: list[tuple[int, int]] = []
        for seq in self._in_flight:
            if ranges and sum(ranges[-1]) == seq:
                ranges[-1] = ranges[-1][0], ranges[-1][1] + 1
            else:
                ranges.append((seq, 1))
        return b"".join(WAITING_RANGE.pack(first, count, 1, 0) for first, count in ranges)

    def client_of(self, seq: int) -> int:
        """The number of the client that a message is in flight with here; -1 if there is none."""
        return self._in_flight.get(seq, (0, -1))[1]

    def in_flight_below(self, max_seq: int) -> list[tuple[int, int]]:
        """``(seq, client)`` of the messages below ``max_seq`` that are in flight here, ascending."""
        return [(seq, client) for seq, (_, client) in self._in_flight.items() if seq < max_seq]

    def clear(self, head: int) -> None:
        """Forget the messages in flight, and continue at ``head``. The latencies are kept."""
        self._in_flight.clear()
        self.head = head

    def record(self, latency_ns: int) -> None:
        """Record the latency of a set-aside message that was finished."""
        self._histogram.record(latency_ns)

    def latencies(self) -> tuple[int, dict[int, int]]:
        """``(zero count, bucket index -> count)`` of :mod:`nsqwire.histogram`, cumulative."""
        return self._histogram.zero_count, dict(self._histogram.counts)


def seq_of(message_id: bytes, id_head: bytes, head: int) -> int | None:
    """The sequence number nearest to ``head`` with this id; None for an invalid id, or one with another ``id_head``."""
    digits = message_id[6:]
    if message_id[:6] != id_head or len(digits) != 10 or not _HEX_DIGITS.issuperset(digits):
        return None
    seq = (head & ~SEQ_MASK) | int(digits, 16)
    if seq > head + (1 << (SEQ_BITS - 1)):
        seq -= 1 << SEQ_BITS
    elif seq + (1 << (SEQ_BITS - 1)) < head:
        seq += 1 << SEQ_BITS
    return seq if seq >= 0 else None


_HEX_DIGITS = frozenset(b"0123456789abcdef")
