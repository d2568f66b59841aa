"""Checkpoints: the whole state of a node at one position in its journals.

``checkpoint`` is the newest, ``checkpoint.previous`` the one before it. The previous one stays, with all later
journals, until the next one is written, so that damage to the newest loses no data.

Layout: a header (:mod:`brokerd.file_header`); 16 hex digits and a space; a line ``<generation> <offset>``; the state in
lines of JSON. The digits are the XXH3-64 of everything after the space. A file of format 0 has no header, and the
oldest ones have ``<XXH3-64 of the JSON> <generation>`` as the first line. A checkpoint is written to a temporary file,
synced, read back, and renamed.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import NamedTuple

from xxhash import xxh3_64, xxh3_64_hexdigest

from brokerd.file_header import CHECKPOINT as CHECKPOINT_HEADER
from brokerd.file_header import HEADER_BYTES, WRITTEN, data_start
from brokerd.journal.state import NodeState
from brokerd.log.log import sync_directory

CHECKPOINT = "checkpoint"
PREVIOUS = "checkpoint.previous"
NEW = "checkpoint.new"

_DIGEST_BYTES = 17
_READ_BYTES = 1024 * 1024


class Position(NamedTuple):
    """The boundary between two records: a byte ``offset`` in the journal of a ``generation``."""

    generation: int
    offset: int


class Damaged(Exception):
    """A checkpoint cannot be read; the text has the file and the reason."""


class OtherVersion(Damaged):
    """A checkpoint is not damaged, but this release cannot read its contents: another version wrote them."""


def read_checkpoint(path: Path) -> tuple[NodeState, Position]:
    """Return the state and its position in the journals. Raises Damaged, also as OtherVersion, and OSError."""
    data = path.read_bytes()
    data = data[data_start(data) :]
    digest, rest = data[: _DIGEST_BYTES - 1], data[_DIGEST_BYTES:]
    head, _, text = rest.partition(b"\n")
    if digest not in (xxh3_64_hexdigest(rest).encode(), xxh3_64_hexdigest(text).encode()):
        raise Damaged(f"{path} is damaged: its checksum does not match")
    try:
        generation, offset = map(int, [*head.split(b" "), b"0"][:2])
        return NodeState.from_lines(text.decode().splitlines()), Position(generation, offset)
    except (ValueError, KeyError, TypeError) as error:
        why = f"it has no {error}" if isinstance(error, KeyError) else error
        raise OtherVersion(f"{path} was written by a version that this release cannot read ({why})") from error


def position_of(path: Path) -> Position | None:
    """The position in a checkpoint; None if it cannot be read. Only the first line is read."""
    with contextlib.suppress(OSError, ValueError), path.open("rb") as file:
        head = file.read(HEADER_BYTES + 100)
        line = head[data_start(head) :].partition(b"\n")[0]
        generation, offset = map(int, [*line.split(b" "), b"0"][1:3])
        return Position(generation, offset)
    return None


def write_checkpoint(directory: Path, state: NodeState, position: Position, *, keep_newest: bool) -> None:
    """Replace the newest checkpoint. With ``keep_newest`` the replaced one becomes the previous one.

    Raises OSError. The newest is then unchanged, or was renamed to the previous one if the second rename failed.
    """
    new = directory / NEW
    digest = xxh3_64()
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(WRITTEN[CHECKPOINT_HEADER.kind] + b" " * _DIGEST_BYTES)
        head = b"%d %d\n" % position
        digest.update(head)
        file.write(head)
        for line in state.to_lines():
            data = line.encode()
            digest.update(data)
            file.write(data)
        file.seek(HEADER_BYTES)
        file.write(digest.hexdigest().encode())
        file.flush()
        os.fsync(file.fileno())
    _verify(new)
    if keep_newest:
        (directory / CHECKPOINT).rename(directory / PREVIOUS)
    new.rename(directory / CHECKPOINT)
    sync_directory(directory)


def _verify(path: Path) -> None:
    """Read a checkpoint back and verify its checksum. Raises OSError if it does not match.

    The system is asked to drop the cached pages first, so that the file is read from the disk.
    """
    digest = xxh3_64()
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        has_header = file.read(HEADER_BYTES) == WRITTEN[CHECKPOINT_HEADER.kind]
        expected = file.read(_DIGEST_BYTES)[:-1]
        while data := file.read(_READ_BYTES):
            digest.update(data)
    if not has_header or digest.hexdigest().encode() != expected:
        raise OSError(errno.EIO, "a checkpoint reads back differently than written", str(path))
