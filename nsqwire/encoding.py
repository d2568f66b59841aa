"""Encodes a client's commands: ``NAME p1 p2…\\n``, followed by ``length i32 | body`` for those that have a body."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence

MAGIC_V2 = b"  V2"
NOP = b"NOP\n"
CLS = b"CLS\n"

_LENGTH = struct.Struct(">i")


def _with_body(line: bytes, body: bytes) -> bytes:
    return line + _LENGTH.pack(len(body)) + body


def identify(fields: Mapping[str, object]) -> bytes:
    """IDENTIFY with a JSON object."""
    return _with_body(b"IDENTIFY\n", json.dumps(fields, separators=(",", ":")).encode())


def auth(secret: str) -> bytes:
    """AUTH with the secret, which the auth server checks."""
    return _with_body(b"AUTH\n", secret.encode())


def sub(topic: str, channel: str) -> bytes:
    """SUB."""
    return f"SUB {topic} {channel}\n".encode()


def pub(topic: str, body: bytes) -> bytes:
    """PUB of one message."""
    return _with_body(f"PUB {topic}\n".encode(), body)


def mpub(topic: str, bodies: Sequence[bytes]) -> bytes:
    """MPUB of all ``bodies``, which the broker accepts or refuses as a whole."""
    parts = [_LENGTH.pack(len(bodies))]
    for body in bodies:
        parts += (_LENGTH.pack(len(body)), body)
    return _with_body(f"MPUB {topic}\n".encode(), b"".join(parts))


def dpub(topic: str, defer_ms: int, body: bytes) -> bytes:
    """DPUB of a message that is delivered after ``defer_ms`` milliseconds at the earliest."""
    return _with_body(f"DPUB {topic} {defer_ms}\n".encode(), body)


def rdy(count: int) -> bytes:
    """RDY: at most ``count`` messages in flight on this connection."""
    return b"RDY %d\n" % count


def fin(message_id: bytes) -> bytes:
    """FIN: the message is done."""
    return b"FIN " + message_id + b"\n"


def req(message_id: bytes, delay_ms: int) -> bytes:
    """REQ: the message is delivered again after ``delay_ms`` milliseconds."""
    return b"REQ %b %d\n" % (message_id, delay_ms)


def touch(message_id: bytes) -> bytes:
    """TOUCH: restart the message's timeout."""
    return b"TOUCH " + message_id + b"\n"
