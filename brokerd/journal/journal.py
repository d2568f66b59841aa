"""The journal's files: ``journal.<generation>`` takes each change as it happens, ``checkpoint`` holds all before it.

A journal is a preallocated, mapped file of ``length u32 | check u32 | record``, zero-filled behind the last; ``check``
is the low half of the record's XXH3-64. Being mapped, it keeps every record when the process is killed. When it is full
the next generation begins, in a file that was allocated before it was needed, and the node's whole state goes into a
new checkpoint. Should that fail for want of space, the old journal stays: recovery reads the checkpoint, and then every
journal of its generation and later ones.

A checkpoint is a line ``<XXH3-64 of the rest, 16 hex digits> <generation>`` and the state in lines of JSON, written
aside, synced, and renamed: the checkpoint of before stands until the new one is whole. A running node writes it in a
thread; the changes since are in the new generation's journal, and those before in the old one, which stays until then.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import re
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from xxhash import xxh3_64, xxh3_64_hexdigest, xxh3_64_intdigest

from brokerd.journal.records import KINDS, OF_MESSAGES
from brokerd.journal.state import Inapplicable, NodeState
from brokerd.log.log import sync_directory

logger = logging.getLogger("brokerd")

JOURNAL_BYTES = 16 * 1024 * 1024
CHECKPOINT = "checkpoint"
_NAME = re.compile(r"journal\.(0|[1-9][0-9]*)")
FILES = re.compile(rf"{CHECKPOINT}(?:\.new)?|{_NAME.pattern}")
"""The names of all of its files."""

_HEAD = struct.Struct(">II")
_MAX_RECORD_BYTES = 1024 * 1024
_RETRY_S = 1.0
_RESERVED = 16
"""One part in so many is for the changes of topics and channels, once all else is full."""


Background = Callable[[Callable[[], None], Callable[[BaseException | None], None]], None]
"""Runs the first in a thread, then the second, with its error or None, where the journal is used."""


class CorruptState(Exception):
    """The checkpoint cannot be used; the text names the file and the reason."""


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
            state, generation = NodeState.from_lines(text.decode().splitlines()), int(number)
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptState(f"{checkpoint} cannot be read: {error}") from error
    first = generation
    for each, journal in sorted(_generations(directory).items()):
        if each >= first and journal.is_file() and not journal.is_symlink():
            _replay(journal, state, oddities)
        generation = max(generation, each)  # past a stranger of such a name too, for the next ones need their names
    return state, generation, oddities


def _generations(directory: Path) -> dict[int, Path]:
    """What has a journal's name, by generation."""
    return {int(match[1]): path for path in directory.iterdir() if (match := _NAME.fullmatch(path.name))}


def _replay(journal: Path, state: NodeState, oddities: list[str]) -> None:
    """Apply a journal's records. Those that are damaged or cannot be applied are passed over, and counted."""
    damaged = passed_over = 0
    for record in _records(journal.read_bytes()):
        if record is None:
            damaged += 1
            continue
        try:
            state.apply(record)
        except Inapplicable as error:
            logger.debug("%s: %s", journal, error)
            passed_over += 1
    if damaged or passed_over:
        oddities.append(f"{journal}: damaged in {damaged} places; {passed_over} records cannot be applied")


def _records(data: bytes) -> Iterator[bytes | None]:
    """Yield the records; None where some bytes are none, before going on behind them."""
    offset, used = 0, len(data.rstrip(b"\0"))
    while offset < used:
        record = _record_at(data, offset)
        if record is None:
            yield None
            offset += 1
            while offset < used and _record_at(data, offset) is None:
                offset += 1
        else:
            yield record
            offset += _HEAD.size + len(record)


def _record_at(data: bytes, offset: int) -> bytes | None:
    if offset + _HEAD.size > len(data):
        return None
    length, check = _HEAD.unpack_from(data, offset)
    start = offset + _HEAD.size
    if not 0 < length <= _MAX_RECORD_BYTES or start + length > len(data) or data[start] not in KINDS:
        return None
    record = data[start : start + length]
    return record if xxh3_64_intdigest(record) & 0xFFFFFFFF == check else None


class Journal:
    """An open journal.

    ``snapshot`` gives the node's whole state whenever a checkpoint is due; ``failed`` hears of each error of the disk.
    """

    def __init__(
        self,
        directory: Path,
        generation: int,
        snapshot: Callable[[], NodeState],
        failed: Callable[[OSError], None],
    ) -> None:
        """Begin a generation after ``generation``, with a checkpoint. Raises OSError."""
        self._directory = directory
        self._generation = generation
        self._snapshot = snapshot
        self._failed = failed
        self._map = mmap.mmap(-1, mmap.PAGESIZE)
        self._offset = 0
        self._limit = 0
        self._spare: mmap.mmap | None = None
        self._retry_at = 0.0
        self._in_background: Background | None = None
        self._writing = False
        self._lock = threading.Lock()
        self._checkpointed = generation
        self.checkpoint()

    def write_in_background(self, background: Background) -> None:
        """From now on write checkpoints by ``background(work, done)``, so that clients need not wait for one."""
        self._in_background = background

    @property
    def paths(self) -> list[Path]:
        """The files a recovery would read: the one that takes the changes, and those that no checkpoint holds yet."""
        first = max(1, self._checkpointed)
        return [self._directory / f"journal.{number}" for number in range(first, self._generation + 1)]

    def append(self, record: bytes) -> None:
        """Keep a change.

        With the journal full and a full disk a change of a message's state is not kept, ``failed`` hears of it, and
        consumers go on: until a checkpoint succeeds, which is tried once a second, a crash would have such messages
        delivered again. For the changes of topics and channels themselves there is a reserve.
        """
        if self._offset + _HEAD.size + len(record) > self._limit and not self._make_room(record):
            return
        offset = self._offset
        start = offset + _HEAD.size
        end = start + len(record)
        self._map[start:end] = record
        _HEAD.pack_into(self._map, offset, len(record), xxh3_64_intdigest(record) & 0xFFFFFFFF)
        self._offset = end

    def _make_room(self, record: bytes) -> bool:
        """Begin the next generation, or else use the reserve. False if there is no room for the record."""
        size = _HEAD.size + len(record)
        if time.monotonic() >= self._retry_at:
            try:
                self._next_generation()
            except OSError as error:
                self._failed(error)
            if self._offset + size <= self._limit:
                return True
            self._retry_at = time.monotonic() + _RETRY_S
        if record[0] in OF_MESSAGES:
            self._limit = self._offset  # nothing about messages may come behind a record that is missing
            return False
        return self._offset + size <= len(self._map)

    @property
    def used(self) -> int:
        """Bytes in it since the last checkpoint."""
        return self._offset

    def checkpoint(self) -> None:
        """Begin the next generation and write the whole state, now. Raises OSError; nothing is lost by it."""
        self._switch()
        self._write_checkpoint(self._generation, self._snapshot())
        self._allocate_spare()

    def _next_generation(self) -> None:
        if self._in_background is None:
            self.checkpoint()
            return
        self._switch()
        if not self._writing:  # the one that is being written is followed by the next generation's
            self._writing = True
            generation, state = self._generation, self._snapshot()
            self._in_background(lambda: self._write_checkpoint(generation, state), self._written)

    def _written(self, error: BaseException | None) -> None:
        self._writing = False
        if error is None:
            self._allocate_spare()
        elif isinstance(error, OSError):
            self._failed(error)
        else:
            raise error

    def _switch(self) -> None:
        generation = self._generation + 1
        map_ = self._spare or self._allocate(generation)
        self._map.close()
        self._map, self._offset, self._limit, self._spare = map_, 0, JOURNAL_BYTES - JOURNAL_BYTES // _RESERVED, None
        self._generation = generation

    def _allocate_spare(self) -> None:
        if self._spare is None:
            with contextlib.suppress(OSError):  # it is tried again when it is needed
                self._spare = self._allocate(self._generation + 1)

    def _allocate(self, generation: int) -> mmap.mmap:
        path = self._directory / f"journal.{generation}"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, JOURNAL_BYTES)
            return mmap.mmap(fd, JOURNAL_BYTES)
        except OSError:
            path.unlink()
            raise
        finally:
            os.close(fd)

    def _write_checkpoint(self, generation: int, state: NodeState) -> None:
        """Runs in any thread: ``state`` is nobody else's. One that comes behind a later one has nothing to do."""
        with self._lock:
            if generation > self._checkpointed:
                self._replace_checkpoint(generation, state)
                self._checkpointed = generation

    def _replace_checkpoint(self, generation: int, state: NodeState) -> None:
        digest = xxh3_64()
        aside = self._directory / f"{CHECKPOINT}.new"
        with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
            head = len(_checkpoint_head(digest, generation))
            file.seek(head)
            for line in state.to_lines():
                data = line.encode()
                digest.update(data)
                file.write(data)
            file.seek(0)
            file.write(_checkpoint_head(digest, generation))
            file.flush()
            os.fsync(file.fileno())
        aside.rename(self._directory / CHECKPOINT)
        sync_directory(self._directory)
        for number, old in _generations(self._directory).items():
            if number < generation and old.is_file() and not old.is_symlink():
                old.unlink(missing_ok=True)

    def close(self) -> None:
        """Write a last checkpoint and let go of the file. Raises OSError."""
        self.checkpoint()
        self._map.close()


def _checkpoint_head(digest: xxh3_64, generation: int) -> bytes:
    return f"{digest.hexdigest()} {generation}\n".encode()
