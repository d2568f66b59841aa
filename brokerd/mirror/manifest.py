"""The list of a primary's files at the cut, and the checksums that show which of their bytes a joining follower has.

A *cut* is a moment: the manifest describes the files as they are then, and the actions since then follow the copy.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from xxhash import xxh3_64_digest

from brokerd.mirror.actions import is_mirrored
from brokerd.mirror.errors import InvalidStream
from nsqwire.foreign_json import UNREADABLE_JSON

BLOCK_BYTES: Final = 1024 * 1024
"""Files are compared in blocks of this size. A file is copied from the first block that differs to its end."""
DIGEST_BYTES: Final = 8
FILES_IN_A_FRAME: Final = 2000


class File(NamedTuple):
    """A file of the primary at the cut. From offset ``end`` on it has zeros. A directory has size -1."""

    path: str
    size: int
    end: int

    @property
    def is_directory(self) -> bool:
        """True for a directory."""
        return self.size < 0


class Copy(NamedTuple):
    """The bytes ``[start, end)`` of a file that a follower lacks."""

    path: str
    start: int
    end: int


def encode_files(files: list[File]) -> Iterator[bytes]:
    """Encode a manifest in parts that fit into frames."""
    for at in range(0, len(files), FILES_IN_A_FRAME):
        yield json.dumps(files[at : at + FILES_IN_A_FRAME], separators=(",", ":")).encode()


def decode_files(payload: bytes) -> list[File]:
    """Decode one part of a manifest. Raises InvalidStream."""
    try:
        files = [File(str(path), int(size), int(end)) for path, size, end in json.loads(payload)]
    except UNREADABLE_JSON as error:
        raise InvalidStream(f"a manifest cannot be read: {error}") from None
    for file in files:
        if not is_mirrored(file.path):
            raise InvalidStream(f"{file.path!r} is not the path of a mirrored file")
    return files


def block_sums(blocks: Iterable[bytes | memoryview]) -> bytes:
    """The checksums of a file's blocks, one after the other."""
    return b"".join(xxh3_64_digest(block) for block in blocks)


def encode_sums(path: str, sums: bytes) -> bytes:
    """Encode the checksums of one file."""
    name = path.encode()
    return len(name).to_bytes(2) + name + sums


def decode_sums(payload: bytes) -> tuple[str, bytes]:
    """Decode the path of a file and its checksums. Raises InvalidStream."""
    length = int.from_bytes(payload[:2])
    try:
        path, sums = payload[2 : 2 + length].decode(), payload[2 + length :]
    except UnicodeDecodeError as error:
        raise InvalidStream(f"checksums cannot be read: {error}") from None
    if len(sums) % DIGEST_BYTES:
        raise InvalidStream("checksums are incomplete")
    return path, sums


def missing(files: Iterable[File], theirs: Mapping[str, bytes], ours: Mapping[str, bytes], block: int) -> list[Copy]:
    """The bytes that a follower lacks: the checksums, of blocks of ``block`` bytes, say from where files differ."""
    copies = []
    for file in files:
        at, found, expected = 0, theirs.get(file.path, b""), ours.get(file.path, b"")
        while at < len(expected) and found[at : at + DIGEST_BYTES] == expected[at : at + DIGEST_BYTES]:
            at += DIGEST_BYTES
        start = at // DIGEST_BYTES * block
        if start < file.end:
            copies.append(Copy(file.path, start, file.end))
    return copies
