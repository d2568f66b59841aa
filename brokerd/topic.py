"""A topic: a log of messages, and the channels that read it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from brokerd.channel import Channel
from brokerd.journal import records
from brokerd.journal.journal import CHANGE_BYTES
from brokerd.kernel import append_batches, append_bodies, append_messages
from brokerd.kernel.frames import seq_of
from brokerd.log.log import Log
from brokerd.log.segment import Write
from brokerd.losses import Losses
from brokerd.skips import Skips
from nsqwire.errors import ChannelNotFound, PublishFailed
from nsqwire.frame import MESSAGE_HEAD_BYTES
from nsqwire.names import is_ephemeral
from nsqwire.scan import Input

if TYPE_CHECKING:
    from brokerd.broker import Broker
    from brokerd.log.segment import Segment

KEPT_IN_MEMORY = 2
"""Newest segments that an ephemeral topic keeps; needed messages of older ones are copied."""
SIZE_BYTES = 4
"""Length, u32, before each message of an MPUB body."""
RELEASE_EVERY_S = 1.0
"""With a retention period, the shortest time between two checks for expired segments."""
WAITING_BYTES = 48
"""Upper bound on the size of a journal record of a range of deferred messages, head included."""
COUNT_BYTES = 4
"""Number of messages, u32, at the start of an MPUB body."""
MPUB_LINE = ord("M")
"""The first byte of an MPUB's command line; a PUB's differs."""
ID = slice(18, 34)
"""The id in a message frame."""


class Topic:
    """The rules of one topic. ``broker`` gives it clock, journal and timers."""

    def __init__(self, broker: Broker, number: int, name: str, log: Log, routed_end: int) -> None:
        self._broker = broker
        self.number = number
        self.name = name
        self.ephemeral = is_ephemeral(name)
        self.log = log
        self.paused = False
        self.channels: dict[str, Channel] = {}
        self.listening: dict[Channel, None] = {}
        """The channels to notify of a publish: all with a ready client, and the ephemeral ones. Others may remain until
        the next publish."""
        self.skips = Skips()
        self.message_count = 0
        self.message_bytes = 0
        self.id_head = id_head(broker.node_id, number)
        self._former_id_heads: set[bytes] = set()
        self.timers = broker.timers
        self.topology = broker.topology
        self.journal: Callable[[bytes], None] = _keep_nothing if self.ephemeral else broker.journal_append
        """Journals a change of the topic or one of its channels; does nothing for an ephemeral or deleted topic."""
        self.clock = broker.clock
        self.wake = broker.wake
        self.scheduler = broker.scheduler
        self.max_msg_timeout = broker.settings.max_msg_timeout.total_seconds()
        self.mem_queue_size = broker.settings.mem_queue_size
        self._routed_end = routed_end
        self._held = False
        self._last: Channel | None = None
        self._only_ephemeral = False
        self._release_from = 0.0
        self._oldest: tuple[int, int | None] = -1, None
        self._seen_at_rest: tuple[int, ...] = ()
        self._holes = Skips()
        self._losses = Losses()
        self._unrouted: list[tuple[int, int, int]] = []  # (first seq, count, defer ms) of deferred publishes

    # -- what it holds --------------------------------------------------------------------------------------------

    @property
    def routed_end(self) -> int:
        """Messages below it have gone to the channels; those from there on wait in the topic."""
        return self.log.next_seq if self._routes else self._routed_end

    @property
    def _routes(self) -> bool:
        """True while messages go to the channels as they are published."""
        return bool(self.channels) and not self.paused and not self._held

    @property
    def depth(self) -> int:
        """Messages that wait in the topic, for a channel or for the end of its pause."""
        start, end = self.routed_end, self.log.next_seq
        return end - start - self._holes.count_between(start, end)

    @property
    def lost_message_count(self) -> int:
        """Undelivered messages found damaged or missing since the process started."""
        return self._losses.count

    @property
    def backend_depth(self) -> int:
        """The part of ``depth`` that nsqd would keep on disk."""
        return 0 if self.ephemeral else max(0, self.depth - self.mem_queue_size)

    def oldest_unfinished_age_ns(self, now_ns: int) -> int | None:
        """Age of the oldest unfinished message of the topic and its channels; None if there is none."""
        found = [channel.oldest_unfinished_age_ns(now_ns) for channel in self.channels.values()]
        ages = [age for age in found if age is not None]
        if self.depth:
            if self._oldest[0] != self.routed_end:
                self._oldest = self.routed_end, self.log.timestamp_of(self.routed_end)
            if self._oldest[1] is not None:
                ages.append(max(0, now_ns - self._oldest[1]))
        return max(ages, default=None)

    def is_former_id_head(self, message_id: bytes, head: int) -> bool:
        """Tell whether ids with this one's head were assigned to messages under another node id."""
        id_head = message_id[:6]
        if id_head == self.id_head or id_head in self._former_id_heads:
            return id_head != self.id_head
        seq = seq_of(message_id, id_head, head)
        frame = None if seq is None else self.log.frame(seq)
        if frame is None or frame[ID] != message_id:
            return False
        self._former_id_heads.add(id_head)
        return True

    # -- publishing -----------------------------------------------------------------------------------------------

    def publish(self, bodies: Sequence[bytes | memoryview], *, defer_ms: int = 0) -> None:
        """Keep ``bodies``, together, and route them to the channels. Raises PublishFailed; nothing is kept then."""
        body_bytes = sum(map(len, bodies))
        timestamp = time.time_ns()

        def write(log: memoryview, offset: int, first_seq: int) -> int:
            return append_bodies(log, offset, bodies, timestamp, self.id_head, first_seq)

        self._append(body_bytes, len(bodies), timestamp, write, defer_ms)

    def drops_of(self, count: int) -> bool:
        """Tell whether an ephemeral topic would accept and drop some of ``count`` messages."""
        return self.ephemeral and self.depth + count > self.mem_queue_size

    def publish_messages(self, messages: memoryview, count: int, *, gap: int = 0) -> None:
        """Publish ``count`` × (``gap`` ignored bytes, ``size i32 | body``), whose sizes were checked."""
        body_bytes = len(messages) - (gap + SIZE_BYTES) * count
        timestamp = time.time_ns()

        def write(log: memoryview, offset: int, first_seq: int) -> int:
            return append_messages(log, offset, messages, count, timestamp, self.id_head, first_seq, gap)

        self._append(body_bytes, count, timestamp, write, 0)

    def publish_batches(self, commands: memoryview, count: int, messages: int, *, gap: int) -> None:
        """Publish, together, the ``messages`` of ``count`` × (``gap`` ignored bytes, MPUB body)."""
        body_bytes = len(commands) - (gap + COUNT_BYTES) * count - SIZE_BYTES * messages
        timestamp = time.time_ns()

        def write(log: memoryview, offset: int, first_seq: int) -> int:
            return append_batches(log, offset, commands, count, timestamp, self.id_head, first_seq, gap)

        self._append(body_bytes, messages, timestamp, write, 0)

    def publish_commands(self, commands: Input, nbytes: int, line: bytes, limits: tuple[int, int]) -> tuple[int, int]:
        """Publish the PUBs or MPUBs with the command line ``line`` that fill ``commands[:nbytes]``, on the fast path.

        ``limits`` are the largest message and the largest body, in bytes. Returns the number of commands and messages.
        Both are 0, with nothing stored, if the caller must parse the commands, which also raises their errors.
        """
        broker = self._broker
        if self.ephemeral or self._only_ephemeral or broker.refusal is not None:
            return 0, 0
        try:
            count, messages, segment = self.log.append_commands(
                commands, nbytes, line, limits, self.id_head, time.time_ns()
            )
        except OSError:
            return 0, 0
        if count:
            assert segment is not None
            broker.refused_write = None
            if broker.syncer is not None:
                broker.syncer.wrote(segment, messages)
            self.message_count += messages
            gap = len(line) + (COUNT_BYTES + SIZE_BYTES if line[0] == MPUB_LINE else 0)
            self.message_bytes += nbytes - gap * count - SIZE_BYTES * messages
            if self.listening:
                self._tell_listening()
        return count, messages

    def _append(self, body_bytes: int, count: int, timestamp: int, write: Write, defer_ms: int) -> None:
        nbytes = body_bytes + MESSAGE_HEAD_BYTES * count
        broker = self._broker
        if self.ephemeral and self.depth >= self.mem_queue_size:
            self.message_count += count  # accepted and dropped, as in nsqd, which keeps such messages in memory only
            self.message_bytes += body_bytes
            return
        if broker.refusal is not None:
            raise PublishFailed(str(broker.refusal))
        if defer_ms and self._routes:
            try:
                self.require_room(len(self.channels) * WAITING_BYTES + CHANGE_BYTES, of_messages=True)
            except OSError as error:
                raise PublishFailed(str(error)) from error
        while True:
            try:
                first_seq, segment = self.log.append(nbytes, count, timestamp, write, defer_ms)
                break
            except OSError as error:
                if broker.make_room(error):
                    continue
                broker.storage_failed(error)
                raise PublishFailed(str(error)) from error
        if not self.ephemeral:
            broker.refused_write = None
        elif segment.first_seq == first_seq:
            self._copy_old()
        if broker.syncer is not None:
            broker.syncer.wrote(segment, count)
        self.message_count += count
        self.message_bytes += body_bytes
        if defer_ms:
            self.skips.add(first_seq, first_seq + count)
            self._unrouted.append((first_seq, count, defer_ms))
            self._route_deferred()
        if self._only_ephemeral:
            self._journal_routed()
        if self.listening:
            self._tell_listening()

    def _tell_listening(self) -> None:
        for channel in list(self.listening):
            if channel.delivery.has_ready_client:
                if not channel.paused:
                    self.wake(channel)
                    continue
            elif not channel.ephemeral:
                del self.listening[channel]
            if channel.ephemeral:
                channel.drop_beyond(self.mem_queue_size)

    def _route_deferred(self) -> None:
        """The deferral of a message begins when it goes to the channels, as in nsqd."""
        if not self._routes or not self._unrouted:
            return
        self._give_deferred(self._unrouted)
        self._unrouted.clear()
        self.journal(records.topic_routed(self.number, self.log.next_seq))

    def _give_deferred(self, publishes: Iterable[tuple[int, int, int]]) -> None:
        now = self._broker.now()
        for first_seq, count, defer_ms in publishes:
            for channel in self.channels.values():
                channel.defer(first_seq, count, now + defer_ms / 1000)

    @property
    def deferred_end(self) -> int:
        """Deferred publishes below it have gone to the channels."""
        return self._unrouted[0][0] if self._unrouted else self.log.next_seq

    def recover_skips(self, holes: list[tuple[int, int]], deferred_end: int) -> None:
        """After a restart, rebuild the ranges that cursors skip: ``holes``, and the deferred publishes in the log.

        Deferred publishes from ``deferred_end`` on are not routed yet and are routed now. The deferral of a batch with
        a damaged commit record is lost; its messages that wait undelivered at or above a channel's cursor are skipped
        as deferred ones. Delivered messages above the cursor, whose records were lost, are part of the backlog again.
        """
        for start, stop in holes:
            self._holes.add(start, stop)
            self.skips.add(start, stop)
        known_from = min(self.low_water, deferred_end) if self._broker.retention is None else self.log.first_seq
        deferred = list(self.log.deferred_from(known_from))
        for commit in deferred:
            self.skips.add(commit.first_seq, commit.next_seq)
        for channel in self.channels.values():
            for seq, attempts in channel.aside_ahead():
                if not attempts and seq not in self.skips:
                    self.skips.add(seq, seq + 1)
        for channel in self.channels.values():
            if again := {seq for seq, _ in channel.aside_ahead() if seq not in self.skips}:
                channel.aside.drop(again)
        if not self.channels:
            deferred_end = max(deferred_end, self._routed_end)
        unrouted = [
            (commit.first_seq, commit.messages, commit.defer_ms)
            for commit in deferred
            if commit.first_seq >= deferred_end and commit.first_seq not in self._holes
        ]
        # Below the routed end they had gone to the channels, and the record of it is lost: a pause does not hold them.
        self._give_deferred(each for each in unrouted if each[0] < self._routed_end)
        self._unrouted = [each for each in unrouted if each[0] >= self._routed_end]
        self._route_deferred()

    def unrouted_between(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The ranges from ``start`` to ``end`` of deferred publishes that are not routed yet."""
        for first, count, _ in self._unrouted:
            if first < end and start < first + count:
                yield max(first, start), min(first + count, end)

    def deferred_between(self, start: int, end: int) -> Iterator[int]:
        """The deferred publishes from ``start`` to ``end`` that cursors skip, without those that were emptied."""
        while (skip := self.skips.next_from(start)) is not None and skip[0] < end:
            for seq in range(max(start, skip[0]), min(end, skip[1])):
                if seq not in self._holes:
                    yield seq
            start = skip[1]

    @property
    def holes(self) -> list[tuple[int, int]]:
        """The emptied or unreadable ranges that some channel still has to skip."""
        return list(self._holes)

    # -- operators ------------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Let new messages wait in the topic. Raises OSError."""
        if not self.paused:
            self.require_room()
            self._routed_end, self.paused = self.routed_end, True
            self.journal(records.topic_paused(self.number, True, self._routed_end))

    def unpause(self) -> None:
        """Let messages go to the channels again. Raises OSError."""
        if self.paused:
            self.require_room()
            self.paused = False
            self._route_deferred()
            self.journal(records.topic_paused(self.number, False, self._routed_end))
            self._journal_routed()
            for channel in self.channels.values():
                self.wake(channel)

    def hold(self) -> None:
        """Let the messages of a new topic wait until ``let_go``: lookup is being asked for its channels."""
        self._held = True

    def let_go(self) -> None:
        """Every channel that was made during the hold gets the topic's messages from the first on."""
        self._held = False
        self._route_deferred()
        self._journal_routed()
        for channel in self.channels.values():
            self.wake(channel)

    def empty(self) -> None:
        """Drop the messages that wait in the topic; those of its channels stay. Raises OSError."""
        start, end = self.routed_end, self.log.next_seq
        if start == end:
            return
        self.require_room()
        self._unrouted.clear()
        self.skips.add(start, end)
        self._holes.add(start, end)
        self._routed_end = end
        for channel in self.channels.values():
            channel.counted_from += end - start
        self.journal(records.topic_emptied(self.number, start, end))
        self.release()

    # -- channels -------------------------------------------------------------------------------------------------

    def channel(self, name: str) -> Channel:
        """Return the channel, made if need be. The first one gets what waits in the topic. Raises OSError."""
        channel = self.channels.get(name)
        if channel is None:
            if not is_ephemeral(name):
                self.require_room()
            number = self._broker.next_channel_number()
            channel = Channel(self, number, name, self.routed_end)
            self.channels[name] = channel
            if not channel.ephemeral:
                self.journal(records.channel_created(self.number, number, channel.window.head, name))
            self._route_deferred()
            self.channels_changed()
            self._broker.registration_changed("register", self.name, name)
        return channel

    def require_room(self, nbytes: int = CHANGE_BYTES, *, of_messages: bool = False) -> None:
        """Make sure that the journal has room for the records of a change. Raises OSError."""
        if not self.ephemeral:
            self._broker.require_room(nbytes, of_messages=of_messages)

    def detach(self) -> None:
        """Disconnect the clients of a deleted topic.

        Remaining references (a timer, a response from nsqlookupd) find no channels and journal nothing.
        """
        for channel in self.channels.values():
            channel.gone = True
            for client in list(channel.clients.values()):
                client.hang_up()
            channel.clients.clear()
        self.channels.clear()
        self.listening.clear()
        self.journal = _keep_nothing

    def find_channel(self, name: str) -> Channel:
        """Return the channel. Raises ChannelNotFound."""
        channel = self.channels.get(name)
        if channel is None:
            raise ChannelNotFound(f"channel {name} of topic {self.name} does not exist")
        return channel

    def delete_channel(self, name: str) -> None:
        """Drop the channel and what it held, and close its clients. Raises ChannelNotFound and OSError."""
        channel = self.find_channel(name)
        if not channel.ephemeral:
            self.require_room()
        self._routed_end = self.routed_end
        del self.channels[name]
        self.listening.pop(channel, None)
        channel.gone = True
        for client in list(channel.clients.values()):
            client.hang_up()
        channel.clients.clear()
        if not channel.ephemeral:
            self.journal(records.channel_deleted(channel.number, self._routed_end))
        else:
            self.journal(records.topic_passed(self.number, self._routed_end))
        self.channels_changed()
        self._broker.registration_changed("unregister", self.name, name)
        self.release()
        if self.ephemeral and not self.channels:
            self._broker.delete_topic(self.name)

    def channels_changed(self) -> None:
        """Update what depends on the kinds of channels."""
        self._only_ephemeral = bool(self.channels) and all(channel.ephemeral for channel in self.channels.values())
        self._journal_routed()

    def _journal_routed(self) -> None:
        """Journal the routed messages of a topic with ephemeral channels only, which journal nothing themselves."""
        if self._only_ephemeral and self._routes:
            self.journal(records.topic_passed(self.number, self.routed_end))

    def left(self, channel: Channel) -> None:
        """A client left ``channel``: an ephemeral one goes with its last."""
        if is_ephemeral(channel.name) and not channel.clients and self.channels.get(channel.name) is channel:
            self.delete_channel(channel.name)

    # -- storage --------------------------------------------------------------------------------------------------

    def check_batches(self, segment: Segment, seq: int) -> None:
        """Check batches that were written before this process started, before delivery. Damaged ones are lost."""
        for commit in segment.damaged_below(seq):
            self._lose(commit.first_seq, commit.next_seq, f"damaged in {segment.path}")

    def recover_losses(self, *, is_complete: bool) -> None:
        """After a restart, skip the messages that are missing from the files, and count those still to be delivered.

        Batches of the newest segment are checked now, because a crash of the machine may have left some half written.
        Those of older ones are checked before delivery, so that a large backlog does not delay the start.
        """
        log = self.log
        low, first_seq = self.low_water, log.first_seq
        if low < first_seq:
            self._lose(low, first_seq, f"missing from {log.directory}", counts=is_complete)
        for start, end in log.gaps():
            file = log.file_of(start)
            self._lose(start, end, f"missing from {file}" if file.exists() else f"missing with the file {file}")
        if log.segments:
            newest = log.segments[-1]
            while newest.checked_end < newest.next_seq:
                self.check_batches(newest, newest.checked_end)
        if lost := self._losses.ranges:
            for channel in self.channels.values():
                channel.aside.drop([seq for seq in channel.aside.numbers() if seq in lost])

    def lose_batch_of(self, seq: int) -> None:
        """Give up message ``seq`` and the others of its batch, which are damaged or missing."""
        start, end = self.log.batch_of(seq)
        self._lose(start, end, f"damaged in {self.log.file_of(seq)}" if self.log.directory else "damaged in memory")

    def _lose(self, start: int, end: int, reason: str, *, counts: bool = True) -> None:
        found = self._losses.add(self, start, end) if counts else self._losses.pass_over(start, end)
        self._holes.add(start, end)
        self.skips.add(start, end)
        self._unrouted = [each for each in self._unrouted if not start <= each[0] < end]
        if found:
            self._broker.lost(self.name, found, f"numbers {start} to {end - 1} are {reason}")

    def place_of(self, seq: int) -> tuple[Segment, int, int] | None:
        """The segment of message ``seq``, and a range ``[start, end)`` of undamaged messages around it.

        None if message ``seq`` is damaged or missing. Raises OSError if the segment cannot be mapped.
        """
        if not self.log.holds(seq):
            return None
        segment = self.log.segment_of(seq)
        start, end = segment.sound_range(seq)
        if self._losses.ranges:
            damaged = self._losses.ranges.next_from(seq)
            start, end = max(start, seq), min(end, damaged[0]) if damaged is not None else end
        return (segment, start, end) if seq < end else None

    @property
    def low_water(self) -> int:
        """The lowest message that anybody may still need."""
        last = self._last = min(self.channels.values(), key=lambda channel: channel.low_water, default=None)
        return self.routed_end if last is None else min(self.routed_end, last.low_water)

    def release(self) -> None:
        """Remove the segments that no channel needs and that retention does not keep."""
        retention = None if self.ephemeral else self._broker.retention
        if retention is not None:
            now = self._broker.now()
            if now < self._release_from:  # otherwise checked on each FIN while retention keeps a segment
                return
            self._release_from = now + RELEASE_EVERY_S
        last = self._last
        if last is not None and not last.gone and last.low_water < self.log.first_end:
            return  # the slowest channel still needs the first segment, so the others need not be checked
        segments = self.log.segments
        if len(segments) > 1 or self.skips:
            low = self._first_needed()
            try:
                self.log.drop_below(low)
            except OSError as error:  # the files stay until the next start; the client's FIN still succeeds
                self._broker.storage_failed(error)
            self.skips.drop_below(low)
            self._holes.drop_below(low)
            self._losses.drop_below(low)

    @property
    def oldest_spare(self) -> Segment | None:
        """The oldest segment, if only retention keeps it."""
        segments = self.log.segments
        return segments[0] if len(segments) > 1 and segments[0].next_seq <= self.low_water else None

    def rest(self) -> None:
        """Called periodically: close and unmap all files if nothing was published or delivered since the last call.

        If no message is needed any more, the newest segment's space is freed too.
        """
        if self._broker.retention is not None:
            self.release()
        seen = (self.log.next_seq, *(channel.window.head for channel in self.channels.values()))
        if seen == self._seen_at_rest:
            if self._first_needed() == self.log.next_seq:
                self._give_back()
            self.log.unmap()
        self._seen_at_rest = seen

    def _first_needed(self) -> int:
        """The lowest message that some channel may still need or that retention keeps."""
        retention = None if self.ephemeral else self._broker.retention
        low = self.low_water
        return low if retention is None else min(low, retention.first_kept(self.log, time.time_ns()))

    def _give_back(self) -> None:
        before = self.log.segments[-1:]
        with suppress(OSError):  # no space or no descriptors; retried at the next rest
            self.log.give_back()
        if self.log.segments[-1:] != before:
            self.skips.drop_below(self.log.next_seq)
            self.journal(records.topic_routed(self.number, self.log.next_seq))

    def _copy_old(self) -> None:
        """In memory, a message in flight or deferred for long must not hold the segments of all that came after it."""
        if len(self.log.segments) > KEPT_IN_MEMORY:
            end, frames = self.log.segments[-KEPT_IN_MEMORY].first_seq, dict[int, bytes]()
            for channel in self.channels.values():
                channel.copy_below(end, frames)
            self.release()


def _keep_nothing(record: bytes) -> None:
    """The journal of a topic that does not survive a restart."""


def id_head(node_id: int, number: int) -> bytes:
    """The first six digits of the ids of a topic's messages: 10 bits of the node, 14 of the topic."""
    return b"%06x" % (node_id << 14 | number)
