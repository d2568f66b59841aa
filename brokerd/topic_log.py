"""A topic's messages: its log, and the ranges of it that are routed, skipped, lost or still needed."""

from __future__ import annotations

import logging
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from brokerd.channel_journal import journal_nothing
from brokerd.journal import records
from brokerd.journal.journal import CHANGE_BYTES
from brokerd.kernel.frames import SEQ_MASK, seq_of
from brokerd.losses import Losses
from brokerd.ranges import Ranges
from nsqwire.frame import HEADER_SIZE, MESSAGE_HEAD, MESSAGE_HEAD_BYTES, MESSAGE_WITH_HEADERS
from nsqwire.names import is_ephemeral
from nsqwire.units import Nanoseconds, Seconds

if TYPE_CHECKING:
    from pathlib import Path

    from brokerd.log.headers import HeaderFile
    from brokerd.log.log import Log
    from brokerd.log.segment import Segment
    from brokerd.storage import Storage

KEPT_IN_MEMORY = 2
"""Number of newest segments that an ephemeral topic keeps; needed messages in older ones are copied."""
RELEASE_EVERY_S = 1.0
"""With ``--retention``, the shortest time between two checks for expired segments."""
ID = slice(18, 34)
"""The bytes of the id in a message frame."""
_FRAME = struct.Struct(">iI")

logger = logging.getLogger("brokerd")


class Reader(Protocol):
    """The part of a channel that the log of its topic uses."""

    gone: bool

    @property
    def low_water(self) -> int:
        """The lowest message that it may still need."""
        ...

    @property
    def head(self) -> int:
        """The next message that it has never delivered."""
        ...

    def undelivered_between(self, start: int, end: int) -> Iterator[int]:
        """Yield the dead and the set-aside messages in ``[start, end)`` that are not in flight."""
        ...

    def copy_below(self, end: int, frames: dict[int, bytes]) -> None:
        """Copy the frames of the unfinished messages below ``end`` that the cursor has passed.

        ``frames`` has the copies that other channels have made; new ones are added to it.
        """
        ...

    def copied(self) -> Iterator[int]:
        """Yield the messages that it has copies of."""
        ...

    def forget(self, lost: Ranges) -> None:
        """Forget the set-aside and dead messages in ``lost``."""
        ...

    def skipped_grew(self) -> None:
        """A range that may be ahead of the cursor was added to the skipped ones."""
        ...


class Unrouted(list[tuple[int, int, int]]):
    """``(first seq, count, delay in ms)`` of the deferred publishes that are not routed yet, in order."""

    def leave_out(self, start: int, end: int) -> None:
        """Forget the messages in ``[start, end)``."""
        parts = (
            (max(first, low), min(first + count, high), delay_ms)
            for first, count, delay_ms in self
            for low, high in ((first, start), (end, first + count))
        )
        self[:] = [(low, high - low, delay_ms) for low, high, delay_ms in parts if low < high]

    def between(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of their ranges that are in ``[start, end)``."""
        for first, count, _ in self:
            if first < end and start < first + count:
                yield max(first, start), min(first + count, end)


class TopicLog:
    """The messages of one topic. ``readers`` are its channels; ``now`` returns monotonic seconds."""

    def __init__(
        self,
        storage: Storage,
        log: Log,
        readers: Mapping[str, Reader],
        *,
        number: int,
        name: str,
        id_head: bytes,
        routed_end: int,
        now: Callable[[], Seconds],
    ) -> None:
        self.log = log
        self.number = number
        self.name = name
        self.ephemeral = is_ephemeral(name)
        self.id_head = id_head
        """The first six digits of the ids of its messages."""
        self.skipped = Ranges()
        """The messages that cursors skip: holes and deferred publishes."""
        self.holes = Ranges()
        """The emptied or unreadable messages, as long as some channel has not passed them."""
        self.unrouted = Unrouted()
        self.move_count = 0
        """The number of times that a channel was rewound or emptied."""
        self.is_routing = False
        """True while messages go to the channels as they are published."""
        self.journal: Callable[[bytes], None] = journal_nothing if self.ephemeral else storage.append
        """Journals a change of the topic or one of its channels; does nothing for an ephemeral or deleted topic."""
        self._storage = storage
        self._readers = readers
        self._now = now
        self._routed_end = routed_end
        self._former_id_heads: set[bytes] = set()
        self._own_from = log.next_seq  # the messages before were published by earlier processes
        self._losses = Losses()
        self._copied_headers: dict[int, bytes] = {}  # of the messages that some channel has copies of
        self._reported_headers: set[Path] = set()
        self._slowest: Reader | None = None
        self._release_from = 0.0
        self._oldest: tuple[int, int | None] = -1, None
        self._seen_when_idle: tuple[int, ...] = ()

    # -- routing --------------------------------------------------------------------------------------------------

    @property
    def routed_end(self) -> int:
        """Messages below this number were routed to the channels; those at or above it wait in the topic."""
        return self.log.next_seq if self.is_routing else self._routed_end

    @property
    def deferred_end(self) -> int:
        """Deferred publishes below this number were routed to the channels."""
        return self.unrouted[0][0] if self.unrouted else self.log.next_seq

    def set_routing(self, is_routing: bool) -> None:
        """Set whether messages go to the channels from now on, or wait in the topic."""
        if is_routing != self.is_routing:
            self._routed_end, self.is_routing = self.routed_end, is_routing

    @property
    def depth(self) -> int:
        """Number of messages that wait in the topic."""
        start, end = self.routed_end, self.log.next_seq
        return end - start - self.holes.count_between(start, end)

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the bodies of the messages that wait in the topic."""
        start, end = self.routed_end, self.log.next_seq
        holes = sum(self.frame_bytes(*hole) for hole in self.holes.inside(start, end))
        return self.frame_bytes(start, end) - holes - MESSAGE_HEAD_BYTES * self.depth

    def frame_bytes(self, start: int, end: int) -> int:
        """Bytes of the frames of the messages in ``[start, end)``, those to be skipped included, without missing ones.

        Raises OSError if a segment cannot be mapped.
        """
        return self.log.bytes_from(start) - self.log.bytes_from(end) if start < end else 0

    def oldest_age_ns(self, now_ns: int) -> int | None:
        """Age of the oldest message that waits in the topic; None if there is none."""
        if not self.depth:
            return None
        oldest, _ = next(self.holes.outside(self.routed_end, self.log.next_seq))
        if self._oldest[0] != oldest:  # cached, because the log may have unmapped its files
            self._oldest = oldest, self.log.timestamp_of(oldest)
        timestamp = self._oldest[1]
        return None if timestamp is None else max(0, now_ns - timestamp)

    def empty(self) -> int:
        """Drop the messages that wait in the topic: their range becomes a hole. Returns the length of the hole."""
        start, end = self.routed_end, self.log.next_seq
        self.unrouted.clear()
        self.skipped.add(start, end)
        self.holes.add(start, end)
        self._routed_end = end
        self.journal(records.topic_emptied(self.number, start, end))
        return end - start

    def waits(self, seq: int) -> bool:
        """Return whether message ``seq`` waits in the topic."""
        return self.routed_end <= seq < self.log.next_seq and seq not in self.holes

    def cancel(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Drop the ``(first, count)`` ranges of messages that wait in the topic: they become holes. The caller has made
        room in the journal."""
        for first, count in ranges:
            self.unrouted.leave_out(first, first + count)
        cancelled = [(first, first + count) for first, count in ranges]
        self.holes.add_all(cancelled)
        self.skipped.add_all(cancelled)
        for reader in self._readers.values():
            reader.skipped_grew()
        self.journal(records.topic_cancelled(self.number, ranges))

    def deferred_between(self, start: int, end: int) -> Iterator[int]:
        """Yield the deferred publishes in ``[start, end)`` that cursors skip, without those that were emptied."""
        while (skip := self.skipped.next_from(start)) is not None and skip[0] < end:
            for first, count in self.holes.outside(max(start, skip[0]), min(end, skip[1])):
                yield from range(first, first + count)
            start = skip[1]

    # -- reading --------------------------------------------------------------------------------------------------

    def ids(self, published: range) -> list[bytes]:
        """The ids of the messages of one publish, by their numbers."""
        id_head = self.id_head
        if published and (frame := self.log.frame(published.start)) is not None:
            id_head = bytes(frame[ID][: len(id_head)])  # another one if the node had another id then
        return [b"%b%010x" % (id_head, seq & SEQ_MASK) for seq in published]

    def id_of(self, seq: int) -> bytes:
        """The id of a message. One of an earlier process has another first part if the node had another id then."""
        if seq < self._own_from and self.log.contains(seq):
            with suppress(OSError):  # its segment cannot be mapped
                if (frame := self.log.frame(seq)) is not None:
                    return bytes(frame[ID])
        return b"%b%010x" % (self.id_head, seq & SEQ_MASK)

    def is_former_id_head(self, message_id: bytes, head: int) -> bool:
        """Return whether the first digits of this id are those of messages published under another node id."""
        id_head = message_id[:6]
        if id_head == self.id_head or id_head in self._former_id_heads:
            return id_head != self.id_head
        seq = seq_of(message_id, id_head, head)
        frame = None if seq is None else self.log.frame(seq)
        if frame is None or frame[ID] != message_id:
            return False
        self._former_id_heads.add(id_head)
        return True

    def check_batches(self, segment: Segment, seq: int) -> None:
        """Check the batches around ``seq`` that an earlier process wrote. Damaged ones are recorded as lost."""
        for commit in segment.damaged_below(seq):
            self._lose(commit.first_seq, commit.next_seq, f"damaged in {segment.path}")

    def place_of(self, seq: int) -> tuple[Segment, int, int] | None:
        """The segment of message ``seq``, and a range ``[start, end)`` of undamaged messages around it.

        None if message ``seq`` is damaged or missing. Raises OSError if the segment cannot be mapped.
        """
        if not self.log.contains(seq):
            return None
        segment = self.log.segment_of(seq)
        start, end = segment.sound_range(seq)
        if self._losses.ranges:
            damaged = self._losses.ranges.next_from(seq)
            start, end = max(start, seq), min(end, damaged[0]) if damaged is not None else end
        return (segment, start, end) if seq < end else None

    # -- headers --------------------------------------------------------------------------------------------------

    def header_block(self, seq: int, timestamp: Nanoseconds) -> bytes:
        """The header block of the message with this number and timestamp; empty without headers, or if they cannot be
        read."""
        if not self.log.contains(seq):
            return self._copied_headers.get(seq, b"")
        segment = self.log.segment_of(seq)
        headers = segment.headers
        if headers is None:
            return b""
        try:
            segment.open_headers()
            block = headers.find(seq, timestamp)
        except OSError as error:
            self._report_headers(headers, str(error))
            return b""
        if headers.damaged is not None:
            start, end = headers.damaged
            self._report_headers(headers, f"bytes {start} to {end - 1} are damaged")
        return block

    def header_block_of(self, frame: bytes | memoryview) -> bytes:
        """The header block of the message with this frame, as header_block returns it."""
        if not self.log.has_headers:
            return b""
        _, _, timestamp, _, message_id = MESSAGE_HEAD.unpack_from(frame)
        seq = seq_of(message_id, message_id[:6], self.log.next_seq)
        return b"" if seq is None else self.header_block(seq, timestamp)

    def with_headers(self, frames: bytes | memoryview) -> bytes | memoryview:
        """Message frames for a client that receives headers: those of messages with headers are replaced."""
        if not self.log.has_headers:
            return frames
        view, parts = memoryview(frames), list[bytes | memoryview]()
        start = at = 0
        while at < len(view):
            end = at + 4 + int.from_bytes(view[at : at + 4])
            if block := self.header_block_of(view[at:end]):
                head, body = view[at + 8 : at + MESSAGE_HEAD_BYTES], view[at + MESSAGE_HEAD_BYTES : end]
                size = end - at - 4 + HEADER_SIZE.size + len(block)
                new = (_FRAME.pack(size, MESSAGE_WITH_HEADERS), head, HEADER_SIZE.pack(len(block)), block, body)
                parts += (view[start:at], *new)
                start = end
            at = end
        return b"".join([*parts, view[start:]]) if parts else frames

    def _report_headers(self, headers: HeaderFile, reason: str) -> None:
        """Log once for each file that headers cannot be read."""
        assert headers.path is not None, "in memory nothing is damaged"
        if headers.path not in self._reported_headers:
            self._reported_headers.add(headers.path)
            logger.error(
                "TOPIC(%s): headers in %s are lost, their messages are delivered without them: %s",
                self.name,
                headers.path,
                reason,
            )

    # -- losses ---------------------------------------------------------------------------------------------------

    @property
    def lost_message_count(self) -> int:
        """Undelivered messages found damaged or missing since the process started."""
        return self._losses.count

    def recover_losses(self, *, is_complete: bool) -> None:
        """After a restart, skip the messages that are missing from the files, and count those still to be delivered.

        Batches of the newest segment are checked now, because a crash of the machine may have left some half written.
        Those of older ones are checked before delivery, so that a large backlog does not delay the start.
        """
        log = self.log
        low, first_seq = self.low_water, log.first_seq
        if low < first_seq:
            if is_complete:
                self._lose(low, first_seq, f"missing from {log.directory}")
            else:
                self._losses.add_finished(low, first_seq)
                self._make_hole(low, first_seq)
        for start, end in log.gaps():
            file = log.file_of(start)
            self._lose(start, end, f"missing from {file}" if file.exists() else f"missing with the file {file}")
        if log.segments:
            newest = log.segments[-1]
            while newest.checked_end < newest.next_seq:
                self.check_batches(newest, newest.checked_end)
        if lost := self._losses.ranges:
            for reader in self._readers.values():
                reader.forget(lost)

    def is_lost(self, seq: int) -> bool:
        """Return whether message ``seq`` was found damaged or missing, before it was delivered to all channels."""
        return seq in self._losses.undelivered

    def lose_batch_of(self, seq: int) -> None:
        """Record message ``seq`` and the others of its batch as lost, because they are damaged or missing."""
        start, end = self.log.batch_of(seq)
        self._lose(start, end, f"damaged in {self.log.file_of(seq)}" if self.log.directory else "damaged in memory")

    def _lose(self, start: int, end: int, reason: str) -> None:
        found = self._losses.add(start, end, self._undelivered(start, end))
        self._make_hole(start, end)
        if found:
            self._storage.lost(self.name, found, f"numbers {start} to {end - 1} are {reason}")

    def _make_hole(self, start: int, end: int) -> None:
        self.holes.add(start, end)
        self.skipped.add(start, end)
        for reader in self._readers.values():
            reader.skipped_grew()
        self.unrouted.leave_out(start, end)

    def _undelivered(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges that some channel, or the topic itself, still has to deliver, without messages in flight."""
        at = max(start, min([self.routed_end, *(reader.head for reader in self._readers.values())]))
        while at < end:
            first, stop = self.skipped.next_from(at) or (end, end)
            if at < first:
                yield at, min(first, end)
            at = max(at, stop)
        for reader in self._readers.values():
            for seq in reader.undelivered_between(start, end):
                yield seq, seq + 1
        yield from self.unrouted.between(start, end)

    # -- storage --------------------------------------------------------------------------------------------------

    def require_room(self, nbytes: int = CHANGE_BYTES, *, of_messages: bool = False) -> None:
        """Check, before a change, that the journal has room for its records. Raises OSError."""
        if not self.ephemeral:
            self._storage.require_room(nbytes, of_messages=of_messages)

    def journal_if_complete(self, record: bytes) -> None:
        """Journal a change that replay applies only to a state without gaps; if there is one, it is not journalled."""
        if not self.ephemeral:
            self._storage.append_if_complete(record)

    @property
    def low_water(self) -> int:
        """The lowest message that any channel may still need, or that waits in the topic."""
        return min([self.routed_end, *(reader.low_water for reader in self._readers.values())])

    def release(self) -> None:
        """Remove the segments that no channel needs and that retention does not keep."""
        if not self.ephemeral and self._storage.retention is not None:
            now = self._now()
            if now < self._release_from:  # without this limit, each FIN would check the segments that retention keeps
                return
            self._release_from = now + RELEASE_EVERY_S
        slowest = self._slowest
        if slowest is not None and not slowest.gone and slowest.low_water < self.log.first_end:
            return  # the slowest channel still needs the first segment, so the others need not be checked
        if len(self.log.segments) > 1:
            self._slowest = min(self._readers.values(), key=lambda reader: reader.low_water, default=None)
            try:
                self.log.drop_below(self._first_needed())
            except OSError as error:  # the files stay until the next start; the client's FIN still succeeds
                self._storage.write_failed(error)
            self._forget_below(min(self.log.first_seq, self.low_water))  # the first segment may be missing

    def _forget_below(self, seq: int) -> None:
        """Forget the ranges below ``seq``. A rewind needs those of messages that are still in the log."""
        self.skipped.drop_below(seq)
        self.holes.drop_below(seq)
        self._losses.drop_below(seq)

    def copy_old(self) -> None:
        """Copy the unfinished messages in old segments of an ephemeral topic, then remove these segments."""
        if len(self.log.segments) > KEPT_IN_MEMORY:
            end, frames = self.log.segments[-KEPT_IN_MEMORY].first_seq, dict[int, bytes]()
            for reader in self._readers.values():
                reader.copy_below(end, frames)
            if self.log.has_headers:
                self._copy_headers()
            self.release()

    def _copy_headers(self) -> None:
        """Keep the headers of the messages that some channel has copies of."""
        copied = {}
        for seq in {seq for reader in self._readers.values() for seq in reader.copied()}:
            timestamp = self.log.timestamp_of(seq)
            if block := self.header_block(seq, 0 if timestamp is None else timestamp):
                copied[seq] = block
        self._copied_headers = copied

    @property
    def oldest_retained(self) -> Segment | None:
        """The oldest segment, if only retention keeps it."""
        segments = self.log.segments
        return segments[0] if len(segments) > 1 and segments[0].next_seq <= self.low_water else None

    def unmap_if_idle(self) -> None:
        """Close and unmap all files if nothing was published or delivered since the last call. Called periodically.

        If no message is needed any more, the space of the segments is freed too.
        """
        if self._storage.retention is not None:
            self.release()
        seen = (self.log.next_seq, *(reader.head for reader in self._readers.values()))
        if seen == self._seen_when_idle:
            if self._first_needed() == self.log.next_seq:
                self._shrink()
            self.log.unmap()
        self._seen_when_idle = seen

    def _first_needed(self) -> int:
        """The lowest message that some channel may still need or that retention keeps."""
        retention = None if self.ephemeral else self._storage.retention
        low = self.low_water
        return low if retention is None else min(low, retention.first_kept(self.log, time.time_ns()))

    def _shrink(self) -> None:
        before = self.log.segments[-1:]
        with suppress(OSError):  # no space or no descriptors; retried when the topic is idle again
            self.log.shrink()
        if self.log.segments[-1:] != before:
            self._forget_below(self.log.next_seq)
            self.journal(records.topic_routed(self.number, self.log.next_seq))


def id_head(node_id: int, number: int) -> bytes:
    """The first six digits of the ids of a topic's messages: 10 bits of the node, 14 of the topic."""
    return b"%06x" % (node_id << 14 | number)
