"""Finds the ends of commands in a connection's input buffer, in plain Python.

It finds runs of commands in their usual form. The Session parses all other commands with its full grammar. A Session
may be given a compiled module with the same functions; this module defines their behaviour.
"""

from __future__ import annotations

import mmap
import re
import struct
from typing import Protocol

Input = bytearray | mmap.mmap
"""A connection's input buffer."""

FIN_LINE_BYTES = 21
"""``FIN ``, 16 bytes of id, newline."""
REQ_TIMEOUT_AT = 21
"""Offset of the delay in a REQ line: after ``REQ ``, 16 bytes of id and a space."""
TOUCH_LINE_BYTES = 23
"""``TOUCH ``, 16 bytes of id, newline."""
MAX_RUN_BYTES = 64 * 1024
"""Maximum bytes of REQ or TOUCH lines in one run, for which the clock is read once."""
MAX_DPUB_RUN = 512
"""Maximum number of DPUB commands in one run, because each message takes an entry in every channel of its topic."""
MAX_DEFER_MS = 2**32 - 1
"""Longest delay in a run of DPUBs. The full grammar parses longer ones."""

COMPLETE, MORE, BAD_SIZE = 0, 1, 2

_FIN_RUN = re.compile(rb"(?:FIN [^ \n]{15}[^ \r\n]\n)*")
_REQ_LINE = re.compile(rb"REQ [^ \n]{16} ([0-9]{1,18}\n)")
_TOUCH_RUN = re.compile(rb"(?:TOUCH [^ \n]{15}[^ \r\n]\n)*")
_NOP_RUN = re.compile(rb"(?:NOP\r?\n)*")
_PUB_LINE = re.compile(rb"PUB [^ \r\n]{1,64}\n")
_DPUB_LINE = re.compile(rb"DPUB ([^ \r\n]{1,64}) ([0-9]{1,18})\n")
_MPUB_LINE = re.compile(rb"MPUB [^ \r\n]{1,64}\n")
_SIZE = struct.Struct(">i")
_SIZE_COUNT = struct.Struct(">ii")


class Scanner(Protocol):
    """The functions of this module, compiled or not."""

    def fin_run(self, buffer: Input, start: int, end: int, /) -> int:
        """See :func:`fin_run`."""
        ...

    def req_run(self, buffer: Input, start: int, end: int, /) -> tuple[int, int]:
        """See :func:`req_run`."""
        ...

    def touch_run(self, buffer: Input, start: int, end: int, /) -> int:
        """See :func:`touch_run`."""
        ...

    def nop_run(self, buffer: Input, start: int, end: int, /) -> int:
        """See :func:`nop_run`."""
        ...

    def pub_run(self, buffer: Input, start: int, end: int, max_size: int, /) -> tuple[int, int, int]:
        """See :func:`pub_run`."""
        ...

    def dpub_run(self, buffer: Input, start: int, end: int, max_size: int, max_ms: int, /) -> tuple[int, int, int, int]:
        """See :func:`dpub_run`."""
        ...

    def mpub_run(
        self, buffer: Input, start: int, end: int, max_size: int, max_body: int, /
    ) -> tuple[int, int, int, int]:
        """See :func:`mpub_run`."""
        ...

    def scan_messages(
        self, buffer: Input, offset: int, end: int, remaining: int, max_size: int, /
    ) -> tuple[int, int, int, int]:
        """See :func:`scan_messages`."""
        ...


def fin_run(buffer: Input, start: int, end: int) -> int:
    """Count the complete ``FIN`` lines at the start of ``buffer[start:end]``.

    An id with a space, or with a carriage return at its end, is left to the full grammar, where these are separators.
    """
    match = _FIN_RUN.match(buffer, start, end)
    return 0 if match is None else (match.end() - start) // FIN_LINE_BYTES


def req_run(buffer: Input, start: int, end: int) -> tuple[int, int]:
    """Count the complete ``REQ`` lines with the same delay at the start of ``buffer[start:end]``.

    Returns ``(line, count)``: the length of each line, newline included, and their number. Both are 0 if the first line
    needs the full grammar.
    """
    match = _REQ_LINE.match(buffer, start, end)
    if match is None:
        return 0, 0
    length, count, tail = len(match.group()), 0, match[1]
    while match is not None and match[1] == tail:
        start, count = match.end(), count + 1
        match = _REQ_LINE.match(buffer, start, end)
    return length, count


def touch_run(buffer: Input, start: int, end: int) -> int:
    """As ``fin_run``, for ``TOUCH``."""
    match = _TOUCH_RUN.match(buffer, start, end)
    return 0 if match is None else (match.end() - start) // TOUCH_LINE_BYTES


def nop_run(buffer: Input, start: int, end: int) -> int:
    """Return the offset after the complete ``NOP`` lines at the start of ``buffer[start:end]``."""
    match = _NOP_RUN.match(buffer, start, end)
    return start if match is None else match.end()


def pub_run(buffer: Input, start: int, end: int, max_size: int) -> tuple[int, int, int]:
    """Count the complete ``PUB`` commands with the same line at the start of ``buffer[start:end]``.

    Returns ``(line, count, offset)``: the length of the line, newline included, the number of commands, and the offset
    after the last. The count is 0 if the first command is not a PUB, is incomplete, or has a body of 0 or more than
    ``max_size`` bytes. The topic's name is not checked.
    """
    match = _PUB_LINE.match(buffer, start, end)
    if match is None:
        return 0, 0, start
    line = match.group()
    length, count = len(line), 0
    while end - start >= length + 4 and buffer[start : start + length] == line:
        (size,) = _SIZE.unpack_from(buffer, start + length)
        if size <= 0 or size > max_size or end - start - length - 4 < size:
            break
        start += length + 4 + size
        count += 1
    return length, count, start


def dpub_run(buffer: Input, start: int, end: int, max_size: int, max_ms: int) -> tuple[int, int, int, int]:
    """Count the complete ``DPUB`` commands to one topic at the start of ``buffer[start:end]``, up to MAX_DPUB_RUN.

    Returns ``(name, count, body_bytes, offset)``: the length of the topic's name, the number of commands, the size of
    all bodies together, and the offset after the last command. The run ends before a command that needs the full
    grammar: one with a delay of 0 or above ``max_ms``, or a body of 0 or more than ``max_size`` bytes.
    """
    name, count, body_bytes = b"", 0, 0
    while count < MAX_DPUB_RUN and (match := _DPUB_LINE.match(buffer, start, end)) is not None:
        if (count and match[1] != name) or not 0 < int(match[2]) <= min(max_ms, MAX_DEFER_MS) or end - match.end() < 4:
            break
        (size,) = _SIZE.unpack_from(buffer, match.end())
        if size <= 0 or size > max_size or end - match.end() - 4 < size:
            break
        name, count, body_bytes = match[1], count + 1, body_bytes + size
        start = match.end() + 4 + size
    return len(name), count, body_bytes, start


def mpub_run(buffer: Input, start: int, end: int, max_size: int, max_body: int) -> tuple[int, int, int, int]:
    """As ``pub_run``, for ``MPUB`` with bodies of at most ``max_body`` bytes and messages of at most ``max_size``.

    Returns ``(line, count, messages, offset)``, where ``messages`` is the number of messages in the ``count`` commands.
    """
    match = _MPUB_LINE.match(buffer, start, end)
    if match is None:
        return 0, 0, 0, start
    line = match.group()
    length, count, messages = len(line), 0, 0
    while end - start >= length + 8 and buffer[start : start + length] == line:
        body, held = _SIZE_COUNT.unpack_from(buffer, start + length)
        if not 0 < body <= max_body or not 0 < held <= max_mpub_messages(max_body):
            break
        status, offset, _, _ = scan_messages(buffer, start + length + 8, end, held, max_size)
        if status != COMPLETE:
            break
        start, count, messages = offset, count + 1, messages + held
    return length, count, messages, start


def max_mpub_messages(max_body: int) -> int:
    """Largest valid message count of an MPUB: the number of one-byte messages that fit into the largest body."""
    return (max_body - 4) // 5


def scan_messages(
    buffer: bytes | Input, offset: int, end: int, remaining: int, max_size: int
) -> tuple[int, int, int, int]:
    """Check the sizes of ``remaining`` messages, ``size i32 | body``, from ``offset`` on in ``buffer[:end]``.

    Returns ``(status, offset, remaining, size)``: COMPLETE with the offset after the last message; MORE with the offset
    at which to continue with more bytes; BAD_SIZE with offset and size of a message below 1 or above ``max_size``.
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
