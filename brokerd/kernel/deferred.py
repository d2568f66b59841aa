"""The plain twin of the work on runs of DPUBs."""

from __future__ import annotations

import struct
from array import array

from xxhash import xxh3_64_intdigest

from brokerd.kernel.commit import pack_record
from brokerd.kernel.frames import Buffer, append_messages
from nsqwire.commands import MAX_DPUB_LINE
from nsqwire.scan import dpub_run
from nsqwire.units import Nanoseconds

__all__ = ["append_deferred", "dpub_run"]

_SIZE = struct.Struct(">i")


def append_deferred(
    log: Buffer,
    offset: int,
    commands: Buffer,
    count: int,
    timestamp: Nanoseconds,
    id_head: bytes,
    first_seq: int,
    segment_offset: int,
) -> tuple[bytes, bytes]:
    """Write the frames of ``count`` DPUB commands at ``log[offset:]``, as append_messages does.

    Returns their commit records (:mod:`brokerd.kernel.commit` has the layout) and their delays in ms, ``u32`` each in
    the machine's byte order. Consecutive messages with the same delay are one batch. ``segment_offset`` is the offset
    of the first frame in its segment.
    """
    records, delays, at = list[bytes](), array("I"), 0
    data, start, shift, batch = memoryview(log), offset, segment_offset - offset, 0
    for position in range(count):
        line = bytes(commands[at : at + MAX_DPUB_LINE]).partition(b"\n")[0]
        delays.append(int(line[line.rindex(b" ") :]))
        (size,) = _SIZE.unpack_from(commands, at + len(line) + 1)
        if delays[-1] != delays[batch]:
            records.append(
                _commit(
                    data[start:offset], first_seq + batch, offset + shift, timestamp, position - batch, delays[batch]
                )
            )
            start, batch = offset, position
        message = memoryview(commands)[at + len(line) + 1 :]
        offset = append_messages(log, offset, message, 1, timestamp, id_head, first_seq + position)
        at += len(line) + 5 + size
    records.append(
        _commit(data[start:offset], first_seq + batch, offset + shift, timestamp, count - batch, delays[batch])
    )
    return b"".join(records), delays.tobytes()


def _commit(data: memoryview, first_seq: int, end: int, timestamp: Nanoseconds, messages: int, defer_ms: int) -> bytes:
    return pack_record(first_seq, end, timestamp, xxh3_64_intdigest(data), messages, defer_ms, len(data))
