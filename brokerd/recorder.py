"""Finds out which files of a data path have changed, for the follower of a mirrored node.

All files but the checkpoints are appended to, so a change is described by the file's end, before and after it. The
broker's log and journal do not know about the recorder: it compares what they have with what it has recorded, at the
end of a turn of the event loop in which something was written. A node without a mirror has no recorder.

The actions of a group are in an order in which a follower that has only the first of them recovers as after a kill:
messages come before the journal's records about them, and files are deleted last.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from brokerd.data_path import TOPICS
from brokerd.file_header import HEADER_BYTES
from brokerd.journal.checkpoint import CHECKPOINT, NEW, PREVIOUS, Position
from brokerd.journal.recovery import journal_files
from brokerd.kernel.commit import RECORD_BYTES
from brokerd.log.headers import SUFFIX as HEADERS_SUFFIX
from brokerd.mirror.actions import Create, Delete, MakeDirectory, Rename, Resize, Write
from brokerd.mirror.leader import FRAME_BYTES, Appended, Entry
from brokerd.mirror.manifest import File

if TYPE_CHECKING:
    from brokerd.broker import Broker, RegistrationChange
    from brokerd.journal.journal import Journal
    from brokerd.log.headers import HeaderFile
    from brokerd.log.log import Log
    from brokerd.log.segment import Segment

_INDEX_SUFFIX: Final = ".idx"
_DELETED: Final = ".deleted"
_PATHS: Final = 4096


class _Recorded:
    """What was recorded of one segment. Paths are relative to the data path, ends are byte offsets."""

    def __init__(self, segment: Segment, directory: str) -> None:
        assert segment.path is not None
        stem = f"{directory}/{segment.path.stem}"
        self.segment = segment
        self.log, self.index, self.headers = stem + ".log", stem + _INDEX_SUFFIX, stem + HEADERS_SUFFIX
        self.end = self.index_end = self.index_bytes = 0
        self.headers_end = -1
        """-1 as long as no message has headers."""

    def begin(self) -> list[Entry]:
        """The actions that create its files."""
        self.index_bytes = self.segment.commits.allocated_bytes
        return [Create(self.log, self.segment.capacity), Create(self.index, self.index_bytes)]

    def catch_up(self) -> list[Entry]:
        """What was appended since the last call: messages before their commit records."""
        segment, commits, entries = self.segment, self.segment.commits, list[Entry]()
        if segment.end > self.end:
            entries.append(Appended(self.log, self.end, segment.end))
            self.end = segment.end
        if segment.headers is not None:
            entries += self._appended_headers(segment.headers)
        if commits.allocated_bytes > self.index_bytes:
            self.index_bytes = commits.allocated_bytes
            entries.append(Resize(self.index, self.index_bytes))
        if (end := commits.end) > self.index_end:
            entries.append(Appended(self.index, self.index_end, end))
            self.index_end = end
        return entries

    def _appended_headers(self, headers: HeaderFile) -> Iterator[Entry]:
        if headers.end == self.headers_end:
            return
        if headers.end < self.headers_end:
            yield Resize(self.headers, headers.end)
        elif self.headers_end < HEADER_BYTES:
            yield Create(self.headers, 0)
            yield Appended(self.headers, 0, headers.end)
            self.index_end = min(self.index_end, HEADER_BYTES)  # its first record now says that there are headers
        else:
            yield Appended(self.headers, self.headers_end, headers.end)
        self.headers_end = headers.end

    def files(self) -> Iterator[File]:
        """Yield its files as they are, which are then recorded."""
        segment, commits = self.segment, self.segment.commits
        self.end, self.index_end, self.index_bytes = segment.end, commits.end, commits.allocated_bytes
        yield File(self.log, segment.capacity, self.end)
        yield File(self.index, self.index_bytes, self.index_end)
        if segment.headers is not None:
            self.headers_end = segment.headers.end
            yield File(self.headers, self.headers_end, self.headers_end)


class _Directory:
    """What was recorded of a topic's directory."""

    def __init__(self, path: str, log: Log) -> None:
        self.path = path
        self.log = log
        self.segments: dict[Segment, _Recorded] = {}
        self.files: dict[str, _Recorded] = {}
        """The segments by the paths of their logs and indexes."""
        self._seen: tuple[int, Segment | None, Segment | None] = (0, None, None)

    @property
    def has_other_segments(self) -> bool:
        """True if segments were added or removed since the last ``visit``."""
        return self._seen != self._ends()

    def _ends(self) -> tuple[int, Segment | None, Segment | None]:
        segments = self.log.segments
        return (len(segments), segments[0], segments[-1]) if segments else (0, None, None)

    def is_removed(self, segment: Segment) -> bool:
        """True if a segment was removed since the last ``visit``."""
        return self.has_other_segments and segment not in self.log.segments

    def visit(self) -> tuple[list[Entry], list[str]]:
        """Return the actions for all changes, and the files to delete."""
        self._seen = self._ends()
        entries, present = list[Entry](), dict.fromkeys(self.log.segments)
        for segment in present:
            recorded = self.segments.get(segment)
            if recorded is None:
                recorded = self.segments[segment] = _Recorded(segment, self.path)
                entries += recorded.begin()
            entries += recorded.catch_up()
        kept = {self.segments[segment].log for segment in present}
        gone = [recorded for segment, recorded in self.segments.items() if segment not in present]
        self.segments = {segment: self.segments[segment] for segment in present}
        self.files = {path: each for each in self.segments.values() for path in (each.log, each.index)}
        return entries, [
            path
            for recorded in gone
            if recorded.log not in kept
            for path in (recorded.log, recorded.index, recorded.headers)
        ]


class Recorder:
    """The files of a broker's data path, and what was recorded of them."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._root = broker.data_path
        self._directories: dict[str, _Directory] = {}
        self._topic_paths: dict[str, str] = {}
        self._dirty: dict[Segment, None] = {}
        self._names: dict[str, None] = {}
        """Topics that were created or deleted, and not recorded yet."""
        self._has_changed_channels = False
        """Channels were created or deleted since the last group. Only the journal shows it."""
        self._renamed: list[str] = []
        """Directories of deleted topics, which are deleted at the end of the group."""
        journal = self._journal
        self._journal_end, self._checkpointed = journal.end, journal.checkpointed
        self._generations = set(journal_files(self._root))
        self._journal_file = (-1, -1)  # the generation and its descriptor
        for topic in broker.topics.values():
            self._add_topic(topic.name)
        for directory in self._directories.values():
            directory.visit()
            _cut_headers(directory.log)
        broker.observers.append(self._observe)

    @property
    def _journal(self) -> Journal:
        journal = self._broker.storage.journal
        assert journal is not None
        return journal

    def wrote(self, segment: Segment) -> None:
        """Messages were appended to a segment."""
        if segment.path is not None:
            self._dirty[segment] = None

    @property
    def is_dirty(self) -> bool:
        """True if messages, or changes of topics, are not recorded yet. Other records of the journal do not count."""
        return bool(self._dirty or self._names)

    @property
    def has_changed_channels(self) -> bool:
        """True if the journal has creations or deletions of channels that are not recorded yet."""
        return self._has_changed_channels and self._journal.end != self._journal_end

    @property
    def has_changes(self) -> bool:
        """True if anything is not recorded yet, except for segments that were removed."""
        journal = self._journal
        return self.is_dirty or journal.end != self._journal_end or self._is_checkpointed_anew

    @property
    def _is_checkpointed_anew(self) -> bool:
        checkpointed = self._journal.checkpointed
        return checkpointed is not None and checkpointed != self._checkpointed

    def _observe(self, change: RegistrationChange) -> None:
        if change.channel is None:
            self._names[change.topic] = None
        else:
            self._has_changed_channels = True

    def take_group(self, *, sweep: bool = False) -> list[Entry]:
        """The actions for all changes since the last call. With ``sweep``, also for segments that were removed."""
        entries = self._changed_topics() if self._names else list[Entry]()
        deleted = list[str]()
        visited = [each for each in self._directories.values() if each.has_other_segments] if sweep else []
        dirty, self._dirty = self._dirty, {}
        self._has_changed_channels = False
        for segment in dirty:
            assert segment.path is not None
            directory = self._directories.get(_directory_of(segment.path))
            if directory is None:
                continue  # deleted in the same turn
            recorded = directory.segments.get(segment)
            if recorded is not None and not directory.has_other_segments:
                entries += recorded.catch_up()
            elif directory not in visited:
                visited.append(directory)
        for directory in visited:
            changes, gone = directory.visit()
            entries += changes
            deleted += gone
        if self._journal.end != self._journal_end:
            entries += self._journalled()
        if self._is_checkpointed_anew:
            entries += self._checkpoint()
        if deleted or self._renamed:
            entries += (Delete(path) for path in deleted + self._renamed)
            self._renamed.clear()
        return entries

    def cut(self) -> list[File] | None:
        """All files as they are; None while a checkpoint is being written. Nothing may be unrecorded."""
        journal = self._journal
        if journal.checkpointed is None:
            return None
        files = [File(TOPICS, -1, 0)] if self._directories else []
        for directory in self._directories.values():
            files.append(File(directory.path, -1, 0))
            for recorded in directory.segments.values():
                files += recorded.files()
        for generation, path in sorted(journal_files(self._root).items()):
            if generation < journal.end.generation:
                files.append(File(path.name, path.stat().st_size, path.stat().st_size))
            elif generation == journal.end.generation:
                files.append(File(path.name, journal.capacity, journal.end.offset))
        for name in (CHECKPOINT, PREVIOUS):
            with suppress(FileNotFoundError):
                size = (self._root / name).stat().st_size
                files.append(File(name, size, size))
        return files

    def read(self, path: str, start: int, end: int) -> bytes | memoryview | None:
        """The bytes ``[start, end)`` of a file; None if it was deleted. Raises OSError."""
        directory = self._directories.get(path[: path.rfind("/")])
        found = None if directory is None else directory.files.get(path)
        if directory is None or found is None:
            return self._read_file(path, start, end)
        segment = found.segment
        if directory.is_removed(segment):  # its file is deleted, or already that of another segment
            return None
        if path == found.log:
            return segment.map[start:end]
        if start >= HEADER_BYTES:
            offset = segment.commits.end - len(segment.commits) * RECORD_BYTES
            return segment.commits.records[start - offset : end - offset]
        return self._read_file(path, start, end)

    def _read_file(self, path: str, start: int, end: int) -> bytes | None:
        generation, fd = self._journal_file
        if path == f"journal.{generation}":
            return os.pread(fd, end - start, start)
        try:
            fd = os.open(self._root / path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        if path == f"journal.{self._journal.end.generation}":  # read in each turn
            if self._journal_file[1] >= 0:
                os.close(self._journal_file[1])
            self._journal_file = self._journal.end.generation, fd
            return os.pread(fd, end - start, start)
        try:
            return os.pread(fd, end - start, start)
        finally:
            os.close(fd)

    def close(self) -> None:
        """Record nothing more."""
        if self._observe in self._broker.observers:
            self._broker.observers.remove(self._observe)
        if self._journal_file[1] >= 0:
            os.close(self._journal_file[1])
            self._journal_file = (-1, -1)

    # -- topics ---------------------------------------------------------------------------------------------------

    def _relative(self, path: Path) -> str:
        return f"{TOPICS}/{path.name}"

    def _add_topic(self, name: str) -> str | None:
        log = self._broker.topics[name].log
        if log.directory is None:
            return None
        path = self._relative(log.directory)
        self._directories[path], self._topic_paths[name] = _Directory(path, log), path
        return path

    def _changed_topics(self) -> list[Entry]:
        entries = list[Entry]()
        names, self._names = self._names, {}
        for name in names:
            topic, before = self._broker.topics.get(name), self._topic_paths.get(name)
            directory = None if topic is None or topic.log.directory is None else self._relative(topic.log.directory)
            if before is not None and before != directory:
                del self._directories[before], self._topic_paths[name]
                entries.append(Rename(before, before + _DELETED))
                self._renamed.append(before + _DELETED)
            if directory is not None and before != directory:
                self._add_topic(name)
                entries += (MakeDirectory(TOPICS), MakeDirectory(directory))
        return entries

    # -- journal and checkpoints ----------------------------------------------------------------------------------

    def _journalled(self) -> list[Entry]:
        journal, entries = self._journal, list[Entry]()
        before, end = self._journal_end, journal.end
        while before.generation < end.generation:
            entries += self._rest_of(before)
            entries.append(Create(f"journal.{before.generation + 1}", journal.capacity))
            self._generations.add(before.generation + 1)
            before = Position(before.generation + 1, 0)
        if end.offset > before.offset:
            entries.append(Appended(f"journal.{end.generation}", before.offset, end.offset))
        self._journal_end = end
        return entries

    def _rest_of(self, before: Position) -> Iterator[Entry]:
        """The records of a journal that has ended, and the zeros after them."""
        name = f"journal.{before.generation}"
        with suppress(FileNotFoundError):
            yield Appended(name, before.offset, (self._root / name).stat().st_size)

    def _checkpoint(self) -> Iterator[Entry]:
        self._checkpointed = self._journal.checkpointed
        content = (self._root / CHECKPOINT).read_bytes()
        yield Create(NEW, 0)
        for start in range(0, len(content), FRAME_BYTES):
            yield Write(NEW, start, content[start : start + FRAME_BYTES])
        yield Rename(CHECKPOINT, PREVIOUS)
        yield Rename(NEW, CHECKPOINT)
        present = set(journal_files(self._root))
        for generation in sorted(self._generations - present):
            yield Delete(f"journal.{generation}")
        self._generations &= present


@lru_cache(_PATHS)
def _directory_of(log: Path) -> str:
    return f"{TOPICS}/{log.parent.name}"


def _cut_headers(log: Log) -> None:
    """Remove headers of publishes that were not acknowledged, as the first publish with headers does otherwise."""
    for segment in log.segments[-1:]:
        if segment.headers is not None:
            with suppress(OSError):  # reported with the first publish
                segment.headers.cut(segment.next_seq)
                segment.headers.close()
