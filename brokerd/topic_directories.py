"""The directories of topics: ``DATA/topics/<name>.<number>``, and ``….deleted`` while one is being removed.

A directory is the broker's if it has such a name and contains only files of a log. Anything else is left alone, and
its name is logged.
"""

from __future__ import annotations

import enum
import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from brokerd.file_header import HEADER_BYTES, data_start
from brokerd.journal.state import NodeState, TopicState
from brokerd.log.files import LogFiles
from nsqwire.frame import MESSAGE, MESSAGE_HEAD, MESSAGE_HEAD_BYTES
from nsqwire.names import is_ephemeral, is_valid_name

TOPIC_NUMBERS: Final = 1 << 14
"""Message ids have 14 bits for the topic's number."""
_NAME: Final = re.compile(r"(.+)\.(0|[1-9][0-9]{0,4})(\.deleted(?:-[1-9][0-9]*)?)?")

logger = logging.getLogger("brokerd")


class TopicDirectory(NamedTuple):
    """A directory with the name of a topic's directory. ``deleted`` is true if it is being removed."""

    path: Path
    name: str
    number: int
    deleted: bool

    @classmethod
    def at(cls, path: Path) -> TopicDirectory | None:
        """Parse the name of a path. None if it is not a directory, or its name is not that of a topic's directory."""
        match = _NAME.fullmatch(path.name)
        if match is None or path.is_symlink() or not path.is_dir():
            return None
        name, number = match[1], int(match[2])
        if not is_valid_name(name) or is_ephemeral(name) or number >= TOPIC_NUMBERS:
            return None
        return cls(path, name, number, match[3] is not None)


class EntryKind(enum.Enum):
    """The kinds of entries in the directory of topics."""

    KNOWN = enum.auto()
    """The directory of a topic with a record."""
    UNRECORDED = enum.auto()
    """The directory of a topic whose record was lost."""
    DELETED = enum.auto()
    """The directory of a deleted topic."""
    NOT_DELETED = enum.auto()
    """The directory of a topic whose deletion began but was not recorded."""
    UNUSED = enum.auto()
    """Created for a topic that was never recorded, or by an interrupted import, which starts again."""
    FOREIGN = enum.auto()
    """Not created by the broker."""


class Found(NamedTuple):
    """An entry in the directory of topics. ``reason`` says why a directory named like a topic's is foreign."""

    path: Path
    kind: EntryKind
    directory: TopicDirectory | None = None
    reason: str = ""


class TopicDirectories:
    """The topics' directories below ``path``, which is created with the first one."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def path_of(self, number: int, name: str) -> Path:
        """A topic's directory. The number distinguishes a re-created topic from the deleted one."""
        return self._path / f"{name}.{number}"

    def create(self, number: int, name: str) -> Path:
        """Create a topic's directory. Raises FileExistsError if the name is in use, and other OSErrors."""
        path = self.path_of(number, name)
        try:
            path.mkdir()
        except FileNotFoundError:
            self._path.mkdir()
            path.mkdir()
        return path

    def rename_deleted(self, path: Path) -> Path:
        """Rename a topic's directory to mark it as deleted. Returns the new path. Raises OSError."""
        doomed, count = path.with_name(f"{path.name}.deleted"), 1
        while os.path.lexists(doomed):
            count += 1
            doomed = path.with_name(f"{path.name}.deleted-{count}")
        try:
            path.rename(doomed)
        except FileNotFoundError:  # somebody removed it
            doomed.mkdir()
        return doomed

    def survey(self, state: NodeState, *, import_interrupted: bool = False) -> list[Found]:
        """Classify each entry by comparing it with the state of the node. Changes nothing. Raises OSError."""
        if not self._path.exists():
            return []
        known = {self.path_of(topic.number, topic.name): topic for topic in state.topics.values()}
        topics = {
            number: topic
            for number, topic in state.topics.items()
            if os.path.lexists(self.path_of(number, topic.name)) or not self._is_created_again(topic)
        }
        first_unrecorded, found = state.next_topic, list[Found]()
        for path in sorted(self._path.iterdir()):
            if (topic := known.get(path)) is not None:
                found.append(Found(path, EntryKind.KNOWN, TopicDirectory(path, topic.name, topic.number, False)))
                continue
            directory = TopicDirectory.at(path)
            files = None if directory is None else _files(path)
            if directory is None or files is None:
                found.append(Found(path, EntryKind.FOREIGN))
                continue
            importing = import_interrupted and directory.number >= first_unrecorded
            kind, reason = self._classify(directory, files, topics, importing=importing)
            if kind is EntryKind.UNRECORDED:
                topics[directory.number] = TopicState(directory.number, directory.name, 0)
            found.append(Found(path, kind, directory, reason))
        return found

    def _is_created_again(self, topic: TopicState) -> bool:
        """Return whether a directory for a newer topic of this name exists, whose creation record was lost."""
        found = (TopicDirectory.at(path) for path in self._path.glob(f"{topic.name}.*"))
        return any(
            each is not None and each.name == topic.name and each.number > topic.number and not each.deleted
            for each in found
        )

    def _classify(
        self, directory: TopicDirectory, files: LogFiles, topics: Mapping[int, TopicState], *, importing: bool
    ) -> tuple[EntryKind, str]:
        path = self.path_of(directory.number, directory.name)
        taken = topics.get(directory.number)
        is_recorded = taken is not None and taken.name == directory.name
        if directory.deleted and is_recorded and not path.exists() and (files.segments or not files.foreign_files):
            return EntryKind.NOT_DELETED, ""
        if files.foreign_files:
            return EntryKind.FOREIGN, f"{files.foreign_files[0].name} is not a log's file"
        if directory.deleted:
            return (EntryKind.FOREIGN, "the topic is there") if is_recorded else (EntryKind.DELETED, "")
        if taken is not None:
            return EntryKind.FOREIGN, f"its number is that of topic {taken.name}"
        if any(topic.name == directory.name for topic in topics.values()):
            return EntryKind.FOREIGN, "the topic has another directory"
        number = _number_in(files)
        if number not in (None, directory.number):
            return EntryKind.FOREIGN, f"its messages are of topic number {number}"
        return (EntryKind.UNUSED if importing or not files.segments else EntryKind.UNRECORDED), ""

    def reconcile(self, state: NodeState, *, import_interrupted: bool) -> list[Path]:
        """Make the state and the directories agree, because a crash may have changed only one of them.

        A topic whose record was lost is restored without channels, so that its messages can be read. Foreign entries
        are logged. Returns the directories to remove. Raises OSError.
        """
        doomed = []
        for path, kind, directory, reason in self.survey(state, import_interrupted=import_interrupted):
            if kind is EntryKind.FOREIGN or directory is None:
                log_foreign(path, reason)
            elif kind is EntryKind.NOT_DELETED:
                path.rename(self.path_of(directory.number, directory.name))
            elif kind is EntryKind.DELETED:
                doomed.append(path)
            elif kind is EntryKind.UNUSED:
                doomed.append(self.rename_deleted(path))
            elif kind is EntryKind.UNRECORDED:
                logger.warning("%s: the record of this topic is lost; its messages are restored", path)
                for number in [each.number for each in state.topics.values() if each.name == directory.name]:
                    del state.topics[number]  # it was deleted before this one was created
                state.topics[directory.number] = TopicState(directory.number, directory.name, 0)
                state.next_topic = max(state.next_topic, directory.number + 1)
        return doomed


def log_foreign(path: Path, reason: str = "") -> None:
    """Log the name of a file that the broker did not create."""
    logger.warning("%s is not the broker's and is left alone%s", path, f": {reason}" if reason else "")


def _files(path: Path) -> LogFiles | None:
    """The contents of a directory; None if the broker has no permission to read it."""
    try:
        return LogFiles.of(path)
    except PermissionError:
        return None


def _number_in(files: LogFiles) -> int | None:
    """The topic number in the message ids of ``files``; None if no file's first message can be read."""
    for path in files.segments:
        with path.open("rb") as file:
            head = file.read(HEADER_BYTES + MESSAGE_HEAD_BYTES)
        start = data_start(head)
        head = head[start : start + MESSAGE_HEAD_BYTES]
        if len(head) == MESSAGE_HEAD_BYTES:
            _, kind, _, _, message_id = MESSAGE_HEAD.unpack(head)
            if kind == MESSAGE and re.fullmatch(rb"[0-9a-f]{16}", message_id):
                return int(message_id[:6], 16) % TOPIC_NUMBERS
    return None
