"""A channel: a cursor over its topic's log, plus the exceptions.

What was never delivered is ahead of the cursor, and costs the channel nothing. What is in flight for the first time is
in the kernel's window. A message that needs more than that, because it is requeued, deferred, touched or delivered
again, is set aside, with its attempts and due time, until it is finished.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from brokerd.journal import records
from brokerd.kernel import Window
from brokerd.kernel.frames import seq_of
from brokerd.timers import NEVER
from brokerd.topology import Locality
from nsqwire.errors import FinFailed, NSQError, ReqFailed, TouchFailed
from nsqwire.histogram import Histogram
from nsqwire.names import is_ephemeral
from nsqwire.session import State

if TYPE_CHECKING:
    from brokerd.client import Client
    from brokerd.log.segment import Segment
    from brokerd.topic import Topic

MAX_RUN_BYTES = 256 * 1024
"""Most that one client is handed before it is seen whether its connection still takes more."""
MIN_EVICTION_SPAN = 65_536
"""The window may always be this long, however few of its messages are still in flight."""
ATTEMPTS = slice(16, 18)
"""Where a message frame holds its attempts."""


class Aside:
    """A message that was delivered before, or is not due yet.

    In flight if it has a ``client`` (until ``deadline``, sent at ``sent_at``), deferred if it has a ``due`` time, else
    waiting for delivery. Times are monotonic seconds.
    """

    __slots__ = ("attempts", "client", "deadline", "due", "sent_at")

    def __init__(self, attempts: int) -> None:
        self.attempts = attempts
        self.client: Client | None = None
        self.sent_at = 0.0
        self.deadline = 0.0
        self.due = 0.0


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
        self.window = Window(head)
        self.requeue_count = 0
        self.timeout_count = 0
        self.deferred_count = 0
        self.zone_local_msg_count = self.region_local_msg_count = 0
        self.global_msg_count = 0
        self.counted_from = head
        self.awake = False
        self.wake_at = NEVER
        self._ready: deque[Client] = deque()
        self._segment: Segment | None = None
        self._offset = 0
        self._aside: dict[int, Aside] = {}
        self._aside_in_flight = 0
        self._requeued: deque[int] = deque()
        self._requeued_next = False
        self._due: list[tuple[float, int]] = []
        self._deadlines: list[tuple[float, int]] = []
        self._lowest_aside: list[int] = []
        self._lowest_owed: list[int] = []

    # -- what it holds --------------------------------------------------------------------------------------------

    @property
    def _backlog(self) -> int:
        """Messages that were never delivered and may be."""
        head, end = self.window.head, self.topic.routed_end
        return end - head - self.topic.skips.count_between(head, end) if head < end else 0

    @property
    def depth(self) -> int:
        """Messages that wait to be delivered; those in flight and deferred are not among them."""
        return self._backlog + len(self._requeued)

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
        return self.window.in_flight_count + self._aside_in_flight

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
        low = self.window.floor
        while self._lowest_aside and self._lowest_aside[0] not in self._aside:
            heapq.heappop(self._lowest_aside)
        return min(low, self._lowest_aside[0]) if self._lowest_aside else low

    def oldest_unfinished_age_ns(self, now_ns: int) -> int | None:
        """Age of the oldest message that is owed an answer; None if there is none. Deferred ones are not owed yet."""
        owed = self._lowest_owed
        while owed and ((entry := self._aside.get(owed[0])) is None or entry.due):
            heapq.heappop(owed)
        seqs = owed[:1]
        if self.window.in_flight_count:
            seqs.append(self.window.floor)
        if self._backlog:
            head = self.window.head
            skip = self.topic.skips.next_from(head)
            while skip is not None and skip[0] <= head:
                head = skip[1]
                skip = self.topic.skips.next_from(head)
            seqs.append(head)
        timestamp = self.topic.log.timestamp_of(min(seqs)) if seqs else None
        return None if timestamp is None else max(0, now_ns - timestamp)

    def waiting(self) -> Iterator[tuple[int, int, float]]:
        """``(seq, attempts, due)`` of all that must be delivered again if the process ended now."""
        for seq, _ in self.window.holders(self.window.head):
            yield seq, 1, 0.0
        for seq, entry in self._aside.items():
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
            self._journal(records.channel_paused(self.number, paused))

    def empty(self) -> None:
        """Drop all that waits, is in flight or deferred."""
        end = self.topic.routed_end
        self.window.clear(end)
        self._segment = None
        self._aside.clear()
        self._aside_in_flight = self.deferred_count = 0
        for queue in (self._requeued, self._due, self._deadlines, self._lowest_aside, self._lowest_owed):
            queue.clear()
        for client in self.clients.values():
            client.in_flight_count = 0
            client.deadlines.clear()
            client.held.clear()
            self.offer(client)
        self._journal(records.channel_emptied(self.number, end))
        self.topic.release()

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
        if self.clients.pop(client.number, None) is None:
            return
        lost = [seq for _, first, count in client.deadlines for seq in self.window.take(first, count, client.number)]
        for seq, entry in [(seq, self._set_aside(seq, 1)) for seq in lost]:  # all, before a record begins a checkpoint
            self._requeue(seq, entry)
        held = sorted(client.held)
        for seq in held:
            self._release(seq, self._aside[seq], client)
            self._requeue(seq, self._aside[seq])
        self.requeue_count += len(lost) + len(held)
        client.deadlines.clear()
        client.in_flight_count = 0
        if client.is_waiting:
            self._ready.remove(client)
            client.is_waiting = False
        self.topic.wake(self)

    def offer(self, client: Client) -> None:
        """``client`` may have become able to take messages."""
        if not client.is_waiting and client.free > 0:
            client.is_waiting = True
            self._ready.append(client)
            self.topic.wake(self)

    @property
    def has_ready_client(self) -> bool:
        """True if some client waits for messages."""
        return bool(self._ready)

    # -- delivery -------------------------------------------------------------------------------------------------

    def pump(self, now: float) -> None:
        """Hand out what there is to the clients that can take it, in turn, in even shares."""
        if self.gone:
            return
        if self.paused:
            if self.ephemeral:
                self.drop_beyond(self.topic.mem_queue_size)
            return
        head = self.window.head
        backlog = self._backlog
        ready = self._ready
        while ready and (backlog or self._requeued):
            client, rivals = self._next_ready()
            free = client.free
            if free <= 0:
                client.is_waiting = False
                continue
            share = min(free, -(-(backlog + len(self._requeued)) // (rivals + 1)))
            # Requeued messages and fresh ones take turns, so that neither keeps the other waiting.
            self._requeued_next = not self._requeued_next
            if self._requeued and (self._requeued_next or not backlog):
                for _ in range(min(share, len(self._requeued))):
                    self._deliver_again(client, now)
            else:
                self._deliver_fresh(client, share, now)
                backlog = self._backlog
                self._evict()
            if client.free > 0:
                ready.append(client)
            else:
                client.is_waiting = False
        if not backlog:
            self._step_over_skips()
        if self.window.head != head:
            self._journal(records.delivered(self.number, self.window.head))
        if self.ephemeral:
            self.drop_beyond(self.topic.mem_queue_size)

    def drop_beyond(self, depth: int) -> None:
        """Drop the oldest messages that were not delivered yet, beyond so many: an ephemeral channel keeps no more."""
        excess = self._backlog - depth
        if excess > 0:
            self.window.skip(excess)
            self._segment = None
            self.topic.release()

    def _next_ready(self) -> tuple[Client, int]:
        """Take the client whose turn it is, of those nearest to the broker; and say how many as near still wait."""
        ready = self._ready
        if not self.topic.topology.enabled:
            return ready.popleft(), len(ready)
        nearest = max(client.preference for client in ready)
        near = [client for client in ready if client.preference is nearest]
        ready.remove(near[0])
        return near[0], len(near) - 1

    def _deliver_fresh(self, client: Client, limit: int, now: float) -> None:
        window = self.window
        while True:
            stop = self._step_over_skips()
            if window.head >= stop:
                return
            segment = self._segment
            if segment is None or window.head >= segment.next_seq:
                segment = self._segment = self.topic.log.segment_of(window.head)
                self._offset = segment.offset_of(window.head)
            if window.head < segment.checked_end:
                break
            self.topic.check_batches(segment, window.head)
        stop = min(stop, segment.checked_end)
        first, start = window.head, self._offset
        count, self._offset = window.deliver(
            segment.map, start, segment.end, min(limit, stop - first), MAX_RUN_BYTES, client.number
        )
        if not count:
            return
        frames = segment.map[start : self._offset]
        self._sent(client, count)
        self._note_deadline(client, now + client.msg_timeout, first, count)
        if client.sample_rate:
            self._send_sample(client, frames, first)
        else:
            client.send(frames)

    def _step_over_skips(self) -> int:
        """Move the cursor out of a range it must not deliver; return where the next one, or the log, ends the run."""
        stop = self.topic.routed_end
        if not self.topic.skips:
            return stop
        while (skip := self.topic.skips.next_from(self.window.head)) is not None:
            start, end = skip
            if start > self.window.head:
                return min(stop, start)
            self._journal(records.skipped(self.number, self.window.head, end - self.window.head))
            self.window.skip(end - self.window.head)
            self._segment = None
        return stop

    def _note_deadline(self, client: Client, deadline: float, first: int, count: int) -> None:
        floor = self.window.floor
        deadlines = client.deadlines
        while deadlines and deadlines[0][1] + deadlines[0][2] <= floor:
            deadlines.popleft()
        deadlines.append((deadline, first, count))
        self.topic.timers.schedule(self, deadline)

    def _sent(self, client: Client, count: int) -> None:
        client.in_flight_count += count
        client.message_count += count
        if client.locality is Locality.GLOBAL:
            self.global_msg_count += count
        elif client.locality is Locality.REGION:
            self.region_local_msg_count += count
        else:
            self.zone_local_msg_count += count

    def _send_sample(self, client: Client, frames: memoryview, first: int) -> None:
        """Send about ``sample_rate`` + 1 percent of the frames, as nsqd does; the others count as finished."""
        at, seq = 0, first
        while at < len(frames):
            size = 4 + int.from_bytes(frames[at : at + 4])
            if random.randrange(100) > client.sample_rate:
                self.window.take(seq, 1, client.number)
                client.in_flight_count -= 1
                client.message_count -= 1
                self._journal(records.finished(self.number, [(seq, 1)]))
            else:
                client.send(frames[at : at + size])
            at += size
            seq += 1

    def _deliver_again(self, client: Client, now: float) -> None:
        seq = self._requeued.popleft()
        entry = self._aside[seq]
        record = self.topic.log.record(seq)
        if record is None:
            del self._aside[seq]
            self._journal(records.finished(self.number, [(seq, 1)]))
            return
        entry.attempts = (entry.attempts + 1) & 0xFFFF
        entry.client = client
        entry.sent_at = now
        entry.deadline = now + client.msg_timeout
        client.held.add(seq)
        self._aside_in_flight += 1
        self._sent(client, 1)
        self._watch(seq, entry)
        self._journal_waiting(seq, entry)
        frame = bytearray(record)
        frame[ATTEMPTS] = entry.attempts.to_bytes(2)
        client.send(bytes(frame))

    # -- answers --------------------------------------------------------------------------------------------------

    def finish(self, client: Client, lines: memoryview, count: int, now_ns: int) -> list[FinFailed]:
        """Take ``count`` FIN lines of 21 bytes. Returns an error for each message that is not in flight with it."""
        ranges, missed = self.window.finish(lines, count, self.topic.id_head, client.number, now_ns)
        failures: list[FinFailed] = []
        for message_id in missed:
            try:
                seq, entry = self._held(client, message_id)
            except _NotHeld as error:
                failures.append(FinFailed(f"FIN {_shown(message_id)} failed {error}"))
                continue
            self._release(seq, entry, client)
            del self._aside[seq]
            self.window.record(now_ns - (self.topic.log.timestamp_of(seq) or now_ns))
            ranges.append((seq, 1))
        finished = count - len(failures)
        client.finish_count += finished
        client.in_flight_count -= count - len(missed)
        if ranges:
            self._journal(records.finished(self.number, ranges))
            if self.window.floor >= self.topic.log.first_end:
                self.topic.release()
        self.offer(client)
        return failures

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
        seq = seq_of(message_id, self.topic.id_head, self.window.head)
        sent_at = self._sent_at(client, seq) if seq is not None else now
        seq, entry = self._take_from(client, message_id, "TOUCH", TouchFailed)
        entry.sent_at = entry.sent_at or sent_at
        entry.client = client
        entry.deadline = min(now + client.touch_timeout, entry.sent_at + self.topic.max_msg_timeout)
        client.held.add(seq)
        client.in_flight_count += 1
        self._aside_in_flight += 1
        self._watch(seq, entry)
        self._journal_waiting(seq, entry)

    def _watch(self, seq: int, entry: Aside) -> None:
        """See to it that a set-aside message in flight is missed at its deadline."""
        heapq.heappush(self._deadlines, (entry.deadline, seq))
        self.topic.timers.schedule(self, entry.deadline)

    def _sent_at(self, client: Client, seq: int) -> float:
        for deadline, first, count in client.deadlines:
            if first <= seq < first + count:
                return deadline - client.msg_timeout
        return 0.0

    def _held(self, client: Client, message_id: bytes) -> tuple[int, Aside]:
        """The set-aside message of this id that is in flight with ``client``. Raises _NotHeld with the reason."""
        seq = seq_of(message_id, self.topic.id_head, self.window.head)
        entry = None if seq is None else self._aside.get(seq)
        if seq is not None and (self.window.holder(seq) >= 0 or (entry is not None and entry.client is not None)):
            if entry is not None and entry.client is client:
                return seq, entry
            raise _NotHeld("client does not own message")
        raise _NotHeld("ID not in flight")

    def _take_from(
        self, client: Client, message_id: bytes, command: str, failed: Callable[[str], NSQError]
    ) -> tuple[int, Aside]:
        """Take a message that is in flight with ``client`` out of its hands, setting it aside if it was not yet."""
        seq = seq_of(message_id, self.topic.id_head, self.window.head)
        if seq is not None and self.window.take(seq, 1, client.number):
            client.in_flight_count -= 1
            return seq, self._set_aside(seq, 1)
        try:
            seq, entry = self._held(client, message_id)
        except _NotHeld as error:
            raise failed(f"{command} {_shown(message_id)} failed {error}") from None
        self._release(seq, entry, client)
        return seq, entry

    # -- messages set aside ---------------------------------------------------------------------------------------

    def _set_aside(self, seq: int, attempts: int) -> Aside:
        self._trim()
        entry = self._aside[seq] = Aside(attempts)
        heapq.heappush(self._lowest_aside, seq)
        heapq.heappush(self._lowest_owed, seq)
        return entry

    def _trim(self) -> None:
        """Forget what was finished long ago and stands behind something older that was not."""
        for heap in (self._lowest_aside, self._lowest_owed):
            if len(heap) > 64 + 4 * len(self._aside):
                heap[:] = sorted(set(heap) & self._aside.keys())

    def _release(self, seq: int, entry: Aside, client: Client) -> None:
        """A set-aside message is no longer in flight."""
        entry.client = None
        client.held.discard(seq)
        client.in_flight_count -= 1
        self._aside_in_flight -= 1

    def _requeue(self, seq: int, entry: Aside) -> None:
        entry.due = entry.sent_at = 0.0
        self._requeued.append(seq)
        self._journal_waiting(seq, entry)

    def _defer(self, seq: int, entry: Aside, due: float) -> None:
        entry.due, entry.sent_at = due, 0.0
        self.deferred_count += 1
        heapq.heappush(self._due, (due, seq))
        self.topic.timers.schedule(self, due)
        self._journal_waiting(seq, entry)

    def defer(self, first: int, count: int, due: float) -> None:
        """Messages that were published to be delivered at ``due``; the cursor steps over them."""
        for seq in range(first, first + count):
            if seq not in self._aside:  # it may be there already, if a crash came before its routing was told
                self._defer(seq, self._set_aside(seq, 0), due)

    def restore(self, waiting: Iterable[tuple[int, int, float]]) -> None:
        """Take back ``(seq, attempts, due)`` from before a restart."""
        for seq, attempts, due in waiting:
            entry = self._set_aside(seq, attempts)
            if due:
                self._defer(seq, entry, due)
            else:
                self._requeued.append(seq)

    def tick(self, now: float) -> None:
        """Requeue what timed out and what is due, and say when to be called next."""
        if self.gone:
            return
        for client in self.clients.values():
            deadlines = client.deadlines
            while deadlines and deadlines[0][0] <= now:
                _, first, count = deadlines.popleft()
                lost = self.window.take(first, count, client.number)
                for seq, aside in [(seq, self._set_aside(seq, 1)) for seq in lost]:
                    client.in_flight_count -= 1
                    self.timeout_count += 1
                    self._requeue(seq, aside)
            self.offer(client)
        while self._deadlines and self._deadlines[0][0] <= now:
            deadline, seq = heapq.heappop(self._deadlines)
            entry = self._aside.get(seq)
            if entry is not None and entry.client is not None and entry.deadline == deadline:
                holder = entry.client
                self._release(seq, entry, holder)
                self.timeout_count += 1
                self._requeue(seq, entry)
                self.offer(holder)
        while self._due and self._due[0][0] <= now:
            due, seq = heapq.heappop(self._due)
            entry = self._aside.get(seq)
            if entry is not None and entry.due == due:
                self.deferred_count -= 1
                heapq.heappush(self._lowest_owed, seq)
                self._requeue(seq, entry)
        times = [client.deadlines[0][0] for client in self.clients.values() if client.deadlines]
        times += [queue[0][0] for queue in (self._due, self._deadlines) if queue]
        if times:
            self.topic.timers.schedule(self, min(times))
        self.topic.wake(self)

    def _evict(self) -> None:
        """Set a few very old deliveries aside, so that they do not keep a window open over all that came after."""
        window = self.window
        span = window.head - window.floor
        if span < MIN_EVICTION_SPAN + 4 * window.in_flight_count:
            return
        for seq, number in window.holders(window.floor + span // 2):
            client = self.clients[number]
            sent_at = self._sent_at(client, seq)
            window.take(seq, 1, number)
            entry = self._set_aside(seq, 1)
            entry.client, entry.sent_at, entry.deadline = client, sent_at, sent_at + client.msg_timeout
            client.held.add(seq)
            self._aside_in_flight += 1
            self._watch(seq, entry)
            self._journal_waiting(seq, entry)

    # -- journal --------------------------------------------------------------------------------------------------

    def _journal(self, record: bytes) -> None:
        if not self.ephemeral and not self.gone:
            self.topic.journal(record)

    def _journal_waiting(self, seq: int, entry: Aside) -> None:
        if not self.ephemeral and not self.gone:
            due_ns = self.topic.wall_ns(entry.due) if entry.due else 0
            self.topic.journal(records.waiting(self.number, seq, entry.attempts, due_ns))


class _NotHeld(Exception):
    """A message is not in flight with a client; the text is nsqd's reason."""


def _shown(message_id: bytes) -> str:
    return message_id.decode("utf-8", "surrogateescape")
