"""The journal's files: ``journal.<generation>`` takes each change as it happens, ``checkpoint`` holds all before it.

A journal is a preallocated, mapped file of ``length u32 | check u32 | record``, zero-filled behind the last; ``check``
is the low half of the record's XXH3-64. Being mapped, it keeps every record when the process is killed. When it is full
the node's whole state goes into a new checkpoint and a journal of the next generation begins.

A checkpoint is two lines, ``<XXH3-64 of the rest, 16 hex digits> <generation>`` and the state as JSON, written aside,
synced, and renamed: the checkpoint of before stands until the new one is whole.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from xxhash import xxh3_64_hexdigest, xxh3_64_intdigest

from brokerd.journal.state import NodeState
from brokerd.log.log import sync_directory

JOURNAL_BYTES = 16 * 1024 * 1024
CHECKPOINT = "checkpoint"

_HEAD = struct.Struct(">II")


class CorruptState(Exception):
    """The checkpoint, or a journal record that checks, cannot be used; the text names the file and the reason."""


def recover(directory: Path) -> tuple[NodeState, int, list[str]]:
    """Read the state of a node that stopped, however it stopped.

    Returns the state, the generation it was read from, and a line for each thing that was odd but could be passed
    over. Raises CorruptState without having changed anything, and OSError.
    """
    oddities: list[str] = []
    state, generation = NodeState(), 0
    checkpoint = directory / CHECKPOINT
    if checkpoint.exists():
        head, _, text = checkpoint.read_bytes().partition(b"\n")
        digest, _, number = head.partition(b" ")
        if digest.decode("ascii", "replace") != xxh3_64_hexdigest(text):
            raise CorruptState(f"{checkpoint} is damaged: its checksum does not match")
        try:
            state, generation = NodeState.from_json(text.decode()), int(number)
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptState(f"{checkpoint} cannot be read: {error}") from error
    journal = directory / f"journal.{generation}"
    if journal.exists():
        data = journal.read_bytes()
        end = 0
        for end, record in _records(data):
            try:
                state.apply(record)
            except (KeyError, struct.error, UnicodeDecodeError, IndexError) as error:
                raise CorruptState(f"{journal}: a record before byte {end} cannot be applied: {error!r}") from error
        torn = len(data[end:].rstrip(b"\0"))
        if torn:
            oddities.append(f"{journal}: {torn} bytes behind the last whole record, at byte {end}, were passed over")
    return state, generation, oddities


def _records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield ``(offset behind it, record)`` up to the first that does not check."""
    offset = 0
    while offset + _HEAD.size <= len(data):
        length, check = _HEAD.unpack_from(data, offset)
        end = offset + _HEAD.size + length
        if not length or end > len(data):
            return
        record = data[offset + _HEAD.size : end]
        if xxh3_64_intdigest(record) & 0xFFFFFFFF != check:
            return
        offset = end
        yield offset, record


class Journal:
    """An open journal. ``snapshot`` gives the node's whole state whenever a checkpoint is due."""

    def __init__(self, directory: Path, generation: int, snapshot: Callable[[], NodeState]) -> None:
        """Begin a generation after ``generation``, with a checkpoint. Raises OSError."""
        self._directory = directory
        self._generation = generation
        self._snapshot = snapshot
        self._map = mmap.mmap(-1, mmap.PAGESIZE)
        self._offset = 0
        self._length = 0
        self.checkpoint()

    def append(self, record: bytes) -> None:
        """Keep a change. Raises OSError if a checkpoint is due and the disk has no room for it."""
        if self._offset + _HEAD.size + len(record) > self._length:
            # The state that is written includes the change, but for one too long for any journal there is no need.
            self.checkpoint()
        offset = self._offset
        start = offset + _HEAD.size
        end = start + len(record)
        self._map[start:end] = record
        _HEAD.pack_into(self._map, offset, len(record), xxh3_64_intdigest(record) & 0xFFFFFFFF)
        self._offset = end

    @property
    def used(self) -> int:
        """Bytes in it since the last checkpoint."""
        return self._offset

    def checkpoint(self) -> None:
        """Write the whole state and begin the next generation. Raises OSError; the one of before goes on then."""
        generation = self._generation + 1
        path = self._directory / f"journal.{generation}"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, JOURNAL_BYTES)
            map_ = mmap.mmap(fd, JOURNAL_BYTES)
        finally:
            os.close(fd)
        self._write_checkpoint(generation)
        self._map.close()
        self._map, self._offset, self._length = map_, 0, JOURNAL_BYTES
        self._generation = generation
        for old in self._directory.glob("journal.*"):
            if old != path:
                old.unlink(missing_ok=True)

    def _write_checkpoint(self, generation: int) -> None:
        text = self._snapshot().to_json().encode()
        aside = self._directory / f"{CHECKPOINT}.new"
        with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(f"{xxh3_64_hexdigest(text)} {generation}\n".encode())
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        aside.rename(self._directory / CHECKPOINT)
        sync_directory(self._directory)

    def close(self) -> None:
        """Write a last checkpoint and let go of the file. Raises OSError."""
        self.checkpoint()
        self._map.close()
