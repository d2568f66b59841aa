"""The binary envelope: a message body that contains headers and a body, for nodes without headers, such as Go's nsqd.

Layout: ``magic 8 bytes (ff 'NSQHDR1') | header size u32, big-endian | header block | body``. The header block is
defined in :mod:`nsqwire.headers`. A text in UTF-8 cannot begin with ``ff``.
"""

from __future__ import annotations

import struct
from typing import Final

from nsqwire.errors import BadHeaders
from nsqwire.headers import decode_headers

MAGIC: Final = b"\xffNSQHDR1"
_SIZE: Final = struct.Struct(">I")
HEAD_BYTES: Final = len(MAGIC) + _SIZE.size
"""Bytes before the header block."""


def in_envelope(header_block: bytes, body: bytes) -> bytes:
    """Return a body that contains the header block and ``body``."""
    return MAGIC + _SIZE.pack(len(header_block)) + header_block + body


def from_envelope(body: bytes) -> tuple[bytes, bytes] | None:
    """Return the header block and the body in an envelope; None if ``body`` is not an envelope with valid headers."""
    if not body.startswith(MAGIC) or len(body) < HEAD_BYTES:
        return None
    end = HEAD_BYTES + _SIZE.unpack_from(body, len(MAGIC))[0]
    if end > len(body):
        return None
    block = body[HEAD_BYTES:end]
    try:
        decode_headers(block)
    except BadHeaders:
        return None
    return block, body[end:]
