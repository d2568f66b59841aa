"""The bytes that load generators send and expect, built before the clock starts.

Implemented from the protocol specification, not with ``nsqwire``: a shared encoder would hide its own mistakes.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

MAGIC: Final = b"  V2"
RESPONSE, ERROR, MESSAGE = 0, 1, 2
MESSAGE_HEADER: Final = 4 + 4 + 8 + 2 + 16
"""Bytes of a message frame before its body: size, frame type, timestamp, attempts, id."""
ID_OFFSET: Final = 4 + 4 + 8 + 2
FIN_LENGTH: Final = len(b"FIN 0123456789abcdef\n")


def frame(kind: int, data: bytes) -> bytes:
    """Return a frame as a server sends it: ``int32 size | int32 type | data``; the size includes the type."""
    return struct.pack(">ii", len(data) + 4, kind) + data


OK: Final = frame(RESPONSE, b"OK")
CLOSE_WAIT: Final = frame(RESPONSE, b"CLOSE_WAIT")
HEARTBEAT: Final = frame(RESPONSE, b"_heartbeat_")


def identify(**fields: object) -> bytes:
    """Return IDENTIFY. Without feature negotiation in ``fields``, the response is a plain ``OK``."""
    body = json.dumps(fields, separators=(",", ":")).encode()
    return b"IDENTIFY\n" + struct.pack(">i", len(body)) + body


def sized(body: bytes) -> bytes:
    """Return a body after its ``int32`` length."""
    return struct.pack(">i", len(body)) + body


def batch(bodies: Sequence[bytes]) -> bytes:
    """Return the body of MPUB and of ``/mpub?binary=true``: ``int32 count``, then each message after its length."""
    return struct.pack(">i", len(bodies)) + b"".join(map(sized, bodies))


def pub(topic: str, body: bytes) -> bytes:
    return f"PUB {topic}\n".encode() + sized(body)


def dpub(topic: str, defer_ms: int, body: bytes) -> bytes:
    return f"DPUB {topic} {defer_ms}\n".encode() + sized(body)


def mpub(topic: str, bodies: Sequence[bytes]) -> bytes:
    return f"MPUB {topic}\n".encode() + sized(batch(bodies))


def message_frame(message_id: int, body: bytes) -> bytes:
    """Return the frame of a message's first delivery."""
    head = struct.pack(">qH", time.time_ns(), 1) + b"%016x" % message_id
    return frame(MESSAGE, head + body)


class Request(NamedTuple):
    """A keep-alive HTTP/1.1 request. If ``numbered``, it contains a number between ``before`` and ``behind``, which
    makes it unique."""

    before: bytes
    behind: bytes
    numbered: bool

    def bytes_of(self, number: int) -> bytes:
        return b"%b%032x%b" % (self.before, number, self.behind) if self.numbered else self.before + self.behind


def post(path: str, body: bytes, *, numbered: bool = False) -> Request:
    """Return a POST; if ``numbered``, each has a unique ``X-Request-Id``."""
    before = f"POST {path} HTTP/1.1\r\nHost: bench\r\nUser-Agent: bench/1\r\n"
    if numbered:
        before += "X-Request-Id: "
    behind = ("\r\n" if numbered else "") + f"Content-Length: {len(body)}\r\n\r\n"
    return Request(before.encode(), behind.encode() + body, numbered)
