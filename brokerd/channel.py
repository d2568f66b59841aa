"""A channel: a cursor over its topic's log, plus the messages in flight and those set aside.

Messages that were never delivered are ahead of the cursor and take no memory of the channel.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from brokerd.channel_journal import ChannelJournal, journal_nothing, packed, ranges_of
from brokerd.cursor import Cursor
from brokerd.dead import DeadMessages, Reason
from brokerd.delivery import Delivery
from brokerd.forwarding import Forwarding
from brokerd.in_flight import InFlight
from brokerd.journal import records
from brokerd.journal.journal import room_for
from brokerd.kernel.aside import DEFERRED, IN_FLIGHT, REQUEUED
from brokerd.kernel.waiting import WAITING_RANGE
from brokerd.limits import Limits
from brokerd.lives import What, Why
from brokerd.log.segment import timestamp_in
from brokerd.policy import DROP, DROP_OLDEST
from brokerd.redelivery import Redelivery
from brokerd.sampled_lives import SampledLives
from brokerd.timers import NEVER
from nsqwire.errors import FinFailed, NSQError, ReqFailed, TouchFailed, WouldBeDropped
from nsqwire.histogram import Histogram
from nsqwire.names import is_ephemeral
from nsqwire.session import State
from nsqwire.units import Nanoseconds, Seconds

if TYPE_CHECKING:
    from brokerd.client import Client
    from brokerd.kernel.aside import Failures
    from brokerd.policies import Rule
    from brokerd.ranges import Ranges
    from brokerd.runtime import Runtime
    from brokerd.topic_log import TopicLog

RANGES_IN_A_RECORD = 10_000
"""Maximum number of ranges in one journal record, because the size of a record is limited."""
BUSY_TICKS = 8
BUSY_TICK_S = 0.01
"""Least time between two runs of a timer that ran BUSY_TICKS times in a row at intervals below twice this time."""

Error = TypeVar("Error", bound=NSQError)


class Channel:
    """A channel: its operations, and the commands of its clients.

    ``now`` is monotonic seconds, ``now_ns`` Unix nanoseconds. ``listening`` is the topic's set of channels to notify of
    a publish.
    """

    def __init__(
        self,
        messages: TopicLog,
        runtime: Runtime,
        listening: dict[Channel, None],
        *,
        number: int,
        name: str,
        head: int,
    ) -> None:
        self.messages = messages
        self.topic_name = messages.name
        self.number = number
        self.name = name
        self.ephemeral = messages.ephemeral or is_ephemeral(name)
        self.paused = False
        self.gone = False
        """True after the channel was deleted; remaining references then do nothing."""
        self._runtime = runtime
        self._listening = listening
        self._journal = ChannelJournal(number, journal_nothing if self.ephemeral else messages.journal)
        self.lives = SampledLives(runtime.lives, messages, name)
        self.in_flight = InFlight(
            messages, head, self._journal, runtime.clock, partial(runtime.timers.schedule, self), self.lives
        )
        self.cursor = Cursor(messages, self.in_flight.window, self._skipping)
        self.delivery = Delivery(messages, self.cursor, self.in_flight, self._journal, runtime, self.lives)
        self.policy_rule: Rule | None = runtime.policies.rule_for(messages.name, name)
        """The most specific policy for it; None if only the node's settings apply."""
        policy = runtime.policies.policy_of(self.policy_rule)
        self.redelivery = Redelivery(policy, self.in_flight, self.cursor, self._journal, self.lives)
        self.limits = Limits(
            messages,
            self.in_flight,
            self.cursor,
            self.redelivery,
            self._journal,
            runtime,
            self.lives,
            published_ns=self._timestamp_of,
            schedule=partial(runtime.timers.schedule, self),
            watch_publishes=partial(listening.__setitem__, self, None),
        )
        self.forwarding = Forwarding(self, runtime, partial(runtime.timers.schedule, self))
        self.requeue_count = 0
        self.timeout_count = 0
        self.emptied_count = 0
        """Messages that operators and publishers removed since the process started: by emptying the channel, or single
        ones."""
        self.rewound_count = 0
        """Messages that were finished or emptied, and that a rewind returned, since the process started."""
        self.counted_from = head + messages.holes.count_between(head, messages.log.next_seq)
        """``message_count`` is how far the topic has routed beyond this number, which leaves out the holes among the
        messages that wait in the topic."""
        self.awake = False
        self.wake_at = NEVER
        self._ticked_at, self._ticks_in_a_row = -NEVER, 0
        self._oldest: tuple[int, int | None] = -1, None
        self.lives.every = runtime.policies.policy_for_topic(messages.name).sample_lives
        if self.ephemeral:
            listening[self] = None
        if policy.limits_waiting or policy.dead_topic:
            runtime.wake(self)

    # -- counts ---------------------------------------------------------------------------------------------------

    @property
    def clients(self) -> dict[int, Client]:
        """The subscribed clients, by their numbers."""
        return self.in_flight.clients

    @property
    def depth(self) -> int:
        """Number of messages that wait for delivery, without those in flight and deferred."""
        return self.cursor.backlog + self.in_flight.aside.requeued_count

    @property
    def backend_depth(self) -> int:
        """The part of ``depth`` that nsqd would store on disk."""
        return self.beyond_memory(self.depth)

    def beyond_memory(self, depth: int) -> int:
        """The ``backend_depth`` if the channel's depth is ``depth``."""
        return 0 if self.ephemeral else max(0, depth - self._runtime.mem_queue_size)

    @property
    def in_flight_count(self) -> int:
        """Number of messages in flight."""
        return self.in_flight.count

    @property
    def deferred_count(self) -> int:
        """Number of messages that are not due yet."""
        return self.in_flight.aside.deferred_count

    @property
    def dead(self) -> DeadMessages:
        """The messages that it does not deliver any more, and keeps."""
        return self.redelivery.dead

    @property
    def unfinished_count(self) -> int:
        """Number of messages that wait, are in flight or are deferred."""
        return self.depth + self.in_flight_count + self.deferred_count

    @property
    def message_count(self) -> int:
        """Number of messages that the topic has routed to it since the process started."""
        return max(0, self.messages.routed_end - self.counted_from)

    @property
    def histogram(self) -> Histogram:
        """Latencies, publish to FIN, since the process started."""
        return Histogram(*self.in_flight.window.latencies())

    @property
    def head(self) -> int:
        """The next message that it has never delivered."""
        return self.in_flight.window.head

    @property
    def low_water(self) -> int:
        """The lowest message that it may still need."""
        lowest = self.dead.lowest
        return self.in_flight.low_water if lowest is None else min(lowest, self.in_flight.low_water)

    def undelivered_between(self, start: int, end: int) -> Iterator[int]:
        """Yield the dead and the set-aside messages in ``[start, end)`` that are not in flight."""
        for message in self.dead.starting_at(start):
            if message.seq >= end:
                break
            yield message.seq
        aside = self.in_flight.aside
        seqs = range(start, end) if end - start < len(aside) else aside.numbers()
        for seq in seqs:
            if start <= seq < end and (found := aside.get(seq)) is not None and found.state != IN_FLIGHT:
                yield seq

    def frame_of(self, seq: int) -> memoryview | None:
        """The frame of a message as at first delivery; None if it is damaged or missing."""
        copy = self.in_flight.aside.frames.get(seq) or self.dead.frames.get(seq)
        return self.messages.log.frame(seq) if copy is None else memoryview(copy)

    def header_block_of(self, frame: bytes | memoryview) -> bytes:
        """The header block of the message with this frame; empty without headers, or if they are damaged."""
        return self.messages.header_block_of(frame)

    def wall_ns(self, when: Seconds) -> int:
        """Convert a monotonic time in seconds to Unix nanoseconds, by the present wall clock."""
        return self._runtime.clock.wall_ns(when)

    def _timestamp_of(self, seq: int) -> Nanoseconds | None:
        copy = self.in_flight.aside.frames.get(seq) or self.dead.frames.get(seq)
        return self.messages.log.timestamp_of(seq) if copy is None else timestamp_in(copy)

    def oldest_unfinished_age_ns(self, now_ns: int) -> int | None:
        """Age of the oldest unfinished message that is not deferred; None if there is none."""
        seqs = [seq for seq in (self.in_flight.oldest, next(self.cursor.ahead(), None)) if seq is not None]
        if not seqs:
            return None
        oldest = min(seqs)
        if self._oldest[0] != oldest:  # cached, because the log may have unmapped its files
            self._oldest = oldest, self._timestamp_of(oldest)
        timestamp = self._oldest[1]
        return None if timestamp is None else max(0, now_ns - timestamp)

    def update_policy(self) -> None:
        """Apply the node's present policies from now on."""
        policies = self._runtime.policies
        self.policy_rule = policies.rule_for(self.topic_name, self.name)
        self.redelivery.policy = policies.policy_of(self.policy_rule)
        self.lives.every = policies.policy_for_topic(self.topic_name).sample_lives
        self.limits.reset()
        self._runtime.wake(self)

    # -- operators ------------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Stop sending messages; those in flight can still be acknowledged. Raises OSError."""
        self._set_paused(True)

    def unpause(self) -> None:
        """Send messages again. Raises OSError."""
        self._set_paused(False)
        self._runtime.wake(self)

    def _set_paused(self, paused: bool) -> None:
        if self.paused != paused:
            self._require_room()
            self.paused = paused
            self._journal.append(records.channel_paused(self.number, paused))

    def empty(self) -> None:
        """Drop all messages that are waiting, in flight or deferred. Raises OSError."""
        self._require_room()
        end, emptied = self.messages.routed_end, self.unfinished_count
        if self.lives.every:
            sampled = self._sampled_unfinished()
            self.lives.record(What.DROPPED, sampled, attempts=self.in_flight.attempts_of(sampled), reason=Why.EMPTIED)
        self.cursor.move_to(end)
        self.delivery.moved()
        self.in_flight.clear()
        self.emptied_count += emptied
        self._offer_all()
        record = records.channel_emptied(self.number, end)
        if self.dead and not self.ephemeral:  # replay would also remove those whose deaths are not in the journal
            self.messages.journal_if_complete(record)
        else:
            self._journal.append(record)
        self.messages.release()

    def rewind(self, seq: int) -> int:
        """Rewind to message ``seq``: it and all later ones are no longer in flight, and are delivered as new messages.

        Deferred publishes that are not due yet remain deferred. Finished ones are requeued, including those ahead of
        the cursor. Returns the number of these. Raises OSError, with nothing changed.
        """
        aside = self.in_flight.aside
        is_back = seq < self.head
        due = self.finished_deferred(seq)
        if not is_back:
            due = sorted([*due, *self.removed_from(seq)])
        changes = self._rewind_records(seq) if is_back else []
        changes += records.waiting_ranges(self.number, packed(due, attempts=0))
        self._journal_first(changes)
        self.limits.reset()
        before = self.unfinished_count + len(self.dead)
        if self.lives.every:
            self._record_rewind(seq, due)
        if is_back:
            self.in_flight.move_back(seq)
            self.cursor.move_to(seq)
            self.delivery.moved()
        for at in due:
            aside.add(at, 0, 0.0)
        self.dead.remove([message.seq for message in self.dead.starting_at(seq)])
        self.rewound_count += self.unfinished_count + len(self.dead) - before
        self._offer_all()
        self._runtime.wake(self)
        return len(due)

    def _record_rewind(self, seq: int, due: Sequence[int]) -> None:
        """Record that the sampled messages from ``seq`` on that do not wait are delivered again."""
        lives, skipped = self.lives, self.messages.skipped
        again = {at for at in lives.numbers(seq, max(seq, self.head)) if at not in skipped}
        again.update(lives.of(due), lives.of(message.seq for message in self.dead.starting_at(seq)))
        lives.record(What.REQUEUED, sorted(again), reason=Why.REWOUND)

    def _sampled_unfinished(self) -> list[int]:
        """The sampled messages that wait, are in flight or are deferred."""
        aside, low = self.in_flight.aside, self.in_flight.low_water
        copied = sorted(seq for seq in self.lives.of(aside.frames) if seq < low)  # low_water leaves them out
        numbers = self.lives.numbers(low, self.messages.routed_end)
        return copied + [
            seq
            for seq in numbers
            if seq in aside
            or (self.in_flight.window.client_of(seq) >= 0 if seq < self.head else self.cursor.is_ahead(seq))
        ]

    def finished_deferred(self, seq: int) -> list[int]:
        """The deferred publishes from message ``seq`` on that are finished."""
        aside = self.in_flight.aside
        return [at for at in self.messages.deferred_between(seq, self.messages.routed_end) if at not in aside]

    def removed_from(self, seq: int) -> list[int]:
        """The messages ahead of the cursor, from ``seq`` on, that an operator or a publisher has removed."""
        aside = self.in_flight.aside
        return [at for start, end in self.cursor.removed for at in range(max(start, seq), end) if at not in aside]

    def remove(self, seqs: Sequence[int]) -> None:
        """Finish messages in any state; ``seqs`` is ascending.

        Raises OSError, with nothing changed.
        """
        self._remove(seqs, What.FINISHED, Why.OPERATOR)

    def cancel(self, seqs: Sequence[int]) -> None:
        """As ``remove``, by the publisher of the messages."""
        self._remove(seqs, What.CANCELLED, None)

    def _remove(self, seqs: Sequence[int], what: What, reason: Why | None) -> None:
        self._journal_finished(seqs)
        self._record(what, seqs, reason)
        self.in_flight.remove(seqs)
        self.dead.remove(seqs)
        self.cursor.remove(ranges_of(seqs))
        self.emptied_count += len(seqs)
        self._offer_all()
        self.messages.release()

    def _record(self, what: What, seqs: Sequence[int], reason: Why | None, delay_s: Seconds = 0.0) -> None:
        """Record what an operator or a publisher does with messages, if they are sampled."""
        if self.lives.every:
            sampled = self.lives.of(seqs)
            attempts = self.in_flight.attempts_of(sampled)
            for seq in sampled:
                if (dead := self.dead.get(seq)) is not None:
                    attempts[seq] = dead.attempts
            self.lives.record(what, sampled, attempts=attempts, reason=reason, delay_s=delay_s)

    def require_room_to_forget(self, count: int) -> None:
        """Check that the journal has room for the end of ``count`` dead messages. Raises OSError."""
        if not self.ephemeral:
            ranges = records.finished(self.number, [(0, 1)] * count)
            self.messages.require_room(room_for([ranges]), of_messages=True)

    def forget_dead(self, seqs: Sequence[int]) -> None:
        """Finish those messages of ``seqs``, ascending, that are dead. Raises OSError, with nothing changed."""
        dead = [seq for seq in seqs if seq in self.dead]
        self._journal_finished(dead)
        self._record(What.MOVED, dead, None)
        self.dead.remove(dead)
        self.messages.release()

    def keep_dead(self, first: int, count: int) -> None:
        """Keep the dead messages of a range dead that were routed, and so set aside, again: a record was lost."""
        numbers = range(first, first + count)
        dead = (
            [each for each in islice(self.dead.starting_at(first), count) if each.seq in numbers] if self.dead else []
        )
        if dead:
            self.in_flight.aside.drop([each.seq for each in dead])
            self._journal.dead(dead)  # after the records by which they are deferred

    def _journal_finished(self, seqs: Sequence[int]) -> None:
        ranges = ranges_of(seqs)
        self._journal_first(
            records.finished(self.number, ranges[start : start + RANGES_IN_A_RECORD])
            for start in range(0, len(ranges), RANGES_IN_A_RECORD)
        )

    def requeue_now(self, seqs: Sequence[int]) -> None:
        """Make messages ready that are deferred or in flight; ``seqs`` is ascending. Those that wait stay as they are.

        Raises OSError, with nothing changed.
        """
        found = ((seq, self.in_flight.aside.get(seq)) for seq in seqs)
        due = (
            packed([seq], attempts=message.attempts)
            for seq, message in found
            if message is not None and message.state == DEFERRED
        )
        self._journal_first(records.waiting_ranges(self.number, b"".join(due)))
        self._record(What.REQUEUED, [seq for seq in seqs if not self._is_ready(seq)], Why.OPERATOR)
        self.requeue_count += self.in_flight.requeue_now(seqs)
        self._offer_all()
        self._runtime.wake(self)

    def _is_ready(self, seq: int) -> bool:
        message = self.in_flight.aside.get(seq)
        return seq >= self.head if message is None else message.state == REQUEUED

    def defer(self, seqs: Sequence[int], due: Seconds) -> None:
        """Defer messages that are ready or deferred until ``due``; ``seqs`` is ascending.

        Raises OSError, with nothing changed.
        """
        aside, kept = self.in_flight.aside, self._runtime.clock.keep(due)
        attempts = {seq: 0 if (message := aside.get(seq)) is None else message.attempts for seq in seqs}
        ranges = b"".join(WAITING_RANGE.pack(seq, 1, count, kept) for seq, count in attempts.items())
        self._journal_first(records.waiting_ranges(self.number, ranges))
        self._record(What.DEFERRED, seqs, Why.PUBLISHER, max(0.0, due - self._runtime.now()))
        self.in_flight.put_aside(attempts, due)
        self.cursor.remove(ranges_of(seqs))

    def bury(self, seqs: Sequence[int]) -> None:
        """Let messages die that are waiting, in flight or deferred; ``seqs`` is ascending.

        Raises OSError, with nothing changed.
        """
        deaths = self.redelivery.deaths(seqs, Reason.OPERATOR)
        self._journal_first(records.dead(self.number, deaths))
        self.redelivery.bury(deaths)
        self._offer_all()
        self._runtime.wake(self)

    def revive(self, seqs: Sequence[int], dues: Sequence[Seconds]) -> None:
        """Deliver dead messages, ascending, as if they had never been delivered, from their due times on; 0 is at once.

        Raises WouldBeDropped if the policy would drop some of them, and OSError; nothing is changed then.
        """
        self._require_to_keep(seqs)
        if any(dues):
            keep, each = self._runtime.clock.keep, zip(seqs, dues, strict=True)
            ranges = b"".join(WAITING_RANGE.pack(seq, 1, 0, keep(due) if due else 0) for seq, due in each)
        else:
            ranges = packed(seqs, attempts=0)
        self._journal_first(records.waiting_ranges(self.number, ranges))
        now = self._runtime.now()
        for seq, due in zip(seqs, dues, strict=True) if self.lives.every else ():
            self._record(What.REQUEUED, (seq,), Why.OPERATOR, max(0.0, due - now) if due else 0.0)
        self.redelivery.revive(seqs, dues)
        self._runtime.timers.schedule(self, self.in_flight.aside.next_time)
        self._offer_all()
        self._runtime.wake(self)

    def _require_to_keep(self, seqs: Sequence[int]) -> None:
        policy = self.redelivery.policy
        if policy.msg_ttl_ns and policy.expired == DROP and seqs:
            published_ns = self._timestamp_of(seqs[0])
            if published_ns is not None and published_ns + policy.msg_ttl_ns <= time.time_ns():
                raise WouldBeDropped("the policy of the channel drops messages of their age: change its msg_ttl first")
        if policy.overflow == DROP_OLDEST and 0 < policy.max_depth < self.depth + len(seqs):
            raise WouldBeDropped("the policy of the channel drops as many messages: change its max_depth first")

    def _journal_first(self, changes: Iterable[bytes]) -> None:
        """Journal changes of messages before they are made. Raises OSError, with nothing journalled."""
        changes = list(changes)
        if changes and not self.ephemeral:
            self.messages.require_room(room_for(changes), of_messages=True)
        for record in changes:  # before any other record, which could use up the room
            self._journal.append(record)

    def _offer_all(self) -> None:
        for client in self.clients.values():
            self.offer(client)

    def _rewind_records(self, seq: int) -> list[bytes]:
        end = max(self.head, self.cursor.removed.end, self.dead.end)
        forgotten = list(self.messages.skipped.outside(seq, end))
        return [
            records.channel_rewound(self.number, seq, forgotten[start : start + RANGES_IN_A_RECORD])
            for start in range(0, max(len(forgotten), 1), RANGES_IN_A_RECORD)
        ]

    def _require_room(self) -> None:
        if not self.ephemeral:
            self.messages.require_room()

    def close(self) -> None:
        """Close the clients of the deleted channel, and stop journalling."""
        self.gone = True
        self._journal.stop()
        for client in list(self.clients.values()):
            client.hang_up()
        self.clients.clear()

    # -- clients --------------------------------------------------------------------------------------------------

    def subscribe(self, client: Client) -> None:
        """Deliver messages to ``client`` once it is ready."""
        self.clients[client.number] = client
        topology, region, zone = self._runtime.topology, client.topology_region, client.topology_zone
        client.locality, client.preference = topology.locality(region, zone), topology.preference(region, zone)
        client.state = State.SUBSCRIBED

    def unsubscribe(self, client: Client) -> None:
        """Remove a client that has disconnected, and requeue its messages.

        Their deliveries have failed, unless the client sent CLS or the broker stops.
        """
        self.delivery.remove(client)
        if client.number in self.clients:
            failed = client.state is not State.CLOSING and not self._runtime.is_stopping
            seqs = self.in_flight.numbers_of(client) if failed and self.redelivery.policy.counts_failures else ()
            self.requeue_count += self.in_flight.leave(client)
            if seqs:
                self.redelivery.count_failed([(client, seq) for seq in seqs], self._runtime.now(), delays=False)
            self._runtime.wake(self)

    def offer(self, client: Client) -> None:
        """Queue ``client`` for deliveries if it can take messages."""
        if not self.gone and self.delivery.enqueue(client):
            self._listening[self] = None
            self._runtime.wake(self)

    def finish(self, client: Client, lines: memoryview, count: int, now_ns: int) -> list[FinFailed]:
        """Execute ``count`` FIN lines of 21 bytes.

        Returns an error for each message that is not in flight with ``client``, in the order of the lines.
        """
        finished, failures = self.in_flight.finish(client, lines, count, now_ns)
        if finished and self.in_flight.window.floor >= self.messages.log.first_end:
            self.messages.release()
        self.offer(client)
        return _errors("FIN", FinFailed, failures) if failures else []

    def requeue(self, client: Client, lines: memoryview, count: int, delay_s: float, now: Seconds) -> list[ReqFailed]:
        """Execute ``count`` REQ lines of the same length: the messages are redelivered after ``delay_s`` seconds.

        Returns errors as ``finish`` does.
        """
        counts, lives = self.redelivery.policy.counts_failures, self.lives
        seqs = self.in_flight.named(client, lines, count, 1 if counts else lives.every) if counts or lives.every else ()
        taken, failures = self.in_flight.requeue(client, lines, count, now + delay_s if delay_s > 0 else 0.0)
        self.requeue_count += taken
        if lives.every:
            sampled = lives.of(seqs)
            attempts = self.in_flight.attempts_of(sampled)
            lives.record(What.REQUEUED, sampled, by=client, attempts=attempts, delay_s=delay_s)
        if seqs and counts:
            self.redelivery.count_failed([(client, seq) for seq in seqs], now, delays=delay_s <= 0)
        self.offer(client)
        self._runtime.wake(self)
        return _errors("REQ", ReqFailed, failures)

    def touch(self, client: Client, lines: memoryview, count: int, now: Seconds) -> list[TouchFailed]:
        """Execute ``count`` TOUCH lines of 23 bytes: timeouts restart, up to the limit since the delivery.

        Returns errors as ``finish`` does.
        """
        deadline = now + client.touch_timeout_s
        failures = self.in_flight.touch(client, lines, count, deadline, self._runtime.max_msg_timeout_s)
        return _errors("TOUCH", TouchFailed, failures)

    # -- delivery -------------------------------------------------------------------------------------------------

    def pump(self, now: Seconds) -> None:
        """Deliver messages to the clients that are ready. Raises OSError, without loss, if messages cannot be read."""
        if self.gone:
            return
        policy = self.redelivery.policy
        try:
            if policy.msg_ttl_ns and not self.limits.remove_expired(policy, now):
                self._runtime.wake(self)
                return
            is_done = self.paused or self.delivery.run(now)
        except OSError:
            if policy.bounds_channel:  # messages that cannot be read wait, too
                self.limits.remove_excess(policy)
            raise
        if is_done and policy.bounds_channel:
            is_done = self.limits.remove_excess(policy)
        if not is_done:
            self._runtime.wake(self)
        if policy.dead_topic and self.dead:
            self.forwarding.run(policy.dead_topic, now)
        if self.ephemeral:
            self.drop_beyond(self._runtime.mem_queue_size)

    def published(self) -> bool:
        """Wake the channel after a publish if needed. Returns False if it need not be notified of the next one."""
        if self.delivery.has_ready_client and not self.paused:
            self._runtime.wake(self)
            return True
        if self.limits.needs_check_after_publish(self.redelivery.policy):
            self._runtime.wake(self)
        if self.ephemeral:
            self.drop_beyond(self._runtime.mem_queue_size)
            return True
        return self.limits.is_watching or self.delivery.has_ready_client

    def drop_beyond(self, depth: int) -> None:
        """Drop the oldest undelivered messages of an ephemeral channel, so that at most ``depth`` remain."""
        excess = self.cursor.backlog - depth
        if excess > 0:
            if self.lives.every:
                dropped = islice(self.cursor.ahead(), excess)
                self.lives.record(What.DROPPED, self.lives.of(dropped), reason=Reason.OVERFLOW)
            self.cursor.skip(excess)
            self.messages.release()

    def _skipping(self, first: int, count: int) -> None:
        self._journal.skipped(first, count)
        self.in_flight.evict_before_skip(first + count)

    def tick(self, now: Seconds) -> None:
        """Requeue messages that timed out or are due, for one slice of time, and schedule the next call."""
        if self.gone:
            return
        asks_seqs = self.redelivery.policy.counts_failures
        timed_out, next_time, seqs = self.in_flight.expire(now, self._runtime.scheduler, asks_seqs=asks_seqs)
        if seqs:
            self.redelivery.count_failed(seqs, now, delays=True)
            next_time = min(next_time, self.in_flight.aside.next_time)
        for client, count in timed_out:
            self.timeout_count += count
            self.offer(client)
        self._ticks_in_a_row = self._ticks_in_a_row + 1 if now - self._ticked_at < 2 * BUSY_TICK_S else 0
        self._ticked_at = now
        if self._ticks_in_a_row >= BUSY_TICKS and next_time > now:
            next_time = max(next_time, now + BUSY_TICK_S)
        self._runtime.timers.schedule(self, next_time)
        self._runtime.wake(self)

    def restore(
        self,
        waiting: Iterable[tuple[int, int, float]],
        removed: Iterable[tuple[int, int]],
        failed: dict[int, tuple[int, int]],
        dead: DeadMessages,
    ) -> None:
        """Restore ``(seq, attempts, due)`` of set-aside messages, their failures, the removed ranges, and the dead
        messages, after a restart."""
        self.in_flight.restore(waiting)
        self.in_flight.failed.update(failed)
        self.redelivery.dead = dead
        self.cursor.remove(removed)

    def copy_below(self, end: int, frames: dict[int, bytes]) -> None:
        """Copy the frames of the unfinished messages below ``end`` that the cursor has passed.

        ``frames`` has the copies that other channels have made; new ones are added to it.
        """
        self.in_flight.copy_below(end, frames)
        self.redelivery.copy_below(end, frames, self.messages.log.frame)

    def copied(self) -> Iterator[int]:
        """Yield the messages that it has copies of."""
        yield from self.in_flight.aside.frames
        yield from self.dead.frames

    def skipped_grew(self) -> None:
        """A range that may be ahead of the cursor was added to the topic's skipped ones."""
        self.cursor.skipped_grew()

    def forget(self, lost: Ranges) -> None:
        """Forget the set-aside and dead messages in ``lost``."""
        self.in_flight.forget(lost)
        self.dead.remove([message.seq for message in self.dead if message.seq in lost])


def _errors(command: str, kind: Callable[[str], Error], failures: Failures) -> list[Error]:
    reasons = {True: "client does not own message", False: "ID not in flight"}
    return [
        kind(f"{command} {message_id.decode('utf-8', 'surrogateescape')} failed {reasons[is_in_flight]}")
        for message_id, is_in_flight in failures
    ]
