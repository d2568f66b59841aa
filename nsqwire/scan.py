"""Finding the ends of commands in a connection's input buffer, in plain Python.

A broker may hand a Session a compiled module with the same two functions; this one defines what they do.
"""

from __future__ import annotations

import re
import struct

FIN_LINE_BYTES = 21
"""``FIN ``, 16 bytes of id, newline."""

COMPLETE, MORE, BAD_SIZE = 0, 1, 2

_FIN_RUN = re.compile(rb"(?:FIN [^\n]{16}\n)*", re.DOTALL)
_SIZE = struct.Struct(">i")


def fin_run(buffer: bytearray, start: int, end: int) -> int:
    """Count the whole ``FIN`` lines that follow one another in ``buffer[start:end]``."""
    match = _FIN_RUN.match(buffer, start, end)
    return 0 if match is None else (match.end() - start) // FIN_LINE_BYTES


def scan_messages(buffer: bytearray, offset: int, end: int, remaining: int, max_size: int) -> tuple[int, int, int, int]:
    """Walk ``remaining`` messages of ``size i32 | body`` from ``offset``, as far as they are in ``buffer[:end]``.

    Returns ``(status, offset, remaining, size)``: COMPLETE with the offset behind the last; MORE with where to take up
    again once more has arrived; BAD_SIZE with the offset, and the size, of one that is below 1 or above ``max_size``.
    """
    while remaining:
        if end - offset < 4:
            return MORE, offset, remaining, 0
        (size,) = _SIZE.unpack_from(buffer, offset)
        if size <= 0 or size > max_size:
            return BAD_SIZE, offset, remaining, size
        if end - offset - 4 < size:
            return MORE, offset, remaining, size
        offset += 4 + size
        remaining -= 1
    return COMPLETE, offset, 0, 0
