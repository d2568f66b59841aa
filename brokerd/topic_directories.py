"""The directories of topics: ``DATA/topics/<name>.<number>``, and ``….deleted`` while one is being removed.

A directory is the broker's if it has such a name and holds nothing but files of a log. Whatever else lies there is
left alone and named in the log.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import Final, NamedTuple

from brokerd.journal.state import NodeState, TopicState
from brokerd.log.files import LogFiles
from nsqwire.frame import MESSAGE, MESSAGE_HEAD, MESSAGE_HEAD_BYTES
from nsqwire.names import is_ephemeral, is_valid_name

TOPIC_NUMBERS: Final = 1 << 14
"""A topic's number is 14 bits of its message ids."""
_NAME: Final = re.compile(r"(.+)\.(0|[1-9][0-9]{0,4})(\.deleted(?:-[1-9][0-9]*)?)?")

logger = logging.getLogger("brokerd")


class TopicDirectory(NamedTuple):
    """A directory whose name is a topic's. ``deleted`` is true for one that is being removed."""

    path: Path
    name: str
    number: int
    deleted: bool

    @classmethod
    def at(cls, path: Path) -> TopicDirectory | None:
        """Parse a path's name. None for what is no directory, or has another name."""
        match = _NAME.fullmatch(path.name)
        if match is None or path.is_symlink() or not path.is_dir():
            return None
        name, number = match[1], int(match[2])
        if not is_valid_name(name) or is_ephemeral(name) or number >= TOPIC_NUMBERS:
            return None
        return cls(path, name, number, match[3] is not None)


class TopicDirectories:
    """All of them, below ``path``. It need not exist before there is a topic."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def path_of(self, number: int, name: str) -> Path:
        """A topic's directory: the number keeps a topic that is made again apart from the one of before."""
        return self._path / f"{name}.{number}"

    def create(self, number: int, name: str) -> Path:
        """Make a topic's directory. Raises FileExistsError if something has its place, and OSError."""
        path = self.path_of(number, name)
        try:
            path.mkdir()
        except FileNotFoundError:
            self._path.mkdir()
            path.mkdir()
        return path

    def rename_deleted(self, path: Path) -> Path:
        """Give a topic's directory the name under which it is removed, and return that. Raises OSError."""
        doomed, count = path.with_name(f"{path.name}.deleted"), 1
        while os.path.lexists(doomed):
            count += 1
            doomed = path.with_name(f"{path.name}.deleted-{count}")
        path.rename(doomed)
        return doomed

    def settle(self, state: NodeState, *, import_interrupted: bool) -> list[Path]:
        """Make topics and directories agree: a crash may have come between the one and the other.

        Returns the directories to remove: what a deletion left, and what an import had written that is done again.
        Nobody would ever read the messages of a topic of which no record is left: it is taken back, without channels.
        Raises OSError.
        """
        if not self._path.exists():
            return []
        known = {self.path_of(topic.number, topic.name) for topic in state.topics.values()}
        first_unrecorded, doomed = state.next_topic, list[Path]()
        for path in sorted(self._path.iterdir()):
            if path in known:
                continue
            directory, reason = TopicDirectory.at(path), ""
            files = None if directory is None else _files(path)
            if directory is None or files is None:
                pass
            elif directory.deleted and self._rename_back(directory, files, known):
                continue
            elif files.strangers:
                reason = f": {files.strangers[0].name} is not a log's file"
            elif directory.deleted:
                if self.path_of(directory.number, directory.name) not in known:
                    doomed.append(path)
                    continue
            elif reason := _not_of(directory, files, state):
                pass
            elif not files.segments or (import_interrupted and directory.number >= first_unrecorded):
                doomed.append(self.rename_deleted(path))
                continue
            else:
                logger.warning("%s: no record of this topic is left; its messages are taken back", path)
                first_seq = int(files.segments[0].stem)
                state.topics[directory.number] = TopicState(directory.number, directory.name, first_seq)
                state.next_topic = max(state.next_topic, directory.number + 1)
                continue
            step_over(path, reason)
        return doomed

    def _rename_back(self, directory: TopicDirectory, files: LogFiles, known: set[Path]) -> bool:
        """Undo the beginning of a deletion that the journal does not know of. False if this is none."""
        path = self.path_of(directory.number, directory.name)
        if path not in known or path.exists() or (files.strangers and not files.segments):
            return False
        directory.path.rename(path)
        return True


def step_over(path: Path, reason: str = "") -> None:
    """Name what was not made here."""
    logger.warning("%s is not the broker's and is left alone%s", path, reason)


def _files(path: Path) -> LogFiles | None:
    """What is in a directory; None if nobody lets us look."""
    try:
        return LogFiles.of(path)
    except PermissionError:
        return None


def _not_of(directory: TopicDirectory, files: LogFiles, state: NodeState) -> str:
    """Why a directory of which there is no record cannot be the topic's that its name says; empty if it can."""
    taken = state.topics.get(directory.number)
    if taken is not None:
        return f": its number is that of topic {taken.name}"
    if any(topic.name == directory.name for topic in state.topics.values()):
        return ": the topic has another directory"
    number = _number_in(files)
    if number not in (None, directory.number):
        return f": its messages are of topic number {number}"
    return ""


def _number_in(files: LogFiles) -> int | None:
    """The topic number in the ids of the messages in ``files``; None if the first of no file can be read."""
    for path in files.segments:
        with path.open("rb") as file:
            head = file.read(MESSAGE_HEAD_BYTES)
        if len(head) == MESSAGE_HEAD_BYTES:
            _, kind, _, _, message_id = MESSAGE_HEAD.unpack(head)
            if kind == MESSAGE and re.fullmatch(rb"[0-9a-f]{16}", message_id):
                return int(message_id[:6], 16) % TOPIC_NUMBERS
    return None
