"""A channel: a cursor over its topic's log, plus the exceptions.

Messages never delivered are ahead of the cursor and cost the channel nothing. Messages in their first delivery are in
the kernel's window. A message that is requeued, deferred, touched or delivered again is set aside, with its attempts
and due time, until it is finished.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from brokerd.answers import Answers
from brokerd.cursor import Cursor
from brokerd.delivery import Delivery
from brokerd.journal import records
from brokerd.journal.journal import room_for
from brokerd.journal.records import WAITING_RANGE
from brokerd.kernel import SetAside
from brokerd.log.segment import timestamp_in
from brokerd.timers import NEVER
from nsqwire.histogram import Histogram
from nsqwire.names import is_ephemeral
from nsqwire.session import State

if TYPE_CHECKING:
    from brokerd.client import Client
    from brokerd.topic import Topic

MIN_EVICTION_SPAN = 65_536
"""Length up to which a window needs no eviction, however few of its messages are in flight."""
RANGES_IN_A_RECORD = 10_000
"""Most ranges in one journal record, whose size is limited."""
BUSY_TICKS = 8
BUSY_TICK_S = 0.005
"""After BUSY_TICKS runs in a row, each less than twice this time apart, a timer runs at most this often."""
EXPIRED_AT_ONCE = 1000
"""Messages that are requeued between two reads of the clock."""


class Channel:
    """The rules of one channel. ``now`` is monotonic seconds, ``now_ns`` Unix nanoseconds."""

    def __init__(self, topic: Topic, number: int, name: str, head: int) -> None:
        self.topic = topic
        self.number = number
        self.name = name
        self.ephemeral = topic.ephemeral or is_ephemeral(name)
        self.paused = False
        self.gone = False
        """True after the channel was deleted; remaining references then do nothing."""
        self.clients: dict[int, Client] = {}
        self.cursor = Cursor(topic, head, self._skipping)
        self.window = self.cursor.window
        self.aside = SetAside()
        self.delivery = Delivery(self)
        self.answers = Answers(self)
        self.requeue_count = 0
        self.timeout_count = 0
        self.counted_from = head
        self.awake = False
        self.wake_at = NEVER
        self._ticked_at, self._ticks_in_a_row = -NEVER, 0
        self._oldest: tuple[int, int | None] = -1, None
        if self.ephemeral:
            topic.listening[self] = None

    # -- what it holds --------------------------------------------------------------------------------------------

    @property
    def depth(self) -> int:
        """Messages that wait to be delivered; those in flight and deferred are not among them."""
        return self.cursor.backlog + self.aside.requeued_count

    @property
    def backend_depth(self) -> int:
        """The part of ``depth`` that nsqd would keep on disk."""
        return self.beyond_memory(self.depth)

    def beyond_memory(self, depth: int) -> int:
        """The ``backend_depth`` of this ``depth``."""
        return 0 if self.ephemeral else max(0, depth - self.topic.mem_queue_size)

    @property
    def in_flight_count(self) -> int:
        """Messages that were delivered and not answered."""
        return self.window.in_flight_count + self.aside.in_flight_count

    @property
    def deferred_count(self) -> int:
        """Messages that are not due yet."""
        return self.aside.deferred_count

    @property
    def message_count(self) -> int:
        """Messages that the topic has routed to it since the process started."""
        return max(0, self.topic.routed_end - self.counted_from)

    @property
    def histogram(self) -> Histogram:
        """Latencies, publish to FIN, since the process started."""
        return Histogram(*self.window.latencies())

    @property
    def low_water(self) -> int:
        """The lowest message that it may still need."""
        lowest = self.aside.lowest
        return self.window.floor if lowest is None else min(lowest, self.window.floor)

    def frame_of(self, seq: int) -> memoryview | None:
        """The frame of a message as at first delivery; None if it is damaged or missing."""
        copy = self.aside.frames.get(seq)
        return self.topic.log.frame(seq) if copy is None else memoryview(copy)

    def _timestamp_of(self, seq: int) -> int | None:
        copy = self.aside.frames.get(seq)
        return self.topic.log.timestamp_of(seq) if copy is None else timestamp_in(copy)

    def oldest_unfinished_age_ns(self, now_ns: int) -> int | None:
        """Age of the oldest unfinished message that is not deferred; None if there is none."""
        in_flight = self.window.floor if self.window.in_flight_count else None
        seqs = [seq for seq in (self.aside.lowest_owed, in_flight, next(self.cursor.ahead(), None)) if seq is not None]
        if not seqs:
            return None
        oldest = min(seqs)
        if self._oldest[0] != oldest:  # cached, because the log may have unmapped its files
            self._oldest = oldest, self._timestamp_of(oldest)
        timestamp = self._oldest[1]
        return None if timestamp is None else max(0, now_ns - timestamp)

    def waiting(self) -> bytes:
        """The messages to redeliver if the process ended now, as packed WAITING_RANGE."""
        return self.window.in_flight_ranges() + self.aside.packed(self.topic.clock.offset_ns)

    def aside_ahead(self) -> list[tuple[int, int]]:
        """``(seq, attempts)`` of the set-aside messages at or above the cursor, in order."""
        ahead = sorted(seq for seq in self.aside.numbers() if seq >= self.window.head)
        return [(seq, message.attempts) for seq in ahead if (message := self.aside.get(seq)) is not None]

    # -- operators ------------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Stop sending messages; those in flight go on. Raises OSError."""
        self._set_paused(True)

    def unpause(self) -> None:
        """Send messages again. Raises OSError."""
        self._set_paused(False)
        self.topic.wake(self)

    def _set_paused(self, paused: bool) -> None:
        if self.paused != paused:
            self._require_room()
            self.paused = paused
            self.journal(records.channel_paused(self.number, paused))

    def empty(self) -> None:
        """Drop all that waits, is in flight or deferred. Raises OSError."""
        self._require_room()
        end = self.topic.routed_end
        self.cursor.move_to(end)
        self.delivery.moved()
        self.aside.clear()
        for client in self.clients.values():
            client.in_flight_count = 0
            client.runs.clear()
            self.offer(client)
        self.journal(records.channel_emptied(self.number, end))
        self.topic.release()

    def go_back(self, seq: int) -> int:
        """Rewind to message ``seq``: later messages are delivered as for the first time, and are no longer in flight.

        Deferred publishes that are not due yet keep waiting. Finished ones are requeued, also those ahead of the
        cursor; returns their number. Raises OSError, with nothing changed.
        """
        topic, end = self.topic, self.topic.routed_end
        due = [at for at in topic.deferred_between(seq, end) if at not in self.aside]
        is_back = seq < self.window.head
        changes = self._rewind_records(seq) if is_back else []
        changes += records.waiting_ranges(self.number, _packed(due, attempts=0))
        if changes and not self.ephemeral:
            topic.require_room(room_for(changes), of_messages=True)
        for record in changes:  # before any other record, which could use up the room
            self.journal(record)
        if is_back:
            self._move_back(seq)
        for at in due:
            self.aside.add(at, 0, 0.0)
        for client in self.clients.values():
            self.offer(client)
        topic.wake(self)
        return len(due)

    def _rewind_records(self, seq: int) -> list[bytes]:
        forgotten = list(self.topic.skips.outside(seq, self.window.head))
        return [
            records.channel_rewound(self.number, seq, forgotten[start : start + RANGES_IN_A_RECORD])
            for start in range(0, max(len(forgotten), 1), RANGES_IN_A_RECORD)
        ]

    def _move_back(self, seq: int) -> None:
        self._set_aside_below(seq)
        for _, number in self.window.holders(self.window.head):
            self.clients[number].in_flight_count -= 1
        for client in self.clients.values():
            client.runs.clear()
        skips = self.topic.skips
        again = [at for at in self.aside.numbers() if at >= seq and not skips.count_between(at, at + 1)]
        for number, count in self.aside.drop(again):
            self.clients[number].in_flight_count -= count
        self.cursor.move_to(seq)
        self.delivery.moved()

    # -- clients --------------------------------------------------------------------------------------------------

    def subscribe(self, client: Client) -> None:
        """Let ``client`` take messages once it is ready."""
        self.clients[client.number] = client
        topology = self.topic.topology
        client.locality, client.preference = topology.locality(client), topology.preference(client)
        client.channel = self
        client.state = State.SUBSCRIBED

    def unsubscribe(self, client: Client) -> None:
        """The client is gone: what it had in flight is delivered to others at once."""
        self.delivery.remove(client)
        if self.clients.pop(client.number, None) is None:
            return
        lost = 0
        while len(client.runs):
            lost += self.aside.requeue_run(self.window, *client.runs.pop(), client.number)
        self.requeue_count += lost + self.aside.leave(client.number)
        client.in_flight_count = 0
        self.topic.wake(self)

    def offer(self, client: Client) -> None:
        """``client`` may have become able to take messages."""
        if not self.gone and self.delivery.enqueue(client):
            self.topic.listening[self] = None
            self.topic.wake(self)

    # -- delivery -------------------------------------------------------------------------------------------------

    def pump(self, now: float) -> None:
        """Send the clients what they can take. Raises OSError if messages cannot be read; nothing is lost then."""
        if self.gone:
            return
        if not self.paused and not self.delivery.run(now):
            self.topic.wake(self)
        if self.ephemeral:
            self.drop_beyond(self.topic.mem_queue_size)

    def drop_beyond(self, depth: int) -> None:
        """Drop the oldest messages that were not delivered yet, beyond so many: an ephemeral channel keeps no more."""
        excess = self.cursor.backlog - depth
        if excess > 0:
            self.cursor.skip(excess)
            self.topic.release()

    def _skipping(self, first: int, count: int) -> None:
        self.journal(records.skipped(self.number, first, count))
        window = self.window
        if first + count - window.floor >= MIN_EVICTION_SPAN + 4 * window.in_flight_count:
            self._set_aside_below(window.head)

    # -- messages set aside ---------------------------------------------------------------------------------------

    def defer(self, first: int, count: int, due: float) -> None:
        """Set aside messages that were published to be delivered at ``due``; the cursor skips them.

        Some may be set aside already, if a crash came before their routing was journalled.
        """
        self.journal_waiting(self.aside.defer(first, count, due, self.topic.clock.keep(due)))
        self.topic.timers.schedule(self, due)

    def restore(self, waiting: Iterable[tuple[int, int, float]]) -> None:
        """Restore ``(seq, attempts, due)`` of set-aside messages after a restart."""
        for seq, attempts, due in waiting:
            self.aside.add(seq, attempts, due)
        self.topic.timers.schedule(self, self.aside.next_time)

    def tick(self, now: float) -> None:
        """Requeue messages that timed out or are due, for one slice of time, and schedule the next call."""
        if self.gone:
            return
        scheduler = self.topic.scheduler
        deadline = scheduler.deadline()
        next_time = NEVER
        for client in self.clients.values():
            runs = client.runs
            while runs.next_deadline <= now and scheduler.clock() < deadline:
                self._timed_out(client, self.aside.requeue_run(self.window, *runs.pop(), client.number))
            next_time = min(next_time, runs.next_deadline)
        while self.aside.next_time <= now and scheduler.clock() < deadline:
            timed_out, _, due = self.aside.expire(now, EXPIRED_AT_ONCE)
            for number, count in timed_out:
                self._timed_out(self.clients[number], count)
            self.journal_waiting(due)
        next_time = min(next_time, self.aside.next_time)
        self._ticks_in_a_row = self._ticks_in_a_row + 1 if now - self._ticked_at < 2 * BUSY_TICK_S else 0
        self._ticked_at = now
        if self._ticks_in_a_row >= BUSY_TICKS and next_time > now:
            next_time = max(next_time, now + BUSY_TICK_S)
        self.topic.timers.schedule(self, next_time)
        self.topic.wake(self)

    def _timed_out(self, client: Client, count: int) -> None:
        client.in_flight_count -= count
        self.timeout_count += count
        self.offer(client)

    def evict(self) -> None:
        """Set a few very old deliveries aside, so that they do not keep the window long."""
        window = self.window
        span = window.head - window.floor
        if span >= MIN_EVICTION_SPAN + 4 * window.in_flight_count:
            self._set_aside_below(window.floor + span // 2)

    def _set_aside_below(self, end: int) -> None:
        """Set the deliveries of messages below ``end`` aside; they stay in flight."""
        held = self.window.holders(end)
        for seq, number in held:
            client = self.clients[number]
            sent_at = client.runs.sent_at(seq)
            self.aside.take_over(self.window, seq, number, sent_at, sent_at + client.msg_timeout)
        # Recovery does not need this record, but without it would have to track a long span.
        self.journal_waiting(_packed((seq for seq, _ in held), attempts=1))
        self.topic.timers.schedule(self, self.aside.next_time)

    def copy_below(self, end: int, frames: dict[int, bytes]) -> None:
        """Copy the needed messages below ``end``, except the backlog. ``frames`` has the copies made so far."""
        self._set_aside_below(end)
        copied = self.aside.frames
        for seq in self.aside.numbers():
            if seq < end and seq not in copied and (frame := self.topic.log.frame(seq)) is not None:
                self.aside.keep_frame(seq, frames.setdefault(seq, bytes(frame)))

    # -- journal --------------------------------------------------------------------------------------------------

    def _require_room(self) -> None:
        if not self.ephemeral:
            self.topic.require_room()

    def journal(self, record: bytes) -> None:
        """Journal a change of this channel, unless it is ephemeral or deleted."""
        if not self.ephemeral and not self.gone:
            self.topic.journal(record)

    def journal_waiting(self, ranges: bytes) -> None:
        """Journal the attempts and due times in packed WAITING_RANGE."""
        for record in records.waiting_ranges(self.number, ranges):
            self.journal(record)


def _packed(seqs: Iterable[int], *, attempts: int) -> bytes:
    """Pack ascending numbers as WAITING_RANGE without a due time."""
    return b"".join(WAITING_RANGE.pack(first, count, attempts, 0) for first, count in _ranges(seqs))


def _ranges(seqs: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Group ascending numbers as ``(first, count)``."""
    first = count = 0
    for seq in seqs:
        if count and seq == first + count:
            count += 1
            continue
        if count:
            yield first, count
        first, count = seq, 1
    if count:
        yield first, count
