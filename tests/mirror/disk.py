"""A simulated disk: a member's files, what of them is synced, and a small log in the broker's layout."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy

from xxhash import xxh3_64_hexdigest, xxh3_64_intdigest

from brokerd.file_header import HEADER_BYTES
from brokerd.kernel.commit import FIELDS, RECORD_BYTES, is_sound, pack_record
from brokerd.mirror.actions import (
    NEW_CHECKPOINT,
    Action,
    Create,
    Delete,
    MakeDirectory,
    Rename,
    Resize,
    Write,
    is_replaced,
)
from brokerd.mirror.hello import Welcome
from brokerd.mirror.leader import Appended, Entry
from brokerd.mirror.manifest import File, block_sums
from brokerd.mirror.stamps import Stamps

TOPIC = "topics/t.0"
SEGMENT_BYTES = 1024
BLOCK_BYTES = 256
MESSAGE_BYTES = 8


class Disk:
    """One member's data path. It survives a kill; a restart of the machine leaves what was synced."""

    def __init__(self) -> None:
        self.files: dict[str, bytearray] = {}
        self.pair = ""
        self.epoch = 0
        self.stamps = Stamps()
        self.boot = 0
        self.spoils_next_write = False
        self._synced: dict[str, bytes] = {}

    def sync(self) -> None:
        """All that was written is on the disk."""
        self._synced = {path: bytes(data) for path, data in self.files.items()}

    def reboot(self) -> None:
        """The machine restarts: what was not synced is gone."""
        self.files = {path: bytearray(data) for path, data in self._synced.items()}
        self.boot += 1

    def copy(self) -> Disk:
        """A copy of the data path as it is, made on the same machine."""
        return deepcopy(self)

    @property
    def boot_id(self) -> str:
        return f"boot-{self.boot}"

    # -- the follower's files ---------------------------------------------------------------------------------

    def begin(self, epoch: int, welcome: Welcome) -> None:
        self.epoch, self.pair = epoch, welcome.pair
        self.spoils_next_write = False

    def apply(self, action: Action) -> None:
        if isinstance(action, Create):
            self.files[action.path] = bytearray(action.size)
        elif isinstance(action, Write):
            data = bytearray(action.data)
            if self.spoils_next_write and action.path.endswith((".log", NEW_CHECKPOINT)) and data:
                data[0] ^= 1
                self.spoils_next_write = False
            file, end = self.files[action.path], action.offset + len(data)
            file.extend(bytes(max(0, end - len(file))))
            file[action.offset : end] = data
        elif isinstance(action, Resize):
            file = self.files[action.path]
            del file[action.size :]
            file.extend(bytes(action.size - len(file)))
        elif isinstance(action, Rename):
            if action.path in self.files:
                self.files[action.to] = self.files.pop(action.path)
        elif isinstance(action, Delete):
            self.files.pop(action.path, None)
        else:
            assert isinstance(action, MakeDirectory)

    def read(self, path: str, start: int, end: int) -> bytes:
        return bytes(self.files[path][start:end])

    def read_to_send(self, path: str, start: int, end: int) -> bytes | None:
        return self.read(path, start, end) if path in self.files else None

    def prepare(self, manifest: list[File]) -> None:
        """Remove every other file and what follows the prefixes that can be kept."""
        wanted = {file.path: file for file in manifest}
        self.files = {path: data for path, data in self.files.items() if path in wanted}
        for path, file in wanted.items():
            if is_replaced(path):
                continue
            data = self.files.setdefault(path, bytearray())
            del data[file.end :]
            data.extend(bytes(file.size - len(data)))

    def sums(self, manifest: list[File]) -> dict[str, bytes]:
        """The checksums of the prefixes, by file."""
        return {
            path: block_sums(
                bytes(self.files[path][at : min(end, at + BLOCK_BYTES)]) for at in range(0, end, BLOCK_BYTES)
            )
            for path, _, end in manifest
            if path in self.files
        }


class Store:
    """A primary's log, journal and checkpoints over a disk. Each change returns its file actions."""

    def __init__(self, disk: Disk) -> None:
        """Recover: what follows the last commit record that matches its messages is cut."""
        self.disk = disk
        disk.spoils_next_write = False  # a primary reads back what it writes
        self.messages: list[int] = []
        self.next_seq = 0
        self.log = ""
        self.end = self.records = 0
        for log in sorted(path for path in disk.files if path.endswith(".log")):
            self._recover(log)
        journals = sorted(int(path.split(".")[1]) for path in disk.files if path.startswith("journal."))
        self.generation = journals[-1] if journals else 0
        self.journal_end = len(bytes(disk.files.get(f"journal.{self.generation}", b"")).rstrip(b"\0"))
        if not self.log:
            self.roll()
        if not journals:
            self.checkpoint()

    def _recover(self, log: str) -> None:
        data, index = self.disk.files[log], self.disk.files.setdefault(_index_of(log), bytearray())
        self.log, self.end, self.records = log, HEADER_BYTES, 0
        for record in _records(index):
            first_seq, end, _, data_hash, count, _, length = FIELDS.unpack_from(record)
            batch = bytes(data[end - length : end])
            if not is_sound(record) or xxh3_64_intdigest(batch) != data_hash or first_seq != self.next_seq:
                break
            self.messages += (int.from_bytes(batch[at : at + 8]) for at in range(0, len(batch), 8))
            self.next_seq, self.end = first_seq + count, end
            self.records += 1
        cut = HEADER_BYTES + self.records * RECORD_BYTES
        index[cut:] = bytes(len(index) - cut)
        data[self.end :] = bytes(len(data) - self.end)

    def append(self, messages: list[int]) -> list[Entry]:
        """Append a batch."""
        batch = b"".join(each.to_bytes(8) for each in messages)
        entries = self.roll() if self.end + len(batch) > SEGMENT_BYTES else []
        start, self.end = self.end, self.end + len(batch)
        record = pack_record(self.next_seq, self.end, 1, xxh3_64_intdigest(batch), len(messages), 0, len(batch))
        at = HEADER_BYTES + self.records * RECORD_BYTES
        self._write(self.log, start, batch)
        self._write(_index_of(self.log), at, record)
        self.records += 1
        self.next_seq += len(messages)
        self.messages += messages
        entries += (Appended(self.log, start, self.end), Appended(_index_of(self.log), at, at + RECORD_BYTES))
        return [*entries, *self.journal(b"head moved")]

    def roll(self) -> list[Entry]:
        """Begin a segment."""
        self.log = f"{TOPIC}/{self.next_seq:020d}.log"
        self.end, self.records = HEADER_BYTES, 0
        created: list[Entry] = [Create(self.log, SEGMENT_BYTES), Create(_index_of(self.log), 2048)]
        for action in created:
            assert isinstance(action, Create)
            self.disk.apply(action)
        return created

    def journal(self, record: bytes) -> list[Entry]:
        """Append to the journal."""
        path = f"journal.{self.generation}"
        start, self.journal_end = self.journal_end, self.journal_end + len(record)
        self._write(path, start, record)
        return [Appended(path, start, self.journal_end)]

    def checkpoint(self) -> list[Entry]:
        """Begin a generation of the journal, and replace the checkpoint."""
        self.generation += 1
        self.journal_end = 0
        state = b"state of generation %d" % self.generation
        actions: list[Action] = [
            Create(f"journal.{self.generation}", 512),
            Create("checkpoint.new", 0),
            Write("checkpoint.new", 0, xxh3_64_hexdigest(state).encode() + b" " + state),
        ]
        if "checkpoint" in self.disk.files:
            actions.append(Rename("checkpoint", "checkpoint.previous"))
        actions.append(Rename("checkpoint.new", "checkpoint"))
        if f"journal.{self.generation - 2}" in self.disk.files:
            actions.append(Delete(f"journal.{self.generation - 2}"))
        for action in actions:
            self.disk.apply(action)
        return list(actions)

    def cut(self) -> list[File]:
        """The files at this moment."""
        ends = {self.log: self.end, _index_of(self.log): HEADER_BYTES + self.records * RECORD_BYTES}
        ends[f"journal.{self.generation}"] = self.journal_end
        return [File(path, len(data), ends.get(path, len(data))) for path, data in sorted(self.disk.files.items())]

    def _write(self, path: str, start: int, data: bytes) -> None:
        file = self.disk.files[path]
        file.extend(bytes(max(0, start + len(data) - len(file))))
        file[start : start + len(data)] = data


def _index_of(log: str) -> str:
    return log.removesuffix(".log") + ".idx"


def _records(index: bytearray) -> Iterator[bytes]:
    for at in range(HEADER_BYTES, len(index) - RECORD_BYTES + 1, RECORD_BYTES):
        record = bytes(index[at : at + RECORD_BYTES])
        if not any(record):
            return
        yield record
