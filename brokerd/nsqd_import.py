"""The import of a data directory that nsqd wrote: its topics, channels, pauses and queued messages.

The files of nsqd are moved to ``nsqd-import/`` first, imported from there, and kept in ``nsqd-imported-<n>/`` once the
node's state contains them. An interrupted import starts again from the beginning.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypedDict

from brokerd.diskqueue import DiskQueue
from brokerd.journal.recovery import CorruptState
from brokerd.journal.state import ChannelState, NodeState, TopicState, known_end
from brokerd.kernel.frames import SEQ_MASK
from brokerd.log.log import Log
from nsqwire.counted import counted
from nsqwire.foreign_json import UNREADABLE_JSON
from nsqwire.frame import MESSAGE, MESSAGE_HEAD, MESSAGE_HEAD_BYTES, Message
from nsqwire.names import is_ephemeral, is_valid_name

METADATA = "nsqd.dat"
STAGING = "nsqd-import"
KEPT = "nsqd-imported-"
KEPT_NAME = re.compile(rf"{KEPT}([1-9][0-9]*)")
_IMPORTS = "imports"
"""Name of a staged file with the number of imports before this one, because the files of those may be deleted."""
_QUEUE_FILE = re.compile(r".+\.diskqueue\.(?:meta|[0-9]+)\.dat(?:\.bad)?")
_BATCH = 512

logger = logging.getLogger("brokerd")


class ImportFailed(CorruptState):
    """nsqd's metadata cannot be read; the text is the file and the reason. Nothing was changed."""


class _ChannelMetadata(TypedDict, total=False):
    """Part of ``nsqd.dat``; as in the topics, only the name's type is checked."""

    name: str
    paused: bool


class _TopicMetadata(_ChannelMetadata, total=False):
    channels: list[_ChannelMetadata] | None


@dataclass
class _Queue:
    name: str
    paused: bool
    messages: dict[bytes, Message] = field(default_factory=dict)


@dataclass
class _Topic(_Queue):
    channels: list[_Queue] = field(default_factory=list)


class Place(NamedTuple):
    """The directory of a topic's log, and the first digits of its message ids."""

    directory: Path
    id_head: bytes


def check(data_path: Path) -> None:
    """Raise ImportFailed, before anything is moved, if nsqd's metadata is invalid."""
    if (data_path / METADATA).is_file():
        _read_metadata(data_path / METADATA)


def is_interrupted(data_path: Path) -> bool:
    """Return whether an earlier import was interrupted, possibly after it had written messages."""
    return (data_path / STAGING / METADATA).exists()


def stage(data_path: Path, state: NodeState) -> Path | None:
    """Move nsqd's files to the staging directory and return its path; None if there is nothing to import.

    If ``state`` already contains the staged files, because a crash followed their import, they are only renamed.
    """
    staging = data_path / STAGING
    metadata = data_path / METADATA
    if is_interrupted(data_path) and state.imports > _imports_before(staging):
        keep(staging)
    if not metadata.is_file():
        return staging if is_interrupted(data_path) else None
    staging.mkdir(exist_ok=True)
    (staging / _IMPORTS).write_text(str(state.imports))
    for file in sorted(data_path.iterdir()):
        if _QUEUE_FILE.fullmatch(file.name) and file.is_file():
            file.rename(staging / file.name)
    metadata.rename(staging / METADATA)  # last: as long as it is not moved, the next start continues the move
    return staging


def import_into(state: NodeState, staging: Path, place: Callable[[int, str], Place]) -> None:
    """Write the staged messages to our logs, and the topics and channels to ``state``. Raises OSError."""
    state.imports += 1
    for topic in _read_queues(staging):
        taken = next((known for known in state.topics.values() if known.name == topic.name), None)
        if taken is None:
            taken = TopicState(state.next_topic, topic.name, 0)
            state.next_topic += 1
            state.topics[taken.number] = taken
        _import_topic(state, taken, topic, place(taken.number, topic.name))


def keep(staging: Path) -> Path:
    """Rename the directory of the imported files, and return its new name."""
    number = 1 + max(_kept(staging.parent), default=0)
    kept = staging.with_name(f"{KEPT}{number}")
    staging.rename(kept)
    return kept


def _imports_before(staging: Path) -> int:
    """The number of imports before that of the staged files. Earlier releases did not record it."""
    try:
        return int((staging / _IMPORTS).read_text())
    except (OSError, ValueError):
        return len(_kept(staging.parent))


def _kept(data_path: Path) -> list[int]:
    """The numbers of earlier imports, whose files are kept."""
    return [int(match[1]) for path in data_path.iterdir() if (match := KEPT_NAME.fullmatch(path.name))]


def _read_metadata(path: Path) -> list[_TopicMetadata]:
    try:
        data = json.loads(path.read_bytes() or b"{}")
        topics = data.get("topics") or []
        return [topic for topic in topics if isinstance(topic["name"], str)]
    except UNREADABLE_JSON as error:
        raise ImportFailed(f"failed to parse metadata in {path} - {error}") from error


def _read_queues(staging: Path) -> list[_Topic]:
    topics = []
    for entry in _read_metadata(staging / METADATA):
        if not _usable(entry["name"], "topic"):
            continue
        topic = _Topic(entry["name"], bool(entry.get("paused")))
        topic.messages = _read_queue(staging, topic.name)
        for each in entry.get("channels") or []:
            if _usable(each.get("name"), "channel"):
                channel = _Queue(each["name"], bool(each.get("paused")))
                channel.messages = _read_queue(staging, f"{topic.name}:{channel.name}")
                topic.channels.append(channel)
        topics.append(topic)
    return topics


def _usable(name: object, kind: str) -> bool:
    if isinstance(name, str) and is_valid_name(name) and not is_ephemeral(name):
        return True
    logger.warning("skipping creation of invalid %s %s", kind, name)
    return False


def _read_queue(staging: Path, name: str) -> dict[bytes, Message]:
    queue = DiskQueue(staging, name)
    messages = {message.id: message for message in queue.messages()}
    for damage in queue.damage:
        logger.error("DISKQUEUE(%s): %s", name, damage)
    return messages


def _import_topic(state: NodeState, taken: TopicState, topic: _Topic, place: Place) -> None:
    """Write a topic's messages to its log, and its channels to ``state``.

    The log has the delivered messages first, then the undelivered ones by age, then those that were in no channel's
    queue, which are the newest. A channel that has every message from some number on gets its cursor there
    (:func:`_cursor`); its messages below the cursor are set aside.

    In a topic that had channels or messages before the import, cursors skip all imported messages, and each channel
    sets aside those that it must deliver. Those that waited in nsqd's topic are for all channels.
    """
    known = {message.id: message for channel in topic.channels for message in channel.messages.values()}
    attempted = {message.id for channel in topic.channels for message in channel.messages.values() if message.attempts}
    waiting = [message for message in topic.messages.values() if message.id not in known]
    order = sorted(known.values(), key=lambda message: (message.id not in attempted, message.timestamp, message.id))
    order += sorted(waiting, key=lambda message: (message.timestamp, message.id))
    channels = [channel for channel in state.channels.values() if channel.topic == taken.number]
    log, _ = Log.recover(place.directory, place.id_head, known_end(taken, channels))
    first = log.next_seq
    _append(log, order, place.id_head)
    seqs = {message.id: seq for seq, message in enumerate(order, first)}
    routed_end = first + len(known)
    has_channels = bool(channels)
    before = {} if has_channels else dict.fromkeys(range(taken.routed_end, first), (0, 0))  # they waited in our topic
    fresh = not has_channels and not before
    taken.paused = taken.paused or topic.paused
    if topic.channels or has_channels:
        taken.routed_end = routed_end if fresh else log.next_seq
    if not fresh and order and (topic.channels or has_channels):
        taken.holes.append((first, log.next_seq))
    for queue in topic.channels:
        held = dict(queue.messages)
        if not fresh:
            held |= topic.messages
        existing = (c for c in state.channels.values() if c.topic == taken.number and c.name == queue.name)
        channel = next(existing, None)
        aside = {seqs[message.id]: (message.attempts, 0) for message in held.values()}
        if channel is None:
            head = log.next_seq
            if fresh:
                head = _cursor(aside, first + len(attempted), routed_end)
            aside = before | {seq: entry for seq, entry in aside.items() if seq < head}
            channel = ChannelState(state.next_channel, taken.number, queue.name, head, queue.paused)
            state.channels[channel.number] = channel
            state.next_channel += 1
        channel.aside.update(aside)
    in_topic = {seqs[message.id]: (message.attempts, 0) for message in topic.messages.values()}
    names = {queue.name for queue in topic.channels}
    for channel in channels:
        if channel.name not in names:
            channel.aside.update(in_topic)
    log.close()
    logger.info("TOPIC(%s): %s imported from nsqd", topic.name, counted(len(order), "message"))


def _cursor(held: dict[int, tuple[int, int]], first_fresh: int, end: int) -> int:
    """The first message of ``held`` from ``first_fresh`` on, if all between it and ``end`` are in it; else ``end``."""
    clean = sorted(seq for seq in held if seq >= first_fresh)
    head = end - len(clean)
    return head if not clean or clean[0] == head else end


def _append(log: Log, messages: Sequence[Message], id_head: bytes) -> None:
    for start in range(0, len(messages), _BATCH):
        log.append(_ImportedBatch(messages[start : start + _BATCH], id_head))


class _ImportedBatch:
    """A :class:`brokerd.log.batch.Batch` of messages that keep their timestamps; the first one's is the batch's."""

    def __init__(self, messages: Sequence[Message], id_head: bytes) -> None:
        self._messages = messages
        self._id_head = id_head
        self.count = len(messages)
        self.defer_ms = 0
        self.body_bytes = sum(len(message.body) for message in messages)
        self.nbytes = self.body_bytes + MESSAGE_HEAD_BYTES * self.count
        self.timestamp_ns = messages[0].timestamp

    def write(self, buffer: memoryview, offset: int, first_seq: int) -> None:
        for seq, message in enumerate(self._messages, first_seq):
            size = MESSAGE_HEAD_BYTES + len(message.body)
            message_id = b"%b%010x" % (self._id_head, seq & SEQ_MASK)
            MESSAGE_HEAD.pack_into(buffer, offset, size - 4, MESSAGE, message.timestamp, 1, message_id)
            buffer[offset + MESSAGE_HEAD_BYTES : offset + size] = message.body
            offset += size
