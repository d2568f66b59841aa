"""The durable state of a node's topics and channels: a checkpoint, and the changes since."""

from __future__ import annotations

import json
import struct
from base64 import b64decode, b64encode
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NotRequired, TypedDict, final

from brokerd.clock import KeptClock
from brokerd.dead import DeadMessage, DeadMessages
from brokerd.dedup import ENTRY, Publish
from brokerd.journal import records
from brokerd.journal.records import RANGE
from brokerd.kernel.waiting import WAITING_RANGE

WAITING_IN_A_LINE = 1000
"""Maximum number of ranges in one line of a checkpoint, because formatting a line blocks all other threads."""


class Inapplicable(Exception):
    """A record cannot be applied to the state; the text has the record and the reason."""


class Delivered:
    """The delivered messages from ``floor`` on that later records describe: finished, skipped or set aside.

    The other delivered messages were in flight when the node stopped, and are redelivered.
    """

    def __init__(self, floor: int) -> None:
        self.floor = floor
        self._done = bytearray()

    def mark(self, first: int, count: int) -> None:
        """Mark ``count`` messages from ``first`` on. Those below ``floor`` are ignored."""
        start = max(first - self.floor, 0)
        end = first + count - self.floor
        if end <= start:
            return
        if len(self._done) < end:
            self._done.extend(bytes(end - len(self._done)))
        self._done[start:end] = b"\1" * (end - start)
        if self._done[0]:
            self._advance_floor()

    def _advance_floor(self) -> None:
        first_open = self._done.find(0)
        run = len(self._done) if first_open < 0 else first_open
        if run == len(self._done) or run > 65536:
            del self._done[:run]
            self.floor += run

    @property
    def end(self) -> int:
        """The number after the last marked message; ``floor`` if none is marked."""
        return self.floor + len(self._done)

    def marked_from(self, head: int) -> list[tuple[int, int]]:
        """The marked ``(first, count)`` ranges from ``head`` on."""
        ranges = [(head, self.floor - head)] if head < self.floor else []
        at = self._done.find(1, max(0, head - self.floor))
        while at >= 0:
            end = self._done.find(0, at)
            end = len(self._done) if end < 0 else end
            ranges.append((self.floor + at, end - at))
            at = self._done.find(1, end)
        return ranges

    def open_below(self, head: int) -> list[int]:
        """The messages from ``floor`` up to ``head`` that are not marked."""
        known = self._done[: max(0, head - self.floor)]
        found = [self.floor + at for at, done in enumerate(known) if not done]
        found.extend(range(self.floor + len(known), head))
        return found


@final
class _NodeLine(TypedDict):
    """The first line of a checkpoint."""

    format: int
    next_topic: int
    next_channel: int
    imports: int
    clock: NotRequired[tuple[str, int, int] | None]
    """A KeptClock. Older checkpoints have none, and Unix times."""


@final
class _TopicLine(TypedDict):
    topic: int
    name: str
    routed_end: int
    paused: bool
    holes: list[tuple[int, int]]
    deferred_end: int
    next_seq: NotRequired[int]
    """Older checkpoints have none."""


@final
class _ChannelLine(TypedDict):
    channel: int
    of: int
    """The topic's number."""
    name: str
    head: int
    paused: bool
    aside: list[list[int]]
    """``first, attempts, due_ns or 0`` and, for several messages, their count."""


@final
class _AsideLine(TypedDict):
    """More set-aside or removed messages of a channel."""

    aside_of: int
    aside: list[list[int]]
    removed: NotRequired[list[tuple[int, int]]]
    """``(first, count)`` ranges. Older versions do not read them, and deliver these messages again."""


@final
class _FailedLine(TypedDict):
    """Failed deliveries of a channel's messages: ``seq, failures, Unix ns of the first``."""

    failed_of: int
    failed: list[tuple[int, int, int]]


@final
class _DeadLine(TypedDict):
    """Dead messages of a channel: base64 of :data:`brokerd.dead.ENTRY`, and the ids of clients that they refer to."""

    dead_of: int
    dead: str
    clients: list[str]


@final
class _PolicyLine(TypedDict):
    policy_of: tuple[str, str]
    """The patterns of topic and channel."""
    policy: dict[str, Any]


@final
class _PublishesLine(TypedDict):
    """Publishes with deduplication ids: base64 of :data:`brokerd.dedup.ENTRY`."""

    publishes_of: int
    publishes: str


_Line = _PublishesLine | _TopicLine | _ChannelLine | _AsideLine | _FailedLine | _DeadLine | _PolicyLine | _NodeLine


@dataclass
class ChannelState:
    """The state of a channel.

    ``aside`` maps the number of each set-aside message to (attempts, due_ns or 0). A snapshot of a running node has
    ``waiting`` instead: packed WAITING_RANGE, in any order. ``removed`` has the ``(first, count)`` ranges from ``head``
    on that were finished, as of the checkpoint. ``failed`` has the number of failed deliveries of set-aside messages,
    and when the first one failed, Unix ns.
    """

    number: int
    topic: int
    name: str
    head: int
    paused: bool = False
    aside: dict[int, tuple[int, int]] = field(default_factory=dict)
    waiting: bytes = b""
    removed: list[tuple[int, int]] = field(default_factory=list)
    failed: dict[int, tuple[int, int]] = field(default_factory=dict)
    dead: DeadMessages = field(default_factory=DeadMessages)

    def __post_init__(self) -> None:
        self.delivered = Delivered(self.head)

    def remove(self, ranges: list[tuple[int, int]]) -> None:
        """Record ``(first, count)`` ranges as finished."""
        for first, count in ranges:
            self.delivered.mark(first, count)

    def removed_ahead(self) -> list[tuple[int, int]]:
        """The ``(first, count)`` ranges from ``head`` on that were finished, skipped or set aside."""
        return self.removed or self.delivered.marked_from(self.head)

    def wait(self, first: int, count: int, attempts: int, due_ns: int) -> None:
        """Set aside messages for another delivery at ``due_ns``, on the kept clock; 0 means at once."""
        for seq in range(first, first + count):
            self.aside[seq] = (attempts, due_ns)
        if self.dead:
            self.dead.remove(range(first, first + count))
        self.delivered.mark(first, count)

    def finish(self, first: int, count: int) -> None:
        """Record messages as finished."""
        for kept in (self.aside, self.failed):
            if kept:
                for seq in range(first, first + count):
                    kept.pop(seq, None)
        if self.dead:
            self.dead.remove(range(first, first + count))
        self.delivered.mark(first, count)

    def die(self, message: DeadMessage) -> None:
        """Record a message as dead."""
        self.aside.pop(message.seq, None)
        self.failed.pop(message.seq, None)
        self.dead.add(message)
        self.delivered.mark(message.seq, 1)

    def empty(self, head: int) -> None:
        """Forget all messages but the dead ones, and continue at ``head``."""
        self.head = head
        self.aside.clear()
        self.failed.clear()
        self.delivered = Delivered(head)

    @property
    def known_end(self) -> int:
        """The number after the last message that any record mentions."""
        return max(self.head, self.delivered.end, 1 + max(self.aside, default=-1), self.dead.end)

    def rewind(self, head: int, forgotten: list[tuple[int, int]]) -> None:
        """Move the cursor back to ``head``, and forget the messages in the ``(first seq, count)`` ranges.

        If ``head`` is above the present one, records were lost; the lower one is used.
        """
        head = min(head, self.head)
        self.aside |= dict.fromkeys((seq for seq in self._in_flight() if seq < head), (1, 0))
        starts = [first for first, _ in forgotten]

        def is_forgotten(seq: int) -> bool:
            at = bisect_right(starts, seq) - 1
            return seq >= head and at >= 0 and seq < starts[at] + forgotten[at][1]

        for kept in (self.aside, self.failed):
            for seq in [seq for seq in kept if is_forgotten(seq)]:
                del kept[seq]
        self.dead.remove([message.seq for message in self.dead.starting_at(head) if is_forgotten(message.seq)])
        self.head, self.delivered = head, Delivered(head)

    def portions(self) -> Iterator[list[tuple[int, ...]]]:
        """Yield the waiting messages as lists for checkpoint lines: ``(seq, attempts, due_ns[, count if not 1])``."""
        step = WAITING_IN_A_LINE * WAITING_RANGE.size
        for start in range(0, len(self.waiting), step):
            ranges = WAITING_RANGE.iter_unpack(self.waiting[start : start + step])
            yield [(seq, attempts, due_ns, count)[: 3 if count == 1 else 4] for seq, count, attempts, due_ns in ranges]
        entries = [(seq, *entry) for seq, entry in self.unfinished().items()] if not self.waiting else []
        for start in range(0, len(entries), WAITING_IN_A_LINE):
            yield list(entries[start : start + WAITING_IN_A_LINE])

    def unfinished(self) -> dict[int, tuple[int, int]]:
        """The messages to redeliver, including those in flight when the node stopped, in order of seq."""
        waiting = dict.fromkeys(self._in_flight(), (1, 0)) | self.aside
        return dict(sorted(waiting.items()))

    def _in_flight(self) -> list[int]:
        """The delivered messages that no record describes. If records are missing, dead ones may be among those."""
        found = self.delivered.open_below(self.head)
        return [seq for seq in found if seq not in self.dead] if self.dead else found


@dataclass
class TopicState:
    """The state of a topic. Messages from ``routed_end`` on are not routed yet; ``holes`` are ranges to skip."""

    number: int
    name: str
    routed_end: int
    paused: bool = False
    holes: list[tuple[int, int]] = field(default_factory=list)
    deferred_end: int = 0
    """Deferred publishes below this number were routed to the channels."""
    next_seq: int = 0
    """Messages below this number were published. It is as of the checkpoint; more may have been published since."""
    publishes: dict[bytes, Publish] = field(default_factory=dict)
    """The publishes with a deduplication id that began, by the digest of the id."""


def known_end(topic: TopicState, channels: Iterable[ChannelState]) -> int:
    """The number after the last message in the recorded state of a topic and its channels."""
    ends = [topic.routed_end, topic.deferred_end, topic.next_seq, *(end for _, end in topic.holes)]
    return max(ends + [channel.known_end for channel in channels])


class NodeState:
    """All of a node's topics and channels, by number."""

    def __init__(self) -> None:
        self.topics: dict[int, TopicState] = {}
        self.channels: dict[int, ChannelState] = {}
        self.next_topic = 0
        self.next_channel = 0
        self.imports = 0
        """Number of data directories of nsqd that were imported."""
        self.policies: dict[tuple[str, str], dict[str, Any]] = {}
        """The keys of each policy, by the patterns of topic and channel."""
        self.clock: KeptClock | None = None
        """The clock of the due times; None if they are Unix times, as in old checkpoints."""
        self.is_complete = True
        """False if earlier records may be missing. Records that depend on missing ones are then not applied."""
        self._topic_numbers: dict[str, int] = {}
        self._channel_numbers: dict[tuple[int, str], int] = {}

    def apply(self, record: bytes) -> None:
        """Apply a record. Applying it twice has no further effect: a checkpoint may include the first record after it.

        Raises Inapplicable, with nothing changed, if the record names an unknown topic or channel or is malformed.
        """
        try:
            self._apply(record)
        except (KeyError, struct.error, ValueError, TypeError) as error:
            raise Inapplicable(f"{record[:40]!r}: {error!r}") from error

    def _apply(self, record: bytes) -> None:
        kind = record[0]
        if kind in records.OF_MESSAGES:
            number = records.CHANNEL.unpack_from(record)[1]
            if number in self.channels or number >= self.next_channel:
                self._apply_to(self.channels[number], kind, record)
            # Otherwise the channel was deleted, and its messages no longer matter.
        else:
            self._apply_rare(kind, record)

    def _apply_to(self, channel: ChannelState, kind: int, record: bytes) -> None:
        if kind == records.DELIVERED:
            channel.head = records.CHANNEL_GATE.unpack(record)[2]
        elif kind == records.FINISHED:
            for first, count in RANGE.iter_unpack(record[records.CHANNEL.size :]):
                channel.finish(first, count)
        elif kind == records.WAITING:
            _, _, seq, attempts, due_ns = records.CHANNEL_MESSAGE.unpack(record)
            channel.wait(seq, 1, attempts, due_ns)
        elif kind == records.WAITING_RANGES:
            for waiting in WAITING_RANGE.iter_unpack(record[records.CHANNEL.size :]):
                channel.wait(*waiting)
        elif kind == records.FAILED:
            for seq, failures, first_ns in records.failures_in(record):
                channel.failed[seq] = failures, first_ns
        elif kind == records.DEAD:
            for message in list(records.deaths_in(record)):  # all are read before any is applied
                channel.die(message)
        else:
            first, count = RANGE.unpack_from(record, records.CHANNEL.size)
            channel.delivered.mark(first, count)
            channel.head = max(channel.head, first + count)  # a rewind must not return what was dropped below it

    def _apply_rare(self, kind: int, record: bytes) -> None:
        if kind == records.TOPIC_CREATED:
            _, number, routed_end = records.TOPIC_HEAD.unpack_from(record)
            self._create_topic(TopicState(number, record[records.TOPIC_HEAD.size :].decode(), routed_end))
        elif kind == records.TOPIC_NUMBER_TAKEN:
            self.next_topic = records.TOPIC.unpack(record)[1] + 1
        elif kind == records.TOPIC_DELETED:
            self._delete_topic(records.TOPIC.unpack(record)[1])
        elif kind == records.TOPIC_PAUSED:
            _, number, paused, routed_end = records.TOPIC_GATE.unpack(record)
            self.topics[number].paused = bool(paused)
            self.topics[number].routed_end = routed_end
        elif kind == records.TOPIC_ROUTED:
            _, number, end = records.TOPIC_HEAD.unpack(record)
            if self.is_complete:  # otherwise their records in the channels may be missing
                self.topics[number].deferred_end = end
        elif kind == records.TOPIC_PASSED:
            _, number, end = records.TOPIC_HEAD.unpack(record)
            self.topics[number].routed_end = end
        elif kind == records.TOPIC_EMPTIED:
            _, number, start, end = records.TOPIC_RANGE.unpack(record)
            topic = self.topics[number]
            if (start, end) not in topic.holes:
                topic.holes.append((start, end))
            topic.routed_end = end
            if self.is_complete:
                topic.deferred_end = max(topic.deferred_end, end)
        elif kind == records.TOPIC_CANCELLED:
            number = records.TOPIC.unpack_from(record)[1]
            topic = self.topics[number]
            ranges = RANGE.iter_unpack(record[records.TOPIC.size :])
            topic.holes += [(first, first + count) for first, count in ranges]
        elif kind == records.PUBLISH_BEGUN:
            _, number, first, count, timestamp_ns, until_ns, digest = records.PUBLISH.unpack(record)
            publishes = self.topics[number].publishes
            if count:
                publishes[digest] = Publish(digest, first, count, timestamp_ns, until_ns)
            else:
                publishes.pop(digest, None)
        elif kind == records.CHANNEL_CREATED:
            _, of, number, head = records.CHANNEL_HEAD.unpack_from(record)
            self._create_channel(ChannelState(number, of, record[records.CHANNEL_HEAD.size :].decode(), head))
        elif kind == records.CHANNEL_DELETED:
            _, number, routed_end = records.CHANNEL_GATE.unpack(record)
            self._note_end(number)
            gone = self.channels.pop(number, None)
            if gone is not None and gone.topic in self.topics:
                self.topics[gone.topic].routed_end = routed_end
        elif kind == records.CHANNEL_PAUSED:
            _, number, paused = records.CHANNEL_FLAG.unpack(record)
            self.channels[number].paused = bool(paused)
        elif kind == records.CHANNEL_EMPTIED:
            _, number, head = records.CHANNEL_GATE.unpack(record)
            self._note_end(number)
            self.channels[number].empty(head)
        elif kind == records.CHANNEL_REWOUND:
            _, number, head = records.CHANNEL_GATE.unpack_from(record)
            forgotten = RANGE.iter_unpack(record[records.CHANNEL_GATE.size :])
            self._note_end(number)
            self.channels[number].rewind(head, list(forgotten))
        elif kind == records.POLICY_SET:
            topic_pattern, channel_pattern, values = json.loads(record[1:])
            self.policies[topic_pattern, channel_pattern] = values
        elif kind == records.POLICY_DELETED:
            topic_pattern, channel_pattern = json.loads(record[1:])
            self.policies.pop((topic_pattern, channel_pattern), None)
        elif kind == records.CLOCK:
            if self.clock is not None:
                self.clock = self.clock._replace(wall_offset_ns=records.OFFSET.unpack(record)[1])
        elif kind == records.JOURNAL_BEGUN:
            _, _, is_complete, _ = records.BEGUN.unpack(record)
            self.is_complete = self.is_complete and bool(is_complete)
        else:
            raise KeyError(f"no record of kind {kind}")

    def _note_end(self, number: int) -> None:
        """Update the topic's ``next_seq`` before the state of a channel is dropped."""
        channel = self.channels.get(number)
        topic = None if channel is None else self.topics.get(channel.topic)
        if channel is not None and topic is not None:
            topic.next_seq = max(topic.next_seq, channel.known_end)

    def _create_topic(self, topic: TopicState) -> None:
        """Add a topic. An existing one with the same name or number was deleted, even if that record was lost."""
        older = self.topics.get(self._topic_numbers.get(topic.name, -1))
        if older is not None and older.name == topic.name:
            self._delete_topic(older.number)
        if topic.number in self.topics:
            self._delete_topic(topic.number)
        self.topics[topic.number] = topic
        self._topic_numbers[topic.name] = topic.number
        self.next_topic = topic.number + 1

    def _delete_topic(self, number: int) -> None:
        self.topics.pop(number, None)
        self.channels = {key: channel for key, channel in self.channels.items() if channel.topic != number}

    def _create_channel(self, channel: ChannelState) -> None:
        """Add a channel. An existing one of the same topic and name was deleted, even if that record was lost."""
        older = self.channels.get(self._channel_numbers.get((channel.topic, channel.name), -1))
        if older is not None and (older.topic, older.name) == (channel.topic, channel.name):
            del self.channels[older.number]
        self.channels[channel.number] = channel
        self._channel_numbers[channel.topic, channel.name] = channel.number
        self.next_channel = channel.number + 1

    def to_lines(self) -> Iterator[str]:
        """Yield the lines of a checkpoint: one JSON object for the node, each policy, each topic and each channel.

        Further lines follow that of a topic, with its publishes, and that of a channel, with more of its messages.
        """
        yield _line(
            format=1,
            next_topic=self.next_topic,
            next_channel=self.next_channel,
            imports=self.imports,
            clock=self.clock,
        )
        for (topic_pattern, channel_pattern), values in self.policies.items():
            yield _line(policy_of=(topic_pattern, channel_pattern), policy=values)
        for topic in self.topics.values():
            yield _line(
                topic=topic.number,
                name=topic.name,
                routed_end=topic.routed_end,
                paused=topic.paused,
                holes=topic.holes,
                deferred_end=topic.deferred_end,
                next_seq=topic.next_seq,
            )
            publishes = list(topic.publishes.values())
            for start in range(0, len(publishes), WAITING_IN_A_LINE):
                block = b"".join(ENTRY.pack(*publish) for publish in publishes[start : start + WAITING_IN_A_LINE])
                yield _line(publishes_of=topic.number, publishes=b64encode(block).decode())
        for channel in self.channels.values():
            portions = channel.portions()
            yield _line(
                channel=channel.number,
                of=channel.topic,
                name=channel.name,
                head=channel.head,
                paused=channel.paused,
                aside=next(portions, []),
            )
            for portion in portions:
                yield _line(aside_of=channel.number, aside=portion)
            removed = channel.removed_ahead()
            for start in range(0, len(removed), WAITING_IN_A_LINE):
                yield _line(aside_of=channel.number, aside=[], removed=removed[start : start + WAITING_IN_A_LINE])
            failed = [(seq, *failure) for seq, failure in channel.failed.items()]
            for start in range(0, len(failed), WAITING_IN_A_LINE):
                yield _line(failed_of=channel.number, failed=failed[start : start + WAITING_IN_A_LINE])
            for block, clients in channel.dead.packed():
                yield _line(dead_of=channel.number, dead=b64encode(block).decode(), clients=clients)

    @classmethod
    def from_lines(cls, lines: Iterable[str]) -> NodeState:
        """Read the lines of a checkpoint. Raises ValueError, KeyError or TypeError for other contents."""
        state = cls()
        for line in lines:
            data: _Line = json.loads(line)
            if "policy_of" in data:
                topic_pattern, channel_pattern = data["policy_of"]
                state.policies[topic_pattern, channel_pattern] = data["policy"]
            elif "publishes_of" in data:
                found = [Publish(*entry) for entry in ENTRY.iter_unpack(b64decode(data["publishes"]))]
                state.topics[data["publishes_of"]].publishes |= {publish.digest: publish for publish in found}
            elif "failed_of" in data:
                failed = {seq: (failures, first_ns) for seq, failures, first_ns in data["failed"]}
                state.channels[data["failed_of"]].failed |= failed
            elif "dead_of" in data:
                state.channels[data["dead_of"]].dead.add_packed(b64decode(data["dead"]), data["clients"])
            elif "aside_of" in data:
                channel = state.channels[data["aside_of"]]
                channel.aside.update(_aside(data["aside"]))
                channel.remove(data.get("removed", []))
            elif "channel" in data:
                aside = dict(_aside(data["aside"]))
                state.channels[data["channel"]] = ChannelState(
                    data["channel"], data["of"], data["name"], data["head"], data["paused"], aside
                )
                state._channel_numbers[data["of"], data["name"]] = data["channel"]
            elif "topic" in data:
                holes = [(start, end) for start, end in data["holes"]]
                topic = TopicState(
                    data["topic"], data["name"], data["routed_end"], data["paused"], holes, data["deferred_end"]
                )
                topic.next_seq = data.get("next_seq", 0)
                state.topics[topic.number] = topic
                state._topic_numbers[data["name"]] = data["topic"]
            elif data["format"] == 1:
                state.next_topic, state.next_channel = data["next_topic"], data["next_channel"]
                state.imports = data["imports"]
                if clock := data.get("clock"):
                    state.clock = KeptClock(*clock)
            else:
                raise ValueError(f"checkpoint of format {data['format']}, this version reads 1")
        return state


def _aside(entries: list[list[int]]) -> Iterator[tuple[int, tuple[int, int]]]:
    for first, attempts, due_ns, *counts in entries:
        for seq in range(first, first + (counts[0] if counts else 1)):
            yield seq, (attempts, due_ns)


def _line(**fields: object) -> str:
    return json.dumps(fields, separators=(",", ":")) + "\n"
