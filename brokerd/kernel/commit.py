"""The layout of a commit record, for the plain kernel and the log; ``_frames.pxd`` has it for the compiled one.

Layout, big-endian, 48 bytes:
``first_seq u64 | end u64 | timestamp_ns i64 | data_hash u64 | messages u32 | defer_ms u32 | length u32 | check u32``.
The fields' meanings are in :mod:`brokerd.log.commits`. ``check`` is the low half of XXH3-64 of the first 44 bytes.
"""

from __future__ import annotations

import struct
from typing import Final

from xxhash import xxh3_64_intdigest

from nsqwire.units import Nanoseconds

FIELDS: Final = struct.Struct(">QQqQIII")
CHECK: Final = struct.Struct(">I")
RECORD_BYTES: Final = FIELDS.size + CHECK.size
DEFER_MS: Final = range(36, 40)
"""The bytes of ``defer_ms`` in a record."""


def pack_record(
    first_seq: int, end: int, timestamp: Nanoseconds, data_hash: int, messages: int, defer_ms: int, length: int
) -> bytes:
    """A commit record with its check."""
    record = FIELDS.pack(first_seq, end, timestamp, data_hash, messages, defer_ms, length)
    return record + CHECK.pack(xxh3_64_intdigest(record) & 0xFFFFFFFF)


def is_sound(record: bytes) -> bool:
    """Return whether a record's check matches its fields."""
    (check,) = CHECK.unpack_from(record, FIELDS.size)
    return bool(check == xxh3_64_intdigest(record[: FIELDS.size]) & 0xFFFFFFFF)
