"""Publishes with headers as a client sends them. A message is ``header size i32 | header block | body``."""

from __future__ import annotations

import struct
from collections.abc import Sequence

_LENGTH = struct.Struct(">i")


def hpub(topic: str, header_block: bytes, body: bytes) -> bytes:
    """HPUB of one message with headers (:func:`nsqwire.headers.encode_headers`)."""
    return _with_length(f"HPUB {topic}\n".encode(), _message(header_block, body))


def hdpub(topic: str, defer_ms: int, header_block: bytes, body: bytes) -> bytes:
    """HDPUB of a message with headers, delivered after ``defer_ms`` milliseconds at the earliest."""
    return _with_length(f"HDPUB {topic} {defer_ms}\n".encode(), _message(header_block, body))


def hmpub(topic: str, messages: Sequence[tuple[bytes, bytes]]) -> bytes:
    """HMPUB of all ``(header block, body)``, which the broker accepts or refuses as a whole."""
    sized = b"".join(_with_length(b"", _message(*each)) for each in messages)
    return _with_length(f"HMPUB {topic}\n".encode(), _LENGTH.pack(len(messages)) + sized)


def _message(header_block: bytes, body: bytes) -> bytes:
    return _LENGTH.pack(len(header_block)) + header_block + body


def _with_length(line: bytes, body: bytes) -> bytes:
    return line + _LENGTH.pack(len(body)) + body
