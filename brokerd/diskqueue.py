"""The reader of nsqd's disk queues: the messages of a topic or channel in ``<queue>.diskqueue.NNNNNN.dat`` files.

A record is ``length i32`` and the message in wire format: ``timestamp i64 | attempts u16 | id 16 | body``. The
position file ``<queue>.diskqueue.meta.dat`` is text: ``depth\\nreadFile,readPos\\nwriteFile,writePos\\n``.
Source: go-diskqueue's file format, as NSQ 1.3.0 writes it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from nsqwire.frame import FrameError, Message, decode_message

_LENGTH = struct.Struct(">i")
_META = re.compile(r"(-?\d+)\n(\d+),(\d+)\n(\d+),(\d+)\n")
MESSAGE_OVERHEAD = 26


class Position(NamedTuple):
    """The read and write positions of a queue."""

    read_file: int
    read_offset: int
    write_file: int
    write_offset: int


class DiskQueue:
    """One queue's files in ``directory``. After reading, ``damage`` has a line for each damaged file."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._name = name
        self.damage: list[str] = []

    @property
    def files(self) -> list[Path]:
        """Every file of the queue, damaged or not."""
        prefix = f"{self._name}.diskqueue."
        return sorted(path for path in self._directory.iterdir() if path.name.startswith(prefix))

    def messages(self) -> Iterator[Message]:
        """The unread messages, oldest first.

        An invalid record ends its file, as in nsqd: the rest of that file is skipped and reported in ``damage``.
        """
        position = self._position()
        if position is None:
            return
        for number in self._numbers(position.read_file):
            path = self._path(number)
            start = position.read_offset if number == position.read_file else 0
            yield from self._read(path, start)

    def _position(self) -> Position | None:
        meta = self._directory / f"{self._name}.diskqueue.meta.dat"
        if not meta.exists():
            return Position(0, 0, 0, 0) if self._path(0).exists() else None
        match = _META.fullmatch(meta.read_text("ascii", "replace"))
        if match is None:
            self.damage.append(f"{meta} cannot be read; the queue is read from its first file on")
            return Position(0, 0, 0, 0)
        return Position(*(int(group) for group in match.groups()[1:]))

    def _numbers(self, first: int) -> list[int]:
        pattern = re.compile(re.escape(self._name) + r"\.diskqueue\.(\d{6,})\.dat")
        matches = (pattern.fullmatch(path.name) for path in self.files)
        return sorted(number for match in matches if match and (number := int(match[1])) >= first)

    def _path(self, number: int) -> Path:
        return self._directory / f"{self._name}.diskqueue.{number:06d}.dat"

    def _read(self, path: Path, start: int) -> Iterator[Message]:
        with path.open("rb") as file:
            file.seek(start)
            while head := file.read(_LENGTH.size):
                length = _LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else -1
                data = file.read(length) if length >= MESSAGE_OVERHEAD else b""
                if not data or len(data) < length:
                    self.damage.append(f"{path}: no whole message at byte {file.tell()}; the rest of it is skipped")
                    return
                try:
                    yield decode_message(data)
                except FrameError as error:
                    self.damage.append(f"{path}: {error}")
                    return
