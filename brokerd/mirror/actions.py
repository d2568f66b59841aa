"""File actions: the changes of a data path that a primary sends to its follower, and their encoding.

Layout, big-endian, of an action: ``kind u8 | path length u16 | path | the kind's fields``. A path is relative to the
data path, in UTF-8. Offsets and sizes are in bytes.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from brokerd.mirror.errors import InvalidStream

NEW_CHECKPOINT: Final = "checkpoint.new"
"""A new checkpoint is written to this file, which is then renamed: the previous one is never overwritten in part."""
_HEAD: Final = struct.Struct(">BH")
_U64: Final = struct.Struct(">Q")
_WRITE: Final = struct.Struct(">QI")
_LENGTH: Final = struct.Struct(">H")

_TOPIC: Final = r"topics/[A-Za-z0-9._-]+\.[0-9]+(?:\.deleted(?:-[0-9]+)?)?"
_PATHS: Final = 4096
"""Number of paths whose encoding and decoding are cached: most actions are appends to few files."""
_PATH: Final = re.compile(
    rf"topics|{_TOPIC}(?:/[0-9]{{20}}\.(?:log|idx|hdr))?|journal\.[0-9]+|checkpoint(?:\.previous|\.new)?"
)


class Create(NamedTuple):
    """Create a file of ``size`` zeros, replacing any file of that name."""

    path: str
    size: int


class Write(NamedTuple):
    """Write ``data`` at ``offset``. Most writes are appends."""

    path: str
    offset: int
    data: bytes | memoryview


class Resize(NamedTuple):
    """Change a file's size: cut it, or extend it by zeros."""

    path: str
    size: int


class Rename(NamedTuple):
    """Rename a file or directory, replacing any file of the new name."""

    path: str
    to: str


class Delete(NamedTuple):
    """Delete a file, or a directory with its files."""

    path: str


class MakeDirectory(NamedTuple):
    """Create a directory, if it does not exist."""

    path: str


Action = Create | Write | Resize | Rename | Delete | MakeDirectory
_KINDS: Final[dict[type[Action], int]] = {Create: 1, Write: 2, Resize: 3, Rename: 4, Delete: 5, MakeDirectory: 6}
_WRITE_KIND: Final = _KINDS[Write]


def is_mirrored(path: str) -> bool:
    """Return whether a path, relative to the data path, is that of a file or directory that is mirrored."""
    return _PATH.fullmatch(path) is not None


def is_replaced(path: str) -> bool:
    """Return whether a file is replaced as a whole; all others are appended to."""
    return path.startswith("checkpoint")


def append_order(path: str) -> int:
    """The sort key of appends to several files: messages and headers first, then commit records, then the journal.

    A follower checks each commit record against its messages, and the journal has records about both.
    """
    if path.startswith("journal."):
        return 2
    return int(path.endswith(".idx"))


def encode_actions(actions: Iterable[Action]) -> list[bytes | memoryview]:
    """Encode actions one after the other. The data of writes is not copied: it is a part of its own."""
    parts = list[bytes | memoryview]()
    for action in actions:
        if isinstance(action, Write):
            parts += (write_head(action.path, action.offset, len(action.data)), action.data)
        else:
            parts.append(_encoded(action))
    return parts


def write_head(path: str, offset: int, nbytes: int) -> bytes:
    """The bytes before the data of an encoded write of ``nbytes``."""
    return _head(_WRITE_KIND, path) + _WRITE.pack(offset, nbytes)


@lru_cache(_PATHS)
def _head(kind: int, path: str) -> bytes:
    encoded = path.encode()
    return _HEAD.pack(kind, len(encoded)) + encoded


def _encoded(action: Create | Resize | Rename | Delete | MakeDirectory) -> bytes:
    head = _head(_KINDS[type(action)], action.path)
    if isinstance(action, Create | Resize):
        return head + _U64.pack(action.size)
    if isinstance(action, Rename):
        to = action.to.encode()
        return head + _LENGTH.pack(len(to)) + to
    return head


def decode_actions(payload: bytes | memoryview) -> list[Action]:
    """Decode what ``encode_actions`` returned. Raises InvalidStream, also for a path that is not mirrored.

    The data of writes is not copied.
    """
    actions, at, view = list[Action](), 0, memoryview(payload)
    try:
        while at < len(payload):
            action, at = _decode(view, at)
            actions.append(action)
    except (struct.error, UnicodeDecodeError) as error:
        raise InvalidStream(f"an action cannot be decoded: {error}") from None
    return actions


def _decode(payload: memoryview, at: int) -> tuple[Action, int]:
    kind, length = _HEAD.unpack_from(payload, at)
    path, at = _path(payload, at + _HEAD.size, length)
    if kind == _WRITE_KIND:
        offset, nbytes = _WRITE.unpack_from(payload, at)
        at += _WRITE.size
        data = payload[at : at + nbytes]
        if len(data) != nbytes:
            raise InvalidStream("a write is incomplete")
        return Write(path, offset, data), at + nbytes
    if kind in (_KINDS[Create], _KINDS[Resize]):
        (size,) = _U64.unpack_from(payload, at)
        return (Create if kind == _KINDS[Create] else Resize)(path, size), at + _U64.size
    if kind == _KINDS[Rename]:
        (length,) = _LENGTH.unpack_from(payload, at)
        to, at = _path(payload, at + _LENGTH.size, length)
        return Rename(path, to), at
    if kind == _KINDS[Delete]:
        return Delete(path), at
    if kind == _KINDS[MakeDirectory]:
        return MakeDirectory(path), at
    raise InvalidStream(f"there is no action of kind {kind}")


def _path(payload: memoryview, at: int, length: int) -> tuple[str, int]:
    encoded = bytes(payload[at : at + length])
    if len(encoded) != length:
        raise InvalidStream("a path is incomplete")
    return _decoded(encoded), at + length


@lru_cache(_PATHS)
def _decoded(encoded: bytes) -> str:
    path = encoded.decode()
    if not is_mirrored(path):
        raise InvalidStream(f"{path!r} is not the path of a mirrored file")
    return path
