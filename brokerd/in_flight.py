"""The messages of a channel that are in flight or set aside.

A message in its first delivery is in the kernel's window. A message that is requeued, deferred, touched or delivered
again is set aside, with its attempts and due time, until it is finished.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from brokerd.channel_journal import ChannelJournal, packed
from brokerd.client import Client
from brokerd.kernel import SetAside, Window
from brokerd.kernel.aside import REQUEUED
from brokerd.kernel.frames import seq_of
from brokerd.kernel.runs import NEVER
from brokerd.kernel.waiting import WAITING_RANGE
from brokerd.lives import What, Why
from nsqwire.frame import MESSAGE_ID_BYTES
from nsqwire.units import Seconds

if TYPE_CHECKING:
    from brokerd.clock import NodeClock
    from brokerd.kernel.aside import Failures, PlaceOf
    from brokerd.ranges import Ranges
    from brokerd.sampled_lives import SampledLives
    from brokerd.scheduler import Scheduler
    from brokerd.topic_log import TopicLog

MIN_EVICTION_SPAN = 65_536
"""Length up to which nothing is evicted from a window, even if few of its messages are in flight."""
EXPIRED_AT_ONCE = 1000
"""Messages that are requeued between two reads of the clock."""
OLDEST_WITHIN = 1024
"""Length of the window in which the oldest message of each client is searched first."""
REQ_ID_AT = len("REQ ")
TOUCH_ID_AT = len("TOUCH ")


class Expired(NamedTuple):
    """The number of messages that timed out, by client, and when the next message is due, monotonic seconds.

    ``seqs`` are the messages that timed out, if they were asked for.
    """

    timed_out: list[tuple[Client, int]]
    next_time: Seconds
    seqs: list[tuple[Client, int]]


class InFlight:
    """The messages of one channel that are in flight or set aside.

    No other class changes ``Client.in_flight_count`` and ``Client.runs``. Times are monotonic seconds; ``now_ns`` is
    Unix nanoseconds. ``schedule(when)`` schedules the channel's timer. The methods write the journal records that
    recovery needs.
    """

    def __init__(
        self,
        messages: TopicLog,
        head: int,
        journal: ChannelJournal,
        clock: NodeClock,
        schedule: Callable[[float], None],
        lives: SampledLives,
    ) -> None:
        self.window = Window(head)
        self.aside = SetAside()
        self.clients: dict[int, Client] = {}
        """The channel's clients, by their numbers."""
        self.failed: dict[int, tuple[int, int]] = {}
        """The failed deliveries of set-aside messages, if they count: their number, and Unix ns of the first."""
        self._messages = messages
        self._journal = journal
        self._clock = clock
        self._schedule = schedule
        self._lives = lives

    @property
    def count(self) -> int:
        """Number of messages in flight."""
        return self.window.in_flight_count + self.aside.in_flight_count

    @property
    def low_water(self) -> int:
        """The lowest message that it may still need from the log."""
        lowest = self.aside.lowest
        return self.window.floor if lowest is None else min(lowest, self.window.floor)

    @property
    def oldest(self) -> int | None:
        """The lowest message that is in flight or requeued; None if there is none."""
        lowest = self.aside.lowest_undeferred
        if not self.window.in_flight_count:
            return lowest
        return self.window.floor if lowest is None else min(lowest, self.window.floor)

    def client_of(self, seq: int) -> tuple[Client | None, float]:
        """The client that message ``seq`` is in flight with, None if there is none, and when the message times out."""
        if (message := self.aside.get(seq)) is not None:
            return self.clients.get(message.client), message.when
        client = self.clients.get(self.window.client_of(seq))
        return client, 0.0 if client is None else client.runs.sent_at(seq) + client.msg_timeout_s

    def oldest_sent_at(self) -> dict[int, Seconds]:
        """When the oldest message in flight with each client was sent, by the client's number."""
        oldest: dict[int, float] = {}
        set_aside: Counter[int] = Counter()
        for seq in self.aside.in_flight():
            if (message := self.aside.get(seq)) is not None:
                oldest[message.client] = min(message.sent_at, oldest.get(message.client, NEVER))
                set_aside[message.client] += 1
        # A client's first deliveries are in the order of the messages, so its lowest message is its oldest. Usually a
        # short part of a long window has messages of all clients that have any in it.
        missing = {number for number, client in self.clients.items() if client.in_flight_count > set_aside[number]}
        end = self.window.floor + OLDEST_WITHIN
        while missing and self.window.in_flight_count:
            for seq, number in self.window.in_flight_below(end):
                if number in missing:
                    missing.discard(number)
                    oldest[number] = min(self.clients[number].runs.sent_at(seq), oldest.get(number, NEVER))
            if end >= self.window.head:
                break
            end += 4 * (end - self.window.floor)
        return oldest

    def numbers_of(self, client: Client) -> list[int]:
        """The messages in flight with ``client``, ascending."""
        number = client.number
        fresh = [seq for seq, other in self.window.in_flight_below(self.window.head) if other == number]
        aside = (seq for seq in self.aside.in_flight() if (found := self.aside.get(seq)) and found.client == number)
        return sorted([*fresh, *aside])

    def named(self, client: Client, lines: memoryview, count: int, every: int = 1) -> list[int]:
        """The messages in flight with ``client`` that ``count`` REQ lines of the same length name, if their numbers
        are multiples of ``every``."""
        head, length, found = self.window.head, len(lines) // count, dict[int, None]()
        for at in range(REQ_ID_AT, len(lines), length):
            message_id = bytes(lines[at : at + MESSAGE_ID_BYTES])
            id_head = message_id[:6]
            if id_head == self._messages.id_head or self._messages.is_former_id_head(message_id, head):
                seq = seq_of(message_id, id_head, head)
                if seq is not None and not seq % every and self._client_number(seq) == client.number:
                    found[seq] = None
        return list(found)

    def _client_number(self, seq: int) -> int:
        message = self.aside.get(seq)
        return message.client if message is not None else self._fresh_with(seq)

    def numbers(self) -> list[int]:
        """The messages in flight, ascending."""
        fresh = [seq for seq, _ in self.window.in_flight_below(self.window.head)]
        return sorted(fresh + self.aside.in_flight())

    def attempts_of(self, seqs: Iterable[int]) -> dict[int, int]:
        """The deliveries of messages so far."""
        found = {seq: self.aside.get(seq) for seq in seqs}
        return {
            seq: each.attempts if each is not None else int(self._fresh_with(seq) >= 0) for seq, each in found.items()
        }

    def ahead(self) -> list[tuple[int, int]]:
        """``(seq, attempts)`` of the set-aside messages at or above the cursor, in order."""
        ahead = sorted(seq for seq in self.aside.numbers() if seq >= self.window.head)
        return [(seq, message.attempts) for seq in ahead if (message := self.aside.get(seq)) is not None]

    def waiting(self) -> bytes:
        """The messages to redeliver if the process ends now, as packed WAITING_RANGE."""
        return self.window.in_flight_ranges() + self.aside.packed(self._clock.offset_ns)

    # -- delivery -------------------------------------------------------------------------------------------------

    def delivered(self, client: Client, first: int, end: int, now: Seconds) -> None:
        """Count the messages ``first`` to ``end``, which the window put in flight with ``client``."""
        deadline = now + client.msg_timeout_s
        client.in_flight_count += end - first
        client.message_count += end - first
        client.runs.add(first, end, now, deadline, self.window.floor)
        self._schedule(deadline)

    def redeliver(
        self, client: Client, place_of: PlaceOf, limit: int, max_bytes: int, now: Seconds
    ) -> tuple[bytes, int, int]:
        """Put up to ``limit`` requeued messages in flight with ``client``. Raises OSError.

        Returns their frames, their number, and the number of the first one if it could not be read, else -1.
        """
        aside, deadline = self.aside, now + client.msg_timeout_s
        frames, count, ranges = aside.deliver_from(place_of, limit, max_bytes, client.number, now, deadline)
        if not count:
            [first] = aside.requeued(0, 1)
            copy = aside.frames.get(first)
            if copy is None:  # damaged or missing
                return b"", 0, first
            frames, ranges = aside.deliver_copy(copy, client.number, now, deadline)
            count = 1
        client.in_flight_count += count
        client.message_count += count
        self._journal.waiting(ranges)
        if self._lives.every:
            self._lives.delivered_again(ranges, client)
        self._schedule(deadline)
        return frames, count, -1

    def finish_unsent(self, client: Client, seq: int) -> None:
        """Finish a message that was put in flight with ``client`` and is not sent, because of its sample rate."""
        self.window.take(seq, 1, client.number)
        client.in_flight_count -= 1
        client.message_count -= 1
        self._journal.finished([(seq, 1)])
        if self._lives.every:
            self._lives.record(What.FINISHED, self._lives.of((seq,)), by=client, reason=Why.SAMPLE_RATE)

    # -- FIN, REQ, TOUCH ------------------------------------------------------------------------------------------

    def finish(self, client: Client, lines: memoryview, count: int, now_ns: int) -> tuple[int, Failures]:
        """Execute ``count`` FIN lines of 21 bytes. Returns the number of finished messages, and the failures."""
        ranges, missed = self.window.finish(lines, count, self._messages.id_head, client.number, now_ns)
        attempts: dict[int, int] = {}
        failures = self._finish_missed(client, missed, ranges, now_ns, attempts) if missed else []
        finished = count - len(failures)
        client.finish_count += finished
        client.in_flight_count -= finished
        if ranges:
            self._journal.finished(ranges)
            if self._lives.every:
                self._lives.finished(ranges, client, now_ns, attempts)
        return finished, failures

    def _finish_missed(
        self,
        client: Client,
        missed: list[bytes],
        ranges: list[tuple[int, int]],
        now_ns: int,
        attempts: dict[int, int],
    ) -> Failures:
        """Finish the messages ``missed``, which are not in the window under the topic's present id head.

        Adds the finished messages to ``ranges``, and the attempts of the sampled ones to ``attempts``. Returns the
        failures.
        """
        window, number = self.window, client.number

        def retry(ids: list[bytes], id_head: bytes) -> Failures:
            if id_head != self._messages.id_head:
                found, ids = window.finish(
                    b"".join(b"FIN %b\n" % each for each in ids), len(ids), id_head, number, now_ns
                )
                ranges.extend(found)
            if self._lives.every:
                seqs = (seq_of(each, id_head, window.head) for each in ids)
                attempts.update(self.attempts_of(self._lives.of(seq for seq in seqs if seq is not None)))
            found, failed = self.aside.finish(window, ids, id_head, number, now_ns)
            ranges.extend(found)
            if self.failed:
                self._forget_failures(seq for first, length in found for seq in range(first, first + length))
            return failed

        return self._retry_former_heads(retry(missed, self._messages.id_head), retry)

    def requeue(self, client: Client, lines: memoryview, count: int, due: Seconds) -> tuple[int, Failures]:
        """Execute ``count`` REQ lines of the same length. The messages are deferred until ``due``, or requeued if 0.

        Returns the number of these messages, and the failures.
        """
        aside, window = self.aside, self.window
        due_ns = self._clock.keep(due) if due else 0
        taken, ranges, failures = aside.requeue(
            window, lines, count, REQ_ID_AT, self._messages.id_head, client.number, due, due_ns
        )
        self._journal.waiting(ranges)

        def retry(ids: list[bytes], id_head: bytes) -> Failures:
            nonlocal taken
            found, ranges, failed = aside.requeue(
                window, b"".join(ids), len(ids), 0, id_head, client.number, due, due_ns
            )
            self._journal.waiting(ranges)
            taken += found
            return failed

        failures = self._retry_former_heads(failures, retry)
        client.requeue_count += taken
        client.in_flight_count -= taken
        if due and taken:
            self._schedule(due)
        return taken, failures

    def touch(self, client: Client, lines: memoryview, count: int, deadline: Seconds, max_timeout_s: float) -> Failures:
        """Execute ``count`` TOUCH lines of 23 bytes: the messages time out at ``deadline``, but no later than
        ``max_timeout_s`` after their delivery. Returns the failures.
        """
        aside, window, runs, number = self.aside, self.window, client.runs, client.number
        id_head = self._messages.id_head
        failures = aside.touch(window, runs, lines, count, TOUCH_ID_AT, id_head, number, deadline, max_timeout_s)

        def retry(ids: list[bytes], id_head: bytes) -> Failures:
            data = b"".join(ids)
            return aside.touch(window, runs, data, len(ids), 0, id_head, number, deadline, max_timeout_s)

        failures = self._retry_former_heads(failures, retry)
        self._schedule(aside.next_time)
        return failures

    def _retry_former_heads(self, failures: Failures, retry: Callable[[list[bytes], bytes], Failures]) -> Failures:
        """Retry the failures whose ids were assigned under another node id. Returns those that still fail."""
        if not failures:
            return failures
        messages, head = self._messages, self.window.head
        tried = {messages.id_head}
        for message_id, _ in list(failures):
            id_head = message_id[:6]
            if id_head not in tried and messages.is_former_id_head(message_id, head):
                tried.add(id_head)
                failed = deque(retry([each for each, _ in failures if each[:6] == id_head], id_head))
                failures = [
                    failed.popleft() if failed and failed[0][0] == failure[0] else failure
                    for failure in failures
                    if failure[0][:6] != id_head or (failed and failed[0][0] == failure[0])
                ]
        return failures

    # -- operators ------------------------------------------------------------------------------------------------

    def remove(self, seqs: Sequence[int]) -> None:
        """Forget messages that are in flight or set aside. The caller journals it."""
        for number, count in self.aside.drop([seq for seq in seqs if seq in self.aside]):
            self.clients[number].in_flight_count -= count
        self._forget_failures(seqs)
        for seq in seqs:
            if (number := self._fresh_with(seq)) >= 0:
                self.window.take(seq, 1, number)
                self.clients[number].in_flight_count -= 1

    def forget(self, lost: Ranges) -> None:
        """Forget the messages in ``lost``, none of which is in flight, and their failures."""
        self.aside.drop([seq for seq in self.aside.numbers() if seq in lost])
        self._forget_failures([seq for seq in self.failed if seq in lost])

    def requeue_now(self, seqs: Sequence[int]) -> int:
        """Requeue the messages that are deferred or in flight. The caller journals that deferred ones are due.

        Returns the number of those that were in flight.
        """
        aside, taken = self.aside, 0
        for seq in seqs:
            message = aside.get(seq)
            if message is not None and message.state != REQUEUED:
                taken += self._put_again(seq, message.attempts, 0.0)
            elif message is None and (number := self._fresh_with(seq)) >= 0:
                aside.requeue_run(self.window, seq, seq + 1, number)
                self.clients[number].in_flight_count -= 1
                taken += 1
        return taken

    def put_off(self, seqs: Iterable[int], delays: Iterable[Seconds], now: Seconds) -> None:
        """Defer requeued messages, each for its delay in seconds."""
        ranges = list[bytes]()
        for seq, delay_s in zip(seqs, delays, strict=True):
            message = self.aside.get(seq)
            assert message is not None
            due = now + delay_s
            self._put_again(seq, message.attempts, due)
            ranges.append(WAITING_RANGE.pack(seq, 1, message.attempts, self._clock.keep(due)))
        self._journal.waiting(b"".join(ranges))
        self._schedule(self.aside.next_time)

    def put_aside(self, attempts: Mapping[int, int], due: Seconds) -> None:
        """Defer messages that are not in flight until ``due``; ``attempts`` are their deliveries. The caller journals
        it."""
        for seq, count in attempts.items():
            if seq in self.aside:
                self._put_again(seq, count, due)
            else:
                self.aside.add(seq, count, due)
        self._schedule(self.aside.next_time)

    def _put_again(self, seq: int, attempts: int, due: Seconds) -> int:
        """Set a set-aside message aside anew. Returns 1 if it was in flight, else 0."""
        aside, frame, taken = self.aside, self.aside.frames.get(seq), 0
        for number, _ in aside.drop([seq]):
            self.clients[number].in_flight_count -= 1
            taken = 1
        aside.add(seq, attempts, due)
        if frame is not None:
            aside.keep_frame(seq, frame)
        return taken

    def _forget_failures(self, seqs: Iterable[int]) -> None:
        if self.failed:
            for seq in seqs:
                self.failed.pop(seq, None)

    def _fresh_with(self, seq: int) -> int:
        """The number of the client that has message ``seq`` in its first delivery; -1 if there is none."""
        return self.window.client_of(seq) if seq < self.window.head else -1

    # -- timeouts and clients that leave --------------------------------------------------------------------------

    def leave(self, client: Client) -> int:
        """Remove a client and requeue its messages. Returns their number."""
        if self.clients.pop(client.number, None) is None:
            return 0
        requeued, every = 0, self._lives.every
        sampled = self._sampled_aside(client.number) if every else []
        while len(client.runs):
            first, end = client.runs.pop()
            if every:
                sampled += self._sampled_fresh(first, end, client.number)
            requeued += self.aside.requeue_run(self.window, first, end, client.number)
        requeued += self.aside.leave(client.number)
        client.in_flight_count = 0
        if every:
            attempts = self.attempts_of(sampled)
            self._lives.record(What.REQUEUED, sampled, by=client, attempts=attempts, reason=Why.DISCONNECTED)
        return requeued

    def _sampled_aside(self, number: int) -> list[int]:
        """The sampled messages that are set aside and in flight with a client."""
        aside = self.aside
        sampled = self._lives.of(aside.in_flight())
        return sorted(seq for seq in sampled if (found := aside.get(seq)) and found.client == number)

    def _sampled_fresh(self, first: int, end: int, number: int) -> list[int]:
        """The sampled messages in ``[first, end)`` that are in their first delivery with a client."""
        return [seq for seq in self._lives.numbers(first, end) if self._fresh_with(seq) == number]

    def expire(self, now: Seconds, scheduler: Scheduler, *, asks_seqs: bool) -> Expired:
        """Requeue the messages that timed out or are due by ``now``, for one slice of time."""
        every = self._lives.every
        deadline = scheduler.deadline()
        timed_out: list[tuple[Client, int]] = []
        seqs: list[tuple[Client, int]] = []
        aside_seqs: list[tuple[int, int]] | None = [] if asks_seqs or every else None
        next_time = NEVER
        for client in self.clients.values():
            runs = client.runs
            while runs.next_deadline <= now and scheduler.clock() < deadline:
                first, end = runs.pop()
                if asks_seqs:
                    first = max(first, self.window.floor)
                    seqs += [(client, seq) for seq in range(first, end) if self._fresh_with(seq) == client.number]
                elif every:
                    seqs += [(client, seq) for seq in self._sampled_fresh(first, end, client.number)]
                count = self.aside.requeue_run(self.window, first, end, client.number)
                client.in_flight_count -= count
                client.timeout_count += count
                timed_out.append((client, count))
            next_time = min(next_time, runs.next_deadline)
        while self.aside.next_time <= now and scheduler.clock() < deadline:
            counts, _, due = self.aside.expire(now, EXPIRED_AT_ONCE, aside_seqs)
            for number, count in counts:
                client = self.clients[number]
                client.in_flight_count -= count
                client.timeout_count += count
                timed_out.append((client, count))
            self._journal.waiting(due)
        seqs += [(self.clients[number], seq) for number, seq in aside_seqs or ()]
        if every:
            self._record_timeouts(seqs)
        return Expired(timed_out, min(next_time, self.aside.next_time), seqs if asks_seqs else [])

    def _record_timeouts(self, seqs: Iterable[tuple[Client, int]]) -> None:
        for client, seq in seqs:
            if sampled := self._lives.of((seq,)):
                self._lives.record(What.TIMED_OUT, sampled, by=client, attempts=self.attempts_of(sampled))

    # -- setting aside --------------------------------------------------------------------------------------------

    def defer(self, first: int, delays: bytes, now: Seconds) -> None:
        """Set aside messages that were published with ``delays``, ``u32`` ms each; the cursor skips them.

        Some may be set aside already, if a crash came before their routing was journalled.
        """
        self._clock.check()
        self._journal.waiting(self.aside.defer(first, delays, now, self._clock.offset_ns))
        self._schedule(self.aside.next_time)

    def restore(self, waiting: Iterable[tuple[int, int, float]]) -> None:
        """Restore ``(seq, attempts, due)`` of set-aside messages after a restart."""
        for seq, attempts, due in waiting:
            self.aside.add(seq, attempts, due)
        self._schedule(self.aside.next_time)

    def evict(self) -> None:
        """Set a few very old deliveries aside, so that they do not keep the window long."""
        window = self.window
        span = window.head - window.floor
        if span >= MIN_EVICTION_SPAN + 4 * window.in_flight_count:
            self.set_aside_below(window.floor + span // 2)

    def evict_before_skip(self, end: int) -> None:
        """Set all deliveries aside if a skip up to ``end`` would make the window long."""
        window = self.window
        if end - window.floor >= MIN_EVICTION_SPAN + 4 * window.in_flight_count:
            self.set_aside_below(window.head)

    def set_aside_below(self, end: int) -> None:
        """Set the deliveries of messages below ``end`` aside; they stay in flight."""
        in_flight = self.window.in_flight_below(end)
        for seq, number in in_flight:
            client = self.clients[number]
            sent_at = client.runs.sent_at(seq)
            self.aside.take_over(self.window, seq, number, sent_at, sent_at + client.msg_timeout_s)
        # Without this record recovery would give the same result, but would have to track a long range of messages.
        self._journal.waiting(packed((seq for seq, _ in in_flight), attempts=1))
        self._schedule(self.aside.next_time)

    def copy_below(self, end: int, frames: dict[int, bytes]) -> None:
        """Copy the messages below ``end`` from the log. ``frames`` has the copies that other channels have made."""
        self.set_aside_below(end)
        copied = self.aside.frames
        for seq in self.aside.numbers():
            if seq < end and seq not in copied and (frame := self._messages.log.frame(seq)) is not None:
                self.aside.keep_frame(seq, frames.setdefault(seq, bytes(frame)))

    # -- forgetting -----------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """Forget all messages that are set aside or in flight. The cursor clears the window."""
        self.aside.clear()
        self.failed.clear()
        for client in self.clients.values():
            client.in_flight_count = 0
            client.runs.clear()

    def move_back(self, seq: int) -> None:
        """Forget the deliveries of the messages from ``seq`` on; earlier ones are set aside and stay in flight.

        Set-aside messages from ``seq`` on are forgotten too, except those that cursors skip. The cursor clears the
        window.
        """
        self.set_aside_below(seq)
        for _, number in self.window.in_flight_below(self.window.head):
            self.clients[number].in_flight_count -= 1
        for client in self.clients.values():
            client.runs.clear()
        skipped = self._messages.skipped
        again = [at for at in self.aside.numbers() if at >= seq and at not in skipped]
        for number, count in self.aside.drop(again):
            self.clients[number].in_flight_count -= count
        self._forget_failures(again)
