"""A conversation as a value: the bytes sent, the state of the connection, and the expected frames."""

from __future__ import annotations

import struct
from dataclasses import dataclass

RESPONSE, ERROR = 0, 1
ID = b"0123456789abcdef"


def sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def i32(*values: int) -> bytes:
    return struct.pack(f">{len(values)}i", *values)


def ok(data: bytes = b"OK") -> tuple[int, bytes]:
    return RESPONSE, data


def error(text: bytes) -> tuple[int, bytes]:
    return ERROR, text


@dataclass(frozen=True)
class Case:
    """``T`` in ``sent`` and ``frames`` is replaced with the name of a topic of this test."""

    name: str
    sent: bytes
    frames: tuple[tuple[int, bytes], ...]
    closes: bool = False
    """The broker closes after the frames."""
    then_eof: bool = False
    """The client shuts its side down after ``sent``."""
    state: str = "init"


def refused(name: str, sent: bytes, text: bytes, *, state: str = "init", then_eof: bool = False) -> Case:
    return Case(name, sent, (error(text),), closes=True, then_eof=then_eof, state=state)


def answered(name: str, sent: bytes, *frames: tuple[int, bytes], state: str = "init") -> Case:
    return Case(name, sent, frames, state=state)


def silently_closed(name: str, sent: bytes, *, then_eof: bool = True) -> Case:
    return Case(name, sent, (), closes=True, then_eof=then_eof)


STATES = {
    "init": (b"", []),
    "subscribed": (b"SUB T-sub c\n", [ok()]),
    "closing": (b"SUB T-sub c\nCLS\n", [ok(), ok(b"CLOSE_WAIT")]),
}
