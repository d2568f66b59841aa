"""A topic: a log of messages, and the channels that read it."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Literal, Protocol

from brokerd.bound import Bound, Waiting
from brokerd.channel import Channel
from brokerd.channel_journal import journal_nothing
from brokerd.dedup import Publish, SeenIds
from brokerd.journal import records
from brokerd.journal.journal import CHANGE_BYTES, room_for, room_for_waiting
from brokerd.lives import Party, What, Why
from brokerd.log.batch import COUNT_BYTES, SIZE_BYTES, Batch, BodyBatch, DpubBatch, HeaderBatch, MessageBatch, MpubBatch
from brokerd.log.log import Log
from brokerd.sampled_lives import SampledLives
from brokerd.topic_log import TopicLog
from nsqwire.errors import ChannelNotFound, PublishFailed
from nsqwire.names import is_ephemeral
from nsqwire.scan import Input

if TYPE_CHECKING:
    from brokerd.log.segment import Segment
    from brokerd.runtime import Runtime
    from brokerd.storage import Storage

MPUB_LINE = ord("M")
"""The first byte of an MPUB's command line; a PUB's differs."""
LEAST_MESSAGE_BYTES = SIZE_BYTES + 1
"""Least number of bytes that a message takes in a command."""

Publishers = Party | list[Party] | None
"""Who publishes: one for all messages, or one for each; None if it is the broker."""


class StoredBatch(Protocol):
    """The part of a batch that is needed to store it."""

    count: int
    body_bytes: int
    nbytes: int
    timestamp_ns: int


class Node(Protocol):
    """The methods of the broker that its topics call."""

    def next_channel_number(self) -> int:
        """A number that no channel of this node has had."""
        ...

    def registration_changed(self, kind: Literal["register", "unregister"], topic: str, channel: str | None) -> None:
        """Notify the observers of a topic or channel that was created or deleted."""
        ...

    def delete_topic(self, name: str) -> None:
        """Delete the topic. Raises OSError."""
        ...


class Topic:
    """A topic: publishing, the routing of messages to the channels, and the operations on the topic."""

    def __init__(
        self,
        node: Node,
        runtime: Runtime,
        storage: Storage,
        *,
        number: int,
        name: str,
        log: Log,
        id_head: bytes,
        routed_end: int = 0,
    ) -> None:
        self.number = number
        self.name = name
        self.ephemeral = is_ephemeral(name)
        self.channels: dict[str, Channel] = {}
        self.log = log
        self.messages = TopicLog(
            storage,
            log,
            self.channels,
            number=number,
            name=name,
            id_head=id_head,
            routed_end=routed_end,
            now=runtime.now,
        )
        self.lives = SampledLives(runtime.lives, self.messages, None)
        self.paused = False
        self.message_count = 0
        """Messages published since the process started."""
        self.message_bytes = 0
        """The sum of their body sizes."""
        self.emptied_count = 0
        """Messages that were emptied or cancelled while they waited in the topic, since the process started, without
        those of its channels."""
        self.seen_ids = SeenIds()
        self._node = node
        self._runtime = runtime
        self._storage = storage
        self._listening: dict[Channel, None] = {}
        """The channels to notify of a publish: all with a ready client, and the ephemeral ones. Others may remain until
        the next publish."""
        self._routing_suspended = False
        self._only_ephemeral = False
        self._journal = self.messages.journal
        self.bound: Bound | None = None
        """None: publishes are accepted, however many messages wait."""
        self._apply_policy()

    # -- counts ---------------------------------------------------------------------------------------------------

    @property
    def depth(self) -> int:
        """Number of messages that wait in the topic, for a first channel or for the end of a pause."""
        return self.messages.depth

    @property
    def backend_depth(self) -> int:
        """The part of ``depth`` that nsqd would store on disk."""
        return 0 if self.ephemeral else max(0, self.depth - self._runtime.mem_queue_size)

    @property
    def lost_message_count(self) -> int:
        """Undelivered messages found damaged or missing since the process started."""
        return self.messages.lost_message_count

    def waiting(self, *, counts_bytes: bool) -> Waiting:
        """Count what waits in it, and the most that waits in any one channel. Raises OSError."""
        depth = never_delivered = nbytes = 0
        for channel in self.channels.values():
            backlog = channel.cursor.backlog
            depth = max(depth, backlog + channel.in_flight.aside.requeued_count)
            never_delivered = max(never_delivered, backlog)
            nbytes = max(nbytes, channel.limits.bytes_ahead) if counts_bytes else 0
        waiting = self.depth
        nbytes += self.messages.waiting_bytes if counts_bytes else 0
        return Waiting(waiting + depth, waiting + never_delivered, nbytes)

    def most_requeued(self) -> int:
        """The number of requeued messages in the channel with the most."""
        return max((channel.in_flight.aside.requeued_count for channel in self.channels.values()), default=0)

    @property
    def move_count(self) -> int:
        """The number of times that a channel was rewound or emptied."""
        return self.messages.move_count

    def oldest_unfinished_age_ns(self, now_ns: int) -> int | None:
        """Age of the oldest unfinished message of the topic and its channels; None if there is none."""
        ages = [channel.oldest_unfinished_age_ns(now_ns) for channel in self.channels.values()]
        ages.append(self.messages.oldest_age_ns(now_ns))
        return max((age for age in ages if age is not None), default=None)

    # -- publishing -----------------------------------------------------------------------------------------------

    def publish(
        self,
        bodies: Sequence[bytes | memoryview],
        *,
        by: Publishers = None,
        defer_ms: int = 0,
        dedup_digest: bytes | None = None,
    ) -> range:
        """Store ``bodies`` together and route them to the channels. Raises PublishFailed; nothing is stored then.

        This and the other methods that publish return the numbers of the messages: none if they are dropped. If a
        publish with the digest is remembered, they return its messages, and nothing is stored. ``by`` is only used for
        the lives of sampled messages.
        """
        batch = BodyBatch(bodies, self.messages.id_head, time.time_ns(), defer_ms)
        append = partial(self.log.append, batch)
        if defer_ms:
            return self._publish_deferred(batch, append, by, delays=1, dedup_digest=dedup_digest)
        return self._publish(batch, append, by, dedup_digest)

    def publish_with_headers(
        self,
        bodies: Sequence[bytes | memoryview],
        blocks: Sequence[bytes],
        *,
        by: Publishers = None,
        defer_ms: int = 0,
        dedup_digest: bytes | None = None,
    ) -> range:
        """As ``publish``, with the header block of each message, which is empty for a message without headers."""
        if not any(blocks):
            return self.publish(bodies, by=by, defer_ms=defer_ms, dedup_digest=dedup_digest)
        batch = HeaderBatch(bodies, blocks, self.messages.id_head, time.time_ns(), defer_ms)
        append = partial(self.log.append_with_headers, batch)
        if defer_ms:
            return self._publish_deferred(batch, append, by, delays=1, dedup_digest=dedup_digest)
        return self._publish(batch, append, by, dedup_digest)

    def drops_of(self, count: int) -> bool:
        """Return whether an ephemeral topic would accept ``count`` messages but drop some of them."""
        return self.ephemeral and self.depth + count > self._runtime.mem_queue_size

    def admits(self, count: int, nbytes: int) -> bool:
        """Return whether no policy refuses ``count`` messages of ``nbytes`` together. Raises OSError."""
        return self.bound is None or self.bound.admits(count, nbytes)

    def publish_messages(
        self,
        messages: memoryview,
        count: int,
        *,
        by: Publishers = None,
        gap: int = 0,
        dedup_digest: bytes | None = None,
    ) -> range:
        """Publish the messages of ``count`` × (``gap`` ignored bytes, ``size i32 | body``) as one batch.

        The caller has checked the sizes. Raises PublishFailed; nothing is stored then.
        """
        batch = MessageBatch(messages, count, gap, self.messages.id_head, time.time_ns())
        return self._publish(batch, partial(self.log.append, batch), by, dedup_digest)

    def publish_batches(
        self, commands: memoryview, count: int, messages: int, *, gap: int, by: Publishers = None
    ) -> range:
        """Publish the ``messages`` messages of ``count`` × (``gap`` ignored bytes, MPUB body) as one batch.

        The caller has checked the sizes. Raises PublishFailed; nothing is stored then.
        """
        batch = MpubBatch(commands, count, messages, gap, self.messages.id_head, time.time_ns())
        return self._publish(batch, partial(self.log.append, batch), by)

    def publish_deferred(self, commands: memoryview, count: int, body_bytes: int, *, by: Publishers = None) -> range:
        """Publish the ``count`` commands of a DpubRun together. Raises PublishFailed; nothing is stored then."""
        batch = DpubBatch(commands, count, body_bytes, self.messages.id_head, time.time_ns())
        return self._publish_deferred(batch, partial(self.log.append_deferred, batch), by, delays=count)

    def publish_commands(
        self, commands: Input, nbytes: int, line: bytes, limits: tuple[int, int], by: Party | None = None
    ) -> tuple[int, int]:
        """Publish the PUBs or MPUBs with the command line ``line`` that fill ``commands[:nbytes]``, on the fast path.

        ``limits`` are the largest message and the largest body, in bytes. Returns the number of commands and messages.
        Both are 0, with nothing stored, if the caller has to use the regular path, which also reports errors.
        """
        storage = self._storage
        if self.ephemeral or self._only_ephemeral or storage.refusal is not None:
            return 0, 0
        now_ns = time.time_ns()
        try:
            if not self.admits(nbytes // LEAST_MESSAGE_BYTES, nbytes):
                return 0, 0
            count, messages, segment = self.log.append_commands(
                commands, nbytes, line, limits, self.messages.id_head, now_ns
            )
        except OSError:
            return 0, 0
        if count:
            assert segment is not None
            storage.wrote(segment, messages)
            self.message_count += messages
            gap = len(line) + (COUNT_BYTES + SIZE_BYTES if line[0] == MPUB_LINE else 0)
            self.message_bytes += nbytes - gap * count - SIZE_BYTES * messages
            if self.lives.every:
                end = self.log.next_seq
                self.lives.published(range(end - messages, end), now_ns, by)
            if self._listening:
                self._notify_listening()
        return count, messages

    def _publish(
        self,
        batch: Batch,
        append: Callable[[], tuple[int, Segment]],
        by: Publishers,
        dedup_digest: bytes | None = None,
    ) -> range:
        if dedup_digest is not None and (known := self._seen(dedup_digest)) is not None:
            return known
        if not self._accepts(batch.count, batch.body_bytes):
            return range(0)
        seqs = self._store(batch, append, dedup_digest)
        if self.lives.every:
            self.lives.published(seqs, batch.timestamp_ns, by)
        self._published()
        return seqs

    def _publish_deferred(
        self,
        batch: BodyBatch | DpubBatch,
        append: Callable[[], tuple[int, Segment]],
        by: Publishers,
        *,
        delays: int,
        dedup_digest: bytes | None = None,
    ) -> range:
        """Publish ``batch``. ``delays`` is an upper bound on the number of its runs of messages with equal delays."""
        if dedup_digest is not None and (known := self._seen(dedup_digest)) is not None:
            return known
        if not self._accepts(batch.count, batch.body_bytes):
            return range(0)
        if self.messages.is_routing:
            try:
                nbytes = len(self.channels) * room_for_waiting(delays) + CHANGE_BYTES
                self.messages.require_room(nbytes, of_messages=True)
            except OSError as error:
                raise PublishFailed(str(error)) from error
        seqs = self._store(batch, append, dedup_digest)
        if self.lives.every:
            self.lives.published(seqs, batch.timestamp_ns, by, batch.delays)
        self.messages.skipped.add(seqs.start, seqs.stop)
        self._defer(seqs.start, batch.delays)
        self._published()
        return seqs

    def _seen(self, dedup_digest: bytes) -> range | None:
        """The messages of an earlier publish with the same digest; None if none is remembered."""
        found = self.seen_ids.find(dedup_digest, self._runtime.now())
        return None if found is None or self.messages.is_lost(found.first_seq) else found.seqs

    def _accepts(self, count: int, body_bytes: int) -> bool:
        """Return whether the messages are to be stored. If not, they are counted and dropped. Raises PublishFailed."""
        if self.ephemeral and self.depth >= self._runtime.mem_queue_size:
            self.message_count += count  # as in nsqd, which keeps them in memory only and drops those above its limit
            self.message_bytes += body_bytes
            return False
        self._storage.require_publishing()
        if self.bound is not None:
            try:
                self.bound.require(count, body_bytes)
            except OSError as error:
                raise PublishFailed(str(error)) from error
        return True

    def _store(
        self, batch: StoredBatch, append: Callable[[], tuple[int, Segment]], dedup_digest: bytes | None
    ) -> range:
        """Append the messages of ``batch`` with ``append()``. Returns their numbers. Raises PublishFailed."""
        storage, count = self._storage, batch.count
        publish, until = None, 0.0
        while True:
            try:
                if dedup_digest is not None and publish is None:
                    self.log.reserve(batch.nbytes)  # a full disk is noticed before anything is journalled
                    until = self._runtime.now() + self._runtime.dedup_window_s
                    until_ns = self._runtime.clock.keep(until)
                    publish = Publish(dedup_digest, self.log.next_seq, count, batch.timestamp_ns, until_ns)
                    self._journal_publish(publish)
                first_seq, segment = append()
                break
            except OSError as error:
                if storage.make_room(error):
                    continue
                if publish is not None:
                    self._journal_failed_publish(publish)
                storage.write_failed(error)
                raise PublishFailed(str(error)) from error
        storage.wrote(segment, count)
        if segment.first_seq == first_seq:
            storage.check_reserve()
        if self.ephemeral and segment.first_seq == first_seq:
            self.messages.copy_old()
        self.message_count += count
        self.message_bytes += batch.body_bytes
        if publish is not None:
            self.seen_ids.add(publish, until, self._runtime.now())
        return range(first_seq, first_seq + count)

    def _journal_publish(self, publish: Publish) -> None:
        """Journal a publish before it is stored, so that a kill after that does not forget its id."""
        record = records.publish_begun(self.number, publish)
        try:
            self.messages.require_room(room_for([record]), of_messages=True)
        except OSError as error:
            raise PublishFailed(str(error)) from error
        self._journal(record)

    def _journal_failed_publish(self, publish: Publish) -> None:
        """Journal that a publish was not stored: nothing else shows it once the log lacks its numbers."""
        self._journal(records.publish_begun(self.number, publish._replace(length=0)))

    def recover_publishes(self, publishes: Iterable[Publish]) -> None:
        """After a restart, remember the publishes whose messages were stored."""
        stored, log = [], self.log
        for each in publishes:
            if each.first_seq < log.first_seq or log.timestamp_of(each.first_seq) == each.timestamp_ns:
                stored.append(each)
            else:
                self._journal_failed_publish(each)
        now, clock = self._runtime.now(), self._runtime.clock
        ends = ((each, min(clock.recover(each.until_ns), now + self._runtime.dedup_window_s)) for each in stored)
        self.seen_ids.restore(((each._replace(until_ns=clock.keep(until)), until) for each, until in ends), now)

    def _published(self) -> None:
        """Journal the routing of new messages if needed, and notify the channels."""
        if self._only_ephemeral:
            self._journal_routed()
        if self._listening:
            self._notify_listening()

    def _notify_listening(self) -> None:
        for channel in list(self._listening):
            if not channel.published():
                del self._listening[channel]

    # -- deferred publishes ---------------------------------------------------------------------------------------

    def _defer(self, first_seq: int, delays: bytes) -> None:
        """Route deferred publishes to the channels, or keep their delays while the topic routes no messages.

        The deferral of a message begins when it is routed, as in nsqd.
        """
        if not self.messages.is_routing:
            batches = groupby(enumerate(memoryview(delays).cast("I"), first_seq), lambda each: each[1])
            for defer_ms, batch in batches:
                seqs = [seq for seq, _ in batch]
                self.messages.unrouted.append((seqs[0], len(seqs), defer_ms))
            return
        now = self._runtime.now()
        for channel in self.channels.values():
            channel.in_flight.defer(first_seq, delays, now)
        self._journal(records.topic_routed(self.number, self.log.next_seq))

    def _route_deferred(self) -> None:
        if not self.messages.is_routing or not self.messages.unrouted:
            return
        self._defer_in_channels(self.messages.unrouted)
        self.messages.unrouted.clear()
        self._journal(records.topic_routed(self.number, self.log.next_seq))

    def _defer_in_channels(self, publishes: Iterable[tuple[int, int, int]]) -> None:
        now = self._runtime.now()
        for first_seq, count, defer_ms in publishes:
            delays = array("I", [defer_ms]) * count
            for channel in self.channels.values():
                channel.in_flight.defer(first_seq, delays.tobytes(), now)
                channel.keep_dead(first_seq, count)

    def recover_skipped(self, holes: list[tuple[int, int]], *, deferred_end: int, routed_end: int) -> None:
        """After a restart, rebuild the ranges that cursors skip: ``holes``, and the deferred publishes in the log.

        Deferred publishes from ``deferred_end`` on were not routed yet, and are routed now. If the commit record of a
        batch is damaged, its deferral is lost; messages of it that a channel has set aside without attempts, at or
        above its cursor, are skipped like deferred ones. Set-aside messages with attempts above the cursor, of which
        records were lost, become part of the backlog again. Deferred publishes that all channels have finished are
        included, because a rewind may need them.
        """
        messages = self.messages
        deferred = list(self.log.deferred_from(self.log.first_seq))
        messages.holes.add_all(holes)
        messages.skipped.add_all([*holes, *((commit.first_seq, commit.next_seq) for commit in deferred)])
        for channel in self.channels.values():
            for seq, attempts in channel.in_flight.ahead():
                if not attempts and seq not in messages.skipped and seq not in channel.cursor.removed:
                    messages.skipped.add(seq, seq + 1)
        for channel in self.channels.values():
            channel.cursor.skipped_grew()
            ahead = (seq for seq, _ in channel.in_flight.ahead() if seq not in channel.cursor.removed)
            if again := {seq for seq in ahead if seq not in messages.skipped}:
                channel.in_flight.aside.drop(again)
        if not self.channels:  # all messages wait in the topic, even if only half of a change was recorded
            deferred_end = routed_end
        unrouted = [
            (first, count, commit.defer_ms)
            for commit in deferred
            for first, count in messages.holes.outside(max(commit.first_seq, deferred_end), commit.next_seq)
        ]
        # Those below the routed end were routed, but the record of it was lost: a pause does not apply to them.
        self._defer_in_channels(each for each in unrouted if each[0] < routed_end)
        messages.unrouted[:] = [each for each in unrouted if each[0] >= routed_end]
        self._route_deferred()

    # -- operators ------------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Stop routing messages to the channels; new ones wait in the topic. Raises OSError."""
        if not self.paused:
            self.messages.require_room()
            self.paused = True
            self._update_routing()
            self._journal(records.topic_paused(self.number, True, self.messages.routed_end))

    def unpause(self) -> None:
        """Route messages to the channels again. Raises OSError."""
        if self.paused:
            self.messages.require_room()
            self.paused = False
            self._journal(records.topic_paused(self.number, False, self.messages.routed_end))
            self._resume()

    def suspend_routing(self) -> None:
        """Keep messages in a new topic until ``resume_routing``, while nsqlookupd is queried for its channels."""
        self._routing_suspended = True
        self._update_routing()

    def resume_routing(self) -> None:
        """Route the topic's messages, from the first on, to every channel that was created meanwhile."""
        self._routing_suspended = False
        self._resume()

    def _resume(self) -> None:
        self._update_routing()
        self._route_deferred()
        self._journal_routed()
        for channel in self.channels.values():
            channel.limits.reset()
            self._runtime.wake(channel)

    def _update_routing(self) -> None:
        self.messages.set_routing(bool(self.channels) and not self.paused and not self._routing_suspended)

    def empty(self) -> None:
        """Drop the messages that wait in the topic; those of its channels stay. Raises OSError."""
        if self.messages.routed_end == self.log.next_seq:
            return
        self.messages.require_room()
        self.emptied_count += self.depth
        if self.lives.every:
            numbers = self.lives.numbers(self.messages.routed_end, self.log.next_seq)
            waiting = (seq for seq in numbers if self.messages.waits(seq))
            self.lives.record(What.DROPPED, waiting, reason=Why.EMPTIED)
        emptied = self.messages.empty()
        for channel in self.channels.values():
            channel.counted_from += emptied
        self.messages.release()

    def cancel(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Drop ``(first, count)`` ranges of the messages that wait in the topic. The caller has made room in the
        journal."""
        self.messages.cancel(ranges)
        if self.lives.every:
            for first, length in ranges:
                self.lives.record(What.CANCELLED, self.lives.numbers(first, first + length))
        count = sum(count for _, count in ranges)
        self.emptied_count += count
        for channel in self.channels.values():
            channel.counted_from += count

    def unmap_if_idle(self) -> None:
        """Close and unmap all files if nothing was published or delivered since the last call. Called periodically."""
        self.messages.unmap_if_idle()

    def policies_changed(self) -> None:
        """Apply the node's present policies to the topic and its channels."""
        self._apply_policy()
        for channel in self.channels.values():
            channel.update_policy()

    def _apply_policy(self) -> None:
        policy = self._runtime.policies.policy_for_topic(self.name)
        self.bound = Bound(self, policy) if policy.bounds_topic else None
        self.lives.every = policy.sample_lives

    # -- disk space -----------------------------------------------------------------------------------------------

    @property
    def oldest_retained(self) -> Segment | None:
        """The oldest segment, if only retention keeps it."""
        return self.messages.oldest_retained

    def remove_oldest_retained(self) -> None:
        """Remove the oldest segment, even if messages in it are needed."""
        self.log.remove_oldest()

    def abandon(self, segment: Segment) -> bool:
        """Write nothing more to a segment whose file does not exist. False if it is not, or no longer, the topic's."""
        is_ours = segment in self.log.segments
        if is_ours:
            segment.close_for_appends()
        return is_ours

    # -- channels -------------------------------------------------------------------------------------------------

    def channel(self, name: str) -> Channel:
        """Return the channel; create it if needed. The first one receives what waits in the topic. Raises OSError."""
        channel = self.channels.get(name)
        if channel is None:
            if not is_ephemeral(name):
                self.messages.require_room()
            channel = self.add_channel(self._node.next_channel_number(), name, self.messages.routed_end)
            if not channel.ephemeral:
                self._journal(records.channel_created(self.number, channel.number, channel.head, name))
            self._route_deferred()
            self._journal_routed()
            self._node.registration_changed("register", self.name, name)
        return channel

    def add_channel(self, number: int, name: str, head: int) -> Channel:
        """Add a channel whose cursor is at ``head``. Journals nothing."""
        channel = Channel(self.messages, self._runtime, self._listening, number=number, name=name, head=head)
        self.channels[name] = channel
        self._channels_changed()
        return channel

    def find_channel(self, name: str) -> Channel:
        """Return the channel. Raises ChannelNotFound."""
        channel = self.channels.get(name)
        if channel is None:
            raise ChannelNotFound(f"channel {name} of topic {self.name} does not exist")
        return channel

    def delete_channel(self, name: str) -> None:
        """Delete the channel with its messages, and close its clients. Raises ChannelNotFound and OSError."""
        channel = self.find_channel(name)
        if not channel.ephemeral:
            self.messages.require_room()
        routed_end = self.messages.routed_end
        del self.channels[name]
        self._listening.pop(channel, None)
        channel.close()
        self._channels_changed()
        if not channel.ephemeral:
            self._journal(records.channel_deleted(channel.number, routed_end))
        else:
            self._journal(records.topic_passed(self.number, routed_end))
        self._journal_routed()
        self._node.registration_changed("unregister", self.name, name)
        self.messages.release()
        if self.ephemeral and not self.channels:
            self._node.delete_topic(self.name)

    def client_left(self, channel: Channel) -> None:
        """Delete ``channel`` if it is ephemeral and its last client has disconnected."""
        if is_ephemeral(channel.name) and not channel.clients and self.channels.get(channel.name) is channel:
            self.delete_channel(channel.name)

    def detach(self) -> None:
        """Disconnect the clients of a deleted topic.

        Code that still refers to the topic, such as a timer or a query to nsqlookupd, finds no channels, and nothing is
        journalled.
        """
        for channel in self.channels.values():
            channel.close()
        self.channels.clear()
        self._listening.clear()
        self._journal = self.messages.journal = journal_nothing

    def _channels_changed(self) -> None:
        self._only_ephemeral = bool(self.channels) and all(channel.ephemeral for channel in self.channels.values())
        self._update_routing()

    def _journal_routed(self) -> None:
        """Journal the routing of messages if all channels are ephemeral, because these have no journal records."""
        if self._only_ephemeral and self.messages.is_routing:
            self._journal(records.topic_passed(self.number, self.messages.routed_end))
