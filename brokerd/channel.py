"""A channel: a cursor over its topic's log, plus the exceptions.

What was never delivered is ahead of the cursor, and costs the channel nothing. What is in flight for the first time is
in the kernel's window. A message that needs more than that, because it is requeued, deferred, touched or delivered
again, is set aside, with its attempts and due time, until it is finished.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from brokerd.aside import Aside, SetAside
from brokerd.cursor import Cursor
from brokerd.delivery import Delivery
from brokerd.journal import records
from brokerd.log.segment import timestamp_in
from brokerd.timers import NEVER
from nsqwire.errors import FinFailed, NSQError, ReqFailed, TouchFailed
from nsqwire.histogram import Histogram
from nsqwire.names import is_ephemeral
from nsqwire.session import State

if TYPE_CHECKING:
    from brokerd.client import Client, InFlightRun
    from brokerd.topic import Topic

MIN_EVICTION_SPAN = 65_536
"""The window may always be this long, however few of its messages are still in flight."""
RANGES_IN_A_RECORD = 10_000
"""A record of the journal has its limit."""


class Channel:
    """The rules of one channel. ``now`` is monotonic seconds, ``now_ns`` Unix nanoseconds."""

    def __init__(self, topic: Topic, number: int, name: str, head: int) -> None:
        self.topic = topic
        self.number = number
        self.name = name
        self.ephemeral = topic.ephemeral or is_ephemeral(name)
        self.paused = False
        self.gone = False
        """True once it was deleted: what still refers to it finds nothing to do."""
        self.clients: dict[int, Client] = {}
        self.cursor = Cursor(topic, head, self._skipping)
        self.window = self.cursor.window
        self.aside = SetAside()
        self.delivery = Delivery(self)
        self.requeue_count = 0
        self.timeout_count = 0
        self.counted_from = head
        self.awake = False
        self.wake_at = NEVER
        self._oldest: tuple[int, int | None] = -1, None
        if self.ephemeral:
            topic.listening[self] = None

    # -- what it holds --------------------------------------------------------------------------------------------

    @property
    def depth(self) -> int:
        """Messages that wait to be delivered; those in flight and deferred are not among them."""
        return self.cursor.backlog + len(self.aside.requeued)

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
        """Messages that the topic has given it since the process started."""
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
        """The frame of a message as at first delivery; None if it is not what was written."""
        entry = self.aside.get(seq)
        return self.topic.log.frame(seq) if entry is None or entry.frame is None else memoryview(entry.frame)

    def _timestamp_of(self, seq: int) -> int | None:
        entry = self.aside.get(seq)
        return self.topic.log.timestamp_of(seq) if entry is None or entry.frame is None else timestamp_in(entry.frame)

    def oldest_unfinished_age_ns(self, now_ns: int) -> int | None:
        """Age of the oldest message that is owed an answer; None if there is none. Deferred ones are not owed yet."""
        in_flight = self.window.floor if self.window.in_flight_count else None
        seqs = [seq for seq in (self.aside.lowest_owed, in_flight, next(self.cursor.ahead(), None)) if seq is not None]
        if not seqs:
            return None
        oldest = min(seqs)
        if self._oldest[0] != oldest:  # not asked of the log again and again: it may have unmapped its files
            self._oldest = oldest, self._timestamp_of(oldest)
        timestamp = self._oldest[1]
        return None if timestamp is None else max(0, now_ns - timestamp)

    def waiting(self) -> Iterator[tuple[int, int, float]]:
        """``(seq, attempts, due)`` of all that must be delivered again if the process ended now."""
        for seq, _ in self.window.holders(self.window.head):
            yield seq, 1, 0.0
        for seq, entry in self.aside.items():
            yield seq, entry.attempts, entry.due

    # -- operators ------------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Stop sending messages; those in flight go on."""
        self._set_paused(True)

    def unpause(self) -> None:
        """Send messages again."""
        self._set_paused(False)
        self.topic.wake(self)

    def _set_paused(self, paused: bool) -> None:
        if self.paused != paused:
            self.paused = paused
            self.journal(records.channel_paused(self.number, paused))

    def empty(self) -> None:
        """Drop all that waits, is in flight or deferred."""
        end = self.topic.routed_end
        self.cursor.move_to(end)
        self.aside.clear()
        for client in self.clients.values():
            client.in_flight_count = 0
            client.runs.clear()
            client.held.clear()
            self.offer(client)
        self.journal(records.channel_emptied(self.number, end))
        self.topic.release()

    def go_back(self, seq: int) -> int:
        """Deliver again, as for the first time, what was delivered from message ``seq`` on; nobody has it in flight.

        A deferred publish whose time has not come goes on to wait for it. The finished ones are requeued, those ahead
        of the cursor too, and their number is returned.
        """
        topic, end = self.topic, self.topic.routed_end
        if seq < self.window.head:
            self._move_back(seq)
        due = [at for at in topic.deferred_between(seq, end) if at not in self.aside]
        for at, entry in [(at, self.aside.add(at, 0)) for at in due]:
            self._requeue(at, entry)
        for client in self.clients.values():
            self.offer(client)
        topic.wake(self)
        return len(due)

    def _move_back(self, seq: int) -> None:
        topic = self.topic
        self._set_aside_below(seq)
        for _, number in self.window.holders(self.window.head):
            self.clients[number].in_flight_count -= 1
        for client in self.clients.values():
            client.runs.clear()
        again = {at for at, _ in self.aside.items() if at >= seq and not topic.skips.count_between(at, at + 1)}
        for at in again:
            entry = self.aside[at]
            if entry.client is not None:
                self.aside.release(at, entry, entry.client)
        self.aside.drop(again)
        self.cursor.move_to(seq)
        forgotten = list(_ranges(sorted(again)))
        for start in range(0, max(len(forgotten), 1), RANGES_IN_A_RECORD):
            self.journal(records.channel_rewound(self.number, seq, forgotten[start : start + RANGES_IN_A_RECORD]))

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
        lost = [seq for run in client.runs for seq in self._taken(run, client)]
        for seq, entry in [(seq, self.aside.add(seq, 1)) for seq in lost]:  # all, before a record begins a checkpoint
            self._requeue(seq, entry)
        held = sorted(client.held)
        for seq in held:
            self.aside.release(seq, self.aside[seq], client)
            self._requeue(seq, self.aside[seq])
        self.requeue_count += len(lost) + len(held)
        client.runs.clear()
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
        if not self.paused:
            self.delivery.run(now)
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

    # -- answers --------------------------------------------------------------------------------------------------

    def finish(self, client: Client, lines: memoryview, count: int, now_ns: int) -> list[FinFailed]:
        """Take ``count`` FIN lines of 21 bytes. Returns an error for each message that is not in flight with it."""
        ranges, missed = self.window.finish(lines, count, self.topic.id_head, client.number, now_ns)
        if missed:
            missed = self._finish_former(client, missed, ranges, now_ns)
        failures: list[FinFailed] = []
        for message_id in missed:
            try:
                seq, entry = self._held(client, message_id)
            except _NotHeld as error:
                failures.append(FinFailed(f"FIN {_shown(message_id)} failed {error}"))
                continue
            self.window.record(now_ns - (self._timestamp_of(seq) or now_ns))
            self.aside.release(seq, entry, client)
            self.aside.remove(seq)
            ranges.append((seq, 1))
        finished = count - len(failures)
        client.finish_count += finished
        client.in_flight_count -= count - len(missed)
        if ranges:
            self.journal(records.finished(self.number, ranges))
            if self.window.floor >= self.topic.log.first_end:
                self.topic.release()
        self.offer(client)
        return failures

    def _finish_former(
        self, client: Client, missed: list[bytes], ranges: list[tuple[int, int]], now_ns: int
    ) -> list[bytes]:
        """Finish the messages that got their ids while the node had another one. Returns the ids of the others."""
        topic, window = self.topic, self.window
        foreign = [each for each in missed if each[:6] != topic.id_head]
        for id_head in {each[:6] for each in foreign if topic.is_former_id_head(each, window.head)}:
            lines = memoryview(b"".join(b"FIN %b\n" % each for each in missed))
            found, missed = window.finish(lines, len(missed), id_head, client.number, now_ns)
            ranges += found
            if not missed:
                break
        return missed

    def requeue(self, client: Client, message_id: bytes, delay: float, now: float) -> None:
        """Have a message delivered again after ``delay`` seconds. Raises ReqFailed."""
        seq, entry = self._take_from(client, message_id, "REQ", ReqFailed)
        self.requeue_count += 1
        client.requeue_count += 1
        if delay > 0:
            self._defer(seq, entry, now + delay)
        else:
            self._requeue(seq, entry)
        self.offer(client)
        self.topic.wake(self)

    def touch(self, client: Client, message_id: bytes, now: float) -> None:
        """Restart a message's timeout, within the limit that counts from its sending. Raises TouchFailed."""
        seq = self.topic.seq_of(message_id, self.window.head)
        sent_at = client.sent_at(seq) if seq is not None else now
        seq, entry = self._take_from(client, message_id, "TOUCH", TouchFailed)
        sent_at = entry.sent_at or sent_at
        client.in_flight_count += 1
        deadline = min(now + client.touch_timeout, sent_at + self.topic.max_msg_timeout)
        self.put_in_flight(seq, entry, client, sent_at, deadline)

    def _held(self, client: Client, message_id: bytes) -> tuple[int, Aside]:
        """The set-aside message of this id that is in flight with ``client``. Raises _NotHeld with the reason."""
        seq = self.topic.seq_of(message_id, self.window.head)
        entry = None if seq is None else self.aside.get(seq)
        if seq is not None and (self.window.holder(seq) >= 0 or (entry is not None and entry.client is not None)):
            if entry is not None and entry.client is client:
                return seq, entry
            raise _NotHeld("client does not own message")
        raise _NotHeld("ID not in flight")

    def _take_from(
        self, client: Client, message_id: bytes, command: str, failed: Callable[[str], NSQError]
    ) -> tuple[int, Aside]:
        """Take a message that is in flight with ``client`` out of its hands, setting it aside if it was not yet."""
        seq = self.topic.seq_of(message_id, self.window.head)
        if seq is not None and self.window.take(seq, 1, client.number):
            client.in_flight_count -= 1
            return seq, self.aside.add(seq, 1)
        try:
            seq, entry = self._held(client, message_id)
        except _NotHeld as error:
            raise failed(f"{command} {_shown(message_id)} failed {error}") from None
        self.aside.release(seq, entry, client)
        return seq, entry

    # -- messages set aside ---------------------------------------------------------------------------------------

    def _requeue(self, seq: int, entry: Aside) -> None:
        self.aside.requeue(seq, entry)
        self._journal_waiting(seq, entry)

    def _defer(self, seq: int, entry: Aside, due: float) -> None:
        self.aside.defer(seq, entry, due)
        self.topic.timers.schedule(self, due)
        self._journal_waiting(seq, entry)

    def put_in_flight(self, seq: int, entry: Aside, client: Client, sent_at: float, deadline: float) -> None:
        self.aside.put_in_flight(seq, entry, client, sent_at, deadline)
        self.topic.timers.schedule(self, deadline)
        self._journal_waiting(seq, entry)

    def defer(self, first: int, count: int, due: float) -> None:
        """Messages that were published to be delivered at ``due``; the cursor steps over them."""
        for seq in range(first, first + count):
            if seq not in self.aside:  # it may be there already, if a crash came before its routing was told
                self._defer(seq, self.aside.add(seq, 0), due)

    def restore(self, waiting: Iterable[tuple[int, int, float]]) -> None:
        """Take back ``(seq, attempts, due)`` from before a restart."""
        for seq, attempts, due in waiting:
            entry = self.aside.add(seq, attempts)
            if due:
                self._defer(seq, entry, due)
            else:
                self.aside.requeue(seq, entry)

    def tick(self, now: float) -> None:
        """Requeue what timed out and what is due, and say when to be called next."""
        if self.gone:
            return
        for client in self.clients.values():
            while client.runs and client.runs[0].deadline <= now:
                lost = self._taken(client.runs.popleft(), client)
                for seq, entry in [(seq, self.aside.add(seq, 1)) for seq in lost]:
                    client.in_flight_count -= 1
                    self.timeout_count += 1
                    self._requeue(seq, entry)
            self.offer(client)
        for seq, entry, client in self.aside.timed_out(now):
            self.aside.release(seq, entry, client)
            self.timeout_count += 1
            self._requeue(seq, entry)
            self.offer(client)
        for seq, entry in self.aside.fallen_due(now):
            self._requeue(seq, entry)
        times = [client.runs[0].deadline for client in self.clients.values() if client.runs]
        next_time = min(times, default=NEVER)
        self.topic.timers.schedule(self, min(next_time, self.aside.next_time))
        self.topic.wake(self)

    def _taken(self, run: InFlightRun, client: Client) -> list[int]:
        return self.window.take(run.first, run.end - run.first, client.number)

    def evict(self) -> None:
        """Set a few very old deliveries aside, so that they do not keep a window open over all that came after."""
        window = self.window
        span = window.head - window.floor
        if span >= MIN_EVICTION_SPAN + 4 * window.in_flight_count:
            self._set_aside_below(window.floor + span // 2)

    def _set_aside_below(self, end: int) -> None:
        """Set the deliveries of messages below ``end`` aside; they stay in flight."""
        for seq, number in self.window.holders(end):
            client = self.clients[number]
            sent_at = client.sent_at(seq)
            self.window.take(seq, 1, number)
            self.put_in_flight(seq, self.aside.add(seq, 1), client, sent_at, sent_at + client.msg_timeout)

    def copy_below(self, end: int, frames: dict[int, bytes]) -> None:
        """Need nothing of the log below ``end`` any more but the backlog; ``frames`` are the copies that there are."""
        self._set_aside_below(end)
        for seq, entry in self.aside.items():
            if seq < end and entry.frame is None and (frame := self.topic.log.frame(seq)) is not None:
                entry.frame = frames.setdefault(seq, bytes(frame))

    # -- journal --------------------------------------------------------------------------------------------------

    def journal(self, record: bytes) -> None:
        """Keep a change of this channel; one that is ephemeral or deleted leaves no record."""
        if not self.ephemeral and not self.gone:
            self.topic.journal(record)

    def _journal_waiting(self, seq: int, entry: Aside) -> None:
        if not self.ephemeral and not self.gone:
            due_ns = self.topic.clock.keep(entry.due) if entry.due else 0
            self.topic.journal(records.waiting(self.number, seq, entry.attempts, due_ns))


class _NotHeld(Exception):
    """A message is not in flight with a client; the text is nsqd's reason."""


def _shown(message_id: bytes) -> str:
    return message_id.decode("utf-8", "surrogateescape")


def _ranges(seqs: Iterable[int]) -> Iterator[tuple[int, int]]:
    """``(first, count)`` of numbers in order."""
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
