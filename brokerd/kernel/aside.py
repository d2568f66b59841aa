"""The plain twin of ``SetAside``: the messages of one channel that are deferred, or need more than one delivery.

Times are monotonic seconds; ``due_ns`` is a due time as the journal stores it (:mod:`brokerd.clock`). Methods return
"ranges" to journal: packed :data:`brokerd.kernel.waiting.WAITING_RANGE`. They have no requeued messages: after a crash,
recovery requeues all messages that were in flight, with the same attempts.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import NamedTuple

from brokerd.kernel.commit import FIELDS, RECORD_BYTES
from brokerd.kernel.frames import Buffer, Window, seq_of
from brokerd.kernel.runs import NEVER, Runs
from brokerd.kernel.waiting import WAITING_RANGE
from nsqwire.units import Seconds

REQUEUED, IN_FLIGHT, DEFERRED = range(1, 4)
"""States of a set-aside message: ready, in flight, not due yet."""
NOBODY = -1

Failures = list[tuple[bytes, bool]]
"""Ids of messages that are not in flight with the client; True for those that are with another one."""


Place = tuple[Buffer, Buffer, int, int, int]
"""A segment: its log, its commit records and their number, and a range ``[start, end)`` of its undamaged messages."""
PlaceOf = Callable[[int], Place | None]
"""Returns the place of a message; None if it is damaged or missing. Raises OSError if its segment cannot be mapped."""

MAX_AT_ONCE = 4096
"""Maximum number of messages that one call delivers."""
MAX_PLACES = 16
"""Maximum number of ranges in segments that one call reads."""


def find_batch(index: Buffer, batches: int, seq: int) -> int:
    """The position of the first of ``batches`` commit records whose batch ends above message ``seq``."""
    low, high = 0, batches
    while low < high:
        middle = (low + high) // 2
        first_seq, _, _, _, messages, _, _ = FIELDS.unpack_from(index, middle * RECORD_BYTES)
        if first_seq + messages <= seq:
            low = middle + 1
        else:
            high = middle
    return low


class AsideMessage(NamedTuple):
    """``when`` is the deadline of a message in flight with ``client``, or the due time of a deferred one; else 0."""

    state: int
    attempts: int
    client: int
    sent_at: Seconds
    when: Seconds


class _Message:
    __slots__ = ("attempts", "client", "sent_at", "seq", "state", "timestamp", "when")

    def __init__(self, seq: int, attempts: int) -> None:
        self.seq = seq
        self.attempts = attempts
        self.state = 0
        self.client = NOBODY
        self.sent_at = self.when = 0.0
        self.timestamp = 0


class _Ranges:
    """Collects messages as ranges of consecutive numbers with equal attempts."""

    def __init__(self, due_ns: int = 0) -> None:
        self.due_ns = due_ns
        self._ranges: list[tuple[int, int, int]] = []

    def add(self, seq: int, attempts: int) -> None:
        if self._ranges:
            first, count, same = self._ranges[-1]
            if first + count == seq and same == attempts:
                self._ranges[-1] = first, count + 1, same
                return
        self._ranges.append((seq, 1, attempts))

    def packed(self) -> bytes:
        return b"".join(WAITING_RANGE.pack(*each, self.due_ns) for each in self._ranges)


def _ids(lines: Buffer, count: int, id_at: int) -> list[bytes]:
    """The 16 bytes at ``id_at`` of each of ``count`` lines of the same length."""
    length = len(lines) // count
    return [bytes(lines[at : at + 16]) for at in range(id_at, length * count, length)]


class SetAside:
    """The set-aside messages of one channel, by sequence number; messages in their first delivery are in its Window.

    ``frames`` has copies of messages that are no longer in the log, as at first delivery.
    """

    def __init__(self) -> None:
        self.frames: dict[int, bytes] = {}
        self._messages: dict[int, _Message] = {}
        self._requeued: dict[int, None] = {}  # in the order of delivery

    def __len__(self) -> int:
        return len(self._messages)

    def __contains__(self, seq: int) -> bool:
        return seq in self._messages

    def _count(self, state: int) -> int:
        return sum(message.state == state for message in self._messages.values())

    @property
    def requeued_count(self) -> int:
        """Number of messages that wait for delivery."""
        return self._count(REQUEUED)

    @property
    def in_flight_count(self) -> int:
        """Number of messages in flight."""
        return self._count(IN_FLIGHT)

    @property
    def deferred_count(self) -> int:
        """Number of messages that are not due yet."""
        return self._count(DEFERRED)

    # -- setting aside --------------------------------------------------------------------------------------------

    def add(self, seq: int, attempts: int, due: Seconds) -> None:
        """Set aside a new message: deferred until ``due``, or requeued if that is 0."""
        message = self._messages[seq] = _Message(seq, attempts)
        self._put(message, due)

    def defer(self, first: int, delays: bytes, now: Seconds, clock_offset_ns: int) -> bytes:
        """Set aside the undelivered messages from ``first`` on, except those set aside already.

        ``delays`` has the milliseconds from ``now`` until each is due, ``u32`` in the machine's byte order.
        """
        packed, ranges = list[bytes](), _Ranges()
        for seq, delay_ms in enumerate(memoryview(delays).cast("I"), first):
            if seq not in self._messages:
                due = now + delay_ms / 1000.0
                self.add(seq, 0, due)
                due_ns = int(due * 1e9) + clock_offset_ns
                if due_ns != ranges.due_ns:
                    packed.append(ranges.packed())
                    ranges = _Ranges(due_ns)
                ranges.add(seq, 0)
        return b"".join([*packed, ranges.packed()])

    def take_over(self, window: Window, seq: int, client: int, sent_at: Seconds, deadline: Seconds) -> None:
        """Set aside a message that ``window`` has in flight with ``client``; it stays in flight."""
        message = self._from_window(window, seq, client)
        assert message is not None
        self._put_in_flight(message, client, sent_at, deadline)

    def requeue_run(self, window: Window, first: int, end: int, client: int) -> int:
        """Requeue the messages in ``[first, end)`` that ``window`` has in flight with ``client``; return the count."""
        taken = [self._from_window(window, seq, client) for seq in range(max(first, window.floor), end)]
        found = [message for message in taken if message is not None]
        for message in found:
            self._put(message, 0.0)
        return len(found)

    def _from_window(self, window: Window, seq: int, client: int) -> _Message | None:
        timestamp = window.pop(seq, client)
        if timestamp is None:
            return None
        message = self._messages[seq] = _Message(seq, 1)
        message.timestamp = timestamp
        return message

    def _put(self, message: _Message, due: Seconds) -> None:
        message.client, message.sent_at, message.when = NOBODY, 0.0, due
        message.state = DEFERRED if due else REQUEUED
        if not due:
            self._requeued[message.seq] = None

    def _put_in_flight(self, message: _Message, client: int, sent_at: Seconds, deadline: Seconds) -> None:
        message.state = IN_FLIGHT
        message.client, message.sent_at, message.when = client, sent_at, deadline

    # -- REQ, TOUCH, FIN ------------------------------------------------------------------------------------------

    def requeue(
        self,
        window: Window,
        lines: Buffer,
        count: int,
        id_at: int,
        id_head: bytes,
        client: int,
        due: Seconds,
        due_ns: int,
    ) -> tuple[int, bytes, Failures]:
        """Execute ``count`` REQ lines of ``client``, all of the same length, with the id at ``id_at``.

        The messages are requeued, or deferred if ``due`` is not 0. Returns their number, ranges and failures.
        """
        ranges, failures, taken = _Ranges(due_ns), Failures(), 0
        for message_id in _ids(lines, count, id_at):
            seq = seq_of(message_id, id_head, window.head)
            message = None if seq is None else self._from_window(window, seq, client) or self._with_client(seq, client)
            if message is None:
                failures.append((message_id, self._is_in_flight(window, seq)))
                continue
            self._put(message, due)
            taken += 1
            if due:
                ranges.add(message.seq, message.attempts)
        return taken, ranges.packed(), failures

    def touch(
        self,
        window: Window,
        runs: Runs,
        lines: Buffer,
        count: int,
        id_at: int,
        id_head: bytes,
        client: int,
        deadline: Seconds,
        max_timeout_s: float,
    ) -> Failures:
        """Execute ``count`` TOUCH lines of ``client``, as ``requeue`` does.

        The messages time out at ``deadline``, but no later than ``max_timeout_s`` after they were sent. ``runs`` has
        the send times of those not set aside yet.
        """
        failures = Failures()
        for message_id in _ids(lines, count, id_at):
            seq = seq_of(message_id, id_head, window.head)
            message = None if seq is None else self._from_window(window, seq, client) or self._with_client(seq, client)
            if message is None:
                failures.append((message_id, self._is_in_flight(window, seq)))
                continue
            sent_at = message.sent_at if message.state == IN_FLIGHT else runs.sent_at(message.seq)
            self._put_in_flight(message, client, sent_at, min(deadline, sent_at + max_timeout_s))
        return failures

    def finish(
        self, window: Window, ids: list[bytes], id_head: bytes, client: int, now_ns: int
    ) -> tuple[list[tuple[int, int]], Failures]:
        """Forget the messages of ``ids`` that are set aside and in flight with ``client``.

        Returns the finished ranges ``(first seq, count)``, in the order of the ids, and failures. Latencies are
        recorded in ``window``.
        """
        finished: list[tuple[int, int]] = []
        failures = Failures()
        for message_id in ids:
            seq = seq_of(message_id, id_head, window.head)
            message = None if seq is None else self._with_client(seq, client)
            if message is None:
                failures.append((message_id, self._is_in_flight(window, seq)))
                continue
            window.record(now_ns - message.timestamp)
            self._forget(message.seq)
            if finished and sum(finished[-1]) == message.seq:
                finished[-1] = finished[-1][0], finished[-1][1] + 1
            else:
                finished.append((message.seq, 1))
        return finished, failures

    def leave(self, client: int) -> int:
        """Requeue the set-aside messages in flight with a client that left, in order of seq. Returns their number."""
        held = sorted(seq for seq, message in self._messages.items() if message.client == client)
        for seq in held:
            self._put(self._messages[seq], 0.0)
        return len(held)

    def _with_client(self, seq: int | None, client: int) -> _Message | None:
        message = None if seq is None else self._messages.get(seq)
        return message if message is not None and message.client == client else None

    def _is_in_flight(self, window: Window, seq: int | None) -> bool:
        if seq is None:
            return False
        message = self._messages.get(seq)
        return window.client_of(seq) >= 0 or (message is not None and message.state == IN_FLIGHT)

    def _forget(self, seq: int) -> None:
        del self._messages[seq]
        self._requeued.pop(seq, None)
        self.frames.pop(seq, None)

    # -- delivery -------------------------------------------------------------------------------------------------

    def deliver_copy(self, frame: Buffer, client: int, sent_at: Seconds, deadline: Seconds) -> tuple[bytes, bytes]:
        """Put the next requeued message in flight. ``frame`` is that of its first delivery.

        Returns the frame with the new attempts, and the ranges.
        """
        seq = next(iter(self._requeued))
        message = self._messages[seq]
        message.attempts = (message.attempts + 1) & 0xFFFF
        message.timestamp = int.from_bytes(frame[8:16], signed=True)
        del self._requeued[seq]
        self._put_in_flight(message, client, sent_at, deadline)
        ranges = _Ranges()
        ranges.add(seq, message.attempts)
        return bytes(frame[:16]) + message.attempts.to_bytes(2) + bytes(frame[18:]), ranges.packed()

    def deliver_from(
        self, place_of: PlaceOf, limit: int, max_bytes: int, client: int, sent_at: Seconds, deadline: Seconds
    ) -> tuple[bytes, int, bytes]:
        """Put the next requeued messages in flight, up to ``limit``, from anywhere in the topic's segments.

        Delivers at most ``max_bytes`` bytes, unless the first message is longer. Stops, possibly before the first one,
        at a message that has a copy, that ``place_of`` does not find, or that would need more than MAX_PLACES places.
        An OSError of ``place_of`` is raised, with nothing changed, if nothing was delivered yet; otherwise it ends the
        delivery. Returns the frames with the new attempts, the number of messages, and their ranges.
        """
        everything, delivered, ranges = bytearray(), 0, _Ranges()
        places: list[Place] = []
        for seq in list(self._requeued)[: min(limit, MAX_AT_ONCE)]:
            if seq in self.frames:
                break
            place = next((each for each in places if each[3] <= seq < each[4]), None)
            if place is None:
                try:
                    place = place_of(seq)
                except OSError:
                    if not delivered:
                        raise
                    break
                if place is None or len(places) == MAX_PLACES:
                    break
                places.append(place)
            log, index, batches, _, _ = place
            position = find_batch(index, batches, seq)
            if position == batches:
                break
            walked, end, _, _, _, _, length = FIELDS.unpack_from(index, position * RECORD_BYTES)
            if seq < walked:
                break
            offset = end - length
            for _ in range(seq - walked):
                offset += 4 + int.from_bytes(log[offset : offset + 4])
            size = 4 + int.from_bytes(log[offset : offset + 4])
            if delivered and len(everything) + size > max_bytes:
                break
            frame, _ = self.deliver_copy(log[offset : offset + size], client, sent_at, deadline)
            everything += frame
            ranges.add(seq, self._messages[seq].attempts)
            delivered += 1
        return bytes(everything), delivered, ranges.packed()

    def drop_next(self) -> None:
        """Forget the next requeued message."""
        self._forget(next(iter(self._requeued)))

    # -- times ----------------------------------------------------------------------------------------------------

    def expire(
        self, now: Seconds, limit: int, timed_out: list[tuple[int, int]] | None = None
    ) -> tuple[list[tuple[int, int]], int, bytes]:
        """Requeue up to ``limit`` messages that timed out or became due by ``now``, the earliest first.

        Returns ``(client, count)`` of those that timed out, in any order; the number of all; and the ranges of those
        that became due. Appends ``(client, seq)`` of each message that timed out to ``timed_out``.
        """
        ranges, clients = _Ranges(), dict[int, int]()
        timed = [(each.when, each.seq) for each in self._messages.values() if each.state != REQUEUED]
        expired = [seq for when, seq in heapq.nsmallest(limit, timed) if when <= now]
        for seq in expired:
            message = self._messages[seq]
            if message.state == IN_FLIGHT:
                clients[message.client] = clients.get(message.client, 0) + 1
                if timed_out is not None:
                    timed_out.append((message.client, seq))
            else:
                ranges.add(seq, message.attempts)
            self._put(message, 0.0)
        return list(clients.items()), len(expired), ranges.packed()

    @property
    def next_time(self) -> Seconds:
        """When the next message times out or becomes due; infinity if there is none."""
        return min((each.when for each in self._messages.values() if each.state != REQUEUED), default=NEVER)

    # -- removal and queries --------------------------------------------------------------------------------------

    def drop(self, seqs: Iterable[int]) -> list[tuple[int, int]]:
        """Forget the messages ``seqs``. Returns ``(client, count)`` of those that were in flight, in any order."""
        clients: dict[int, int] = {}
        for seq in seqs:
            message = self._messages[seq]
            if message.state == IN_FLIGHT:
                clients[message.client] = clients.get(message.client, 0) + 1
            self._forget(seq)
        return list(clients.items())

    def clear(self) -> None:
        """Forget all messages."""
        self._messages.clear()
        self._requeued.clear()
        self.frames.clear()

    def keep_frame(self, seq: int, frame: bytes) -> None:
        """Keep a copy of the frame of a set-aside message, which then no longer needs the log."""
        assert seq in self._messages
        self.frames[seq] = frame

    def get(self, seq: int) -> AsideMessage | None:
        """The message with this number; None if it is not set aside."""
        message = self._messages.get(seq)
        if message is None:
            return None
        return AsideMessage(message.state, message.attempts, message.client, message.sent_at, message.when)

    def numbers(self) -> list[int]:
        """The numbers of all messages, in no order."""
        return list(self._messages)

    def numbers_from(self, seq: int, count: int) -> list[int]:
        """The ``count`` lowest numbers from ``seq`` on, ascending."""
        return heapq.nsmallest(count, (each for each in self._messages if each >= seq))

    def requeued(self, offset: int, count: int) -> list[int]:
        """``count`` requeued messages after the first ``offset``, in the order of delivery."""
        return list(self._requeued)[offset : offset + count]

    def lowest_requeued(self, end: int, count: int) -> list[int]:
        """The ``count`` lowest requeued messages below ``end``, ascending."""
        return heapq.nsmallest(count, (seq for seq in self._requeued if seq < end))

    def in_flight(self) -> list[int]:
        """The messages in flight, in no order."""
        return [seq for seq, message in self._messages.items() if message.state == IN_FLIGHT]

    def deferred(self, count: int) -> list[int]:
        """The ``count`` deferred messages that are due next, in the order of their due times."""
        due = [(message.when, seq) for seq, message in self._messages.items() if message.state == DEFERRED]
        return [seq for _, seq in heapq.nsmallest(count, due)]

    @property
    def lowest(self) -> int | None:
        """The lowest message without a copy in ``frames``, which is needed from the log; None if there is none."""
        return min(self._messages.keys() - self.frames.keys(), default=None)

    @property
    def lowest_undeferred(self) -> int | None:
        """The lowest message that is not deferred; None if there is none."""
        return min((seq for seq, each in self._messages.items() if each.state != DEFERRED), default=None)

    def packed(self, clock_offset_ns: int) -> bytes:
        """All messages, in no order, for a checkpoint: packed WAITING_RANGE.

        Due times in seconds become nanoseconds plus ``clock_offset_ns``.
        """
        return b"".join(
            WAITING_RANGE.pack(
                each.seq, 1, each.attempts, int(each.when * 1e9) + clock_offset_ns if each.state == DEFERRED else 0
            )
            for each in self._messages.values()
        )
