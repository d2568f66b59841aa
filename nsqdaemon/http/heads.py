"""Parses plain request heads without httptools.

A plain head has GET or POST, HTTP/1.1, printable ASCII, one Host, at most one Content-Length, and no header that
changes the framing or the connection. Nearly all requests have one; httptools parses the others, and tests require the
same result from both. A server may pass a compiled version; this module defines its behaviour.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

MAX_PLAIN_HEAD_BYTES: Final = 8192

PlainHead = Callable[[bytes, int], tuple[int, int, int, int] | None]
"""Maps ``(data, start)`` to ``(target_start, target_end, head_end, content_length)``: see :func:`plain_head`."""

_HEAD: Final = re.compile(
    rb"(?:GET|POST) (/[!$%&'()*+,\-./0-9:;=?@A-Z_a-z~]*) HTTP/1\.1\r\n"
    rb"((?:[0-9A-Za-z_-]+: ?(?:[!-~](?:[ -~]*[!-~])?)?\r\n)+)\r\n"
)
_LENGTH: Final = re.compile(rb"0|[1-9][0-9]{0,8}")
_FRAMING: Final = frozenset({b"transfer-encoding", b"proxy-connection", b"expect", b"upgrade"})


def plain_head(data: bytes, start: int) -> tuple[int, int, int, int] | None:
    """Return ``(target_start, target_end, head_end, content_length)`` of the plain head at ``data[start:]``.

    ``head_end`` is the offset after the blank line that ends the head; ``content_length`` is 0 without the header.
    None if the head is incomplete, not plain, or longer than MAX_PLAIN_HEAD_BYTES.
    """
    match = _HEAD.match(data, start, start + MAX_PLAIN_HEAD_BYTES)
    if match is None:
        return None
    hosts, length = 0, b""
    for line in match[2].split(b"\r\n")[:-1]:
        name, _, value = line.partition(b":")
        name, value = name.lower(), value.strip()
        if name == b"host":
            hosts += 1
        elif name == b"content-length":
            if length or not _LENGTH.fullmatch(value):
                return None
            length = value
        elif name in _FRAMING or (name == b"connection" and value.lower() != b"keep-alive"):
            return None
    return None if hosts != 1 else (match.start(1), match.end(1), match.end(), int(length or b"0"))


def header_fields(head: bytes) -> list[tuple[bytes, bytes]]:
    """The names and values of a plain head."""
    lines = head.split(b"\r\n")[1:-2]
    return [(name, value.strip()) for name, _, value in (line.partition(b":") for line in lines)]
