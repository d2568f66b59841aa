"""Delivers a channel's messages to its clients: new ones through the cursor, and requeued ones."""

from __future__ import annotations

import logging
import random
from collections import deque
from typing import TYPE_CHECKING

from brokerd.lives import What
from brokerd.topology import Locality
from nsqwire.units import Seconds

if TYPE_CHECKING:
    from brokerd.channel_journal import ChannelJournal
    from brokerd.client import Client
    from brokerd.cursor import Cursor
    from brokerd.in_flight import InFlight
    from brokerd.kernel.aside import Place
    from brokerd.runtime import Runtime
    from brokerd.sampled_lives import SampledLives
    from brokerd.topic_log import TopicLog


OUTBOX_BYTES = 256 * 1024
"""Bytes collected before they are sent. The limit is low, because only sending shows if a connection accepts more."""

logger = logging.getLogger("brokerd")


class Outbox:
    """The frames of a channel's messages that are in flight but not sent yet, in order."""

    def __init__(self) -> None:
        self.nbytes = 0
        self._frames: list[tuple[Client, bytes | memoryview]] = []

    def __bool__(self) -> bool:
        return bool(self._frames)

    @property
    def room(self) -> int:
        """Bytes that may be added before a flush; at least 1, because an empty outbox takes a frame of any size."""
        return max(1, OUTBOX_BYTES - self.nbytes)

    @property
    def is_full(self) -> bool:
        """True if it must be flushed."""
        return self.nbytes >= OUTBOX_BYTES

    def add(self, client: Client, frames: bytes | memoryview) -> None:
        """Add ``frames`` for ``client``."""
        self._frames.append((client, frames))
        self.nbytes += len(frames)

    def flush(self) -> None:
        """Send all frames. If sending to a client fails it is disconnected, which requeues its messages."""
        frames, self._frames, self.nbytes = self._frames, [], 0
        for client, data in frames:
            try:
                client.send(data)
            except Exception:
                logger.exception("PROTOCOL(V2): [%s] messages could not be sent", client.remote_address)
                client.blocked = True
                client.hang_up()


class Delivery:
    """The queue of ready clients of one channel, and deliveries to them. ``now`` is monotonic seconds.

    Messages are put in flight, journalled, and then sent. After a crash, attempts may therefore include a delivery that
    no client received, but never miss one that a client received. After an exception every ready client is still
    queued, and every message is either in flight with a client or waiting.
    """

    def __init__(
        self,
        messages: TopicLog,
        cursor: Cursor,
        in_flight: InFlight,
        journal: ChannelJournal,
        runtime: Runtime,
        lives: SampledLives,
    ) -> None:
        self._messages = messages
        self._cursor = cursor
        self._in_flight = in_flight
        self._aside = in_flight.aside
        self._journal = journal
        self._runtime = runtime
        self._lives = lives
        self._ready: deque[Client] = deque()
        self._outbox = Outbox()
        self._journalled_head = in_flight.window.head
        self._requeued_next = False
        self.zone_local_msg_count = self.region_local_msg_count = self.global_msg_count = 0

    def moved(self) -> None:
        """Record that the cursor was moved. The caller has journalled the move."""
        self._journalled_head = self._in_flight.window.head

    @property
    def has_ready_client(self) -> bool:
        """True if some client waits for messages."""
        return bool(self._ready)

    def enqueue(self, client: Client) -> bool:
        """Queue a client that can take messages. False if it is already queued or can take none."""
        if client.is_waiting or client.free <= 0:
            return False
        client.is_waiting = True
        self._ready.append(client)
        return True

    def remove(self, client: Client) -> None:
        """Remove a client from the queue."""
        if client.is_waiting:
            client.is_waiting = False
            self._ready.remove(client)

    def run(self, now: Seconds) -> bool:
        """Deliver waiting messages to the ready clients in turn, in even shares.

        False if the slice of time ended before all were delivered.
        """
        ready, cursor, aside = self._ready, self._cursor, self._aside
        topology, scheduler = self._runtime.topology, self._runtime.scheduler
        deadline = scheduler.deadline()
        try:
            backlog = cursor.backlog
            while ready and (backlog or aside.requeued_count):
                client, rivals = topology.take_next(ready)
                client.is_waiting = False
                if client.free > 0:
                    share = min(client.free, -(-(backlog + aside.requeued_count) // (rivals + 1)))
                    try:
                        self._serve(client, share, backlog, now)
                    finally:
                        self.enqueue(client)
                    backlog = cursor.backlog
                    if scheduler.clock() >= deadline:
                        return not ready
            if not backlog:
                cursor.skip_ranges()
        finally:
            self._flush()
        return True

    def _serve(self, client: Client, share: int, backlog: int, now: Seconds) -> None:
        """Deliver up to ``share`` messages to one client: requeued or new ones in turn, so that neither starves."""
        aside, outbox = self._aside, self._outbox
        self._requeued_next = not self._requeued_next
        if aside.requeued_count and (self._requeued_next or not backlog):
            while share > 0 and not outbox.is_full and aside.requeued_count:
                share -= self._deliver_again(client, share, now)
        else:
            self._deliver_fresh(client, share, now)
            self._in_flight.evict()
        if outbox.is_full:
            self._flush()

    def _flush(self) -> None:
        """Journal the deliveries since the last flush, then send them."""
        head = self._in_flight.window.head
        if head != self._journalled_head:
            self._journal.delivered(head)
            self._journalled_head = head
        if self._outbox:
            self._outbox.flush()

    def _deliver_fresh(self, client: Client, limit: int, now: Seconds) -> None:
        run = self._cursor.next_run(limit, self._outbox.room, client.number, opens_headers=client.takes_headers)
        if run is None:
            return
        self._in_flight.delivered(client, run.first, run.end, now)
        self._count(client, run.end - run.first)
        if client.sample_rate:
            self._add_sample(client, run.frames, run.first)
            return
        if self._lives.every:
            self._lives.record(What.DELIVERED, self._lives.numbers(run.first, run.end), by=client, attempts=1)
        if client.takes_headers:
            self._send(client, run.frames)
        else:
            self._outbox.add(client, run.frames)

    def _send(self, client: Client, frames: bytes | memoryview) -> None:
        self._outbox.add(client, self._messages.with_headers(frames) if client.takes_headers else frames)

    def _deliver_again(self, client: Client, limit: int, now: Seconds) -> int:
        """Deliver up to ``limit`` requeued messages. Returns how many were delivered or lost, at least one."""
        place_of = self._place_with_headers_of if client.takes_headers else self._place_of
        frames, count, unreadable = self._in_flight.redeliver(client, place_of, limit, self._outbox.room, now)
        if not count:
            self._messages.lose_batch_of(unreadable)
            self._aside.drop_next()
            self._in_flight.failed.pop(unreadable, None)
            self._journal.finished([(unreadable, 1)])
            return 1
        self._count(client, count)
        self._send(client, frames)
        return count

    def _place_with_headers_of(self, seq: int) -> Place | None:
        """As _place_of. Raises OSError if the headers cannot be opened, before the message is in flight."""
        if self._messages.log.contains(seq):
            self._messages.log.segment_of(seq).open_headers()
        return self._place_of(seq)

    def _place_of(self, seq: int) -> Place | None:
        found = self._messages.place_of(seq)
        if found is None:
            return None
        segment, start, end = found
        commits = segment.commits
        return segment.map, commits.records, len(commits), start, end

    def _count(self, client: Client, count: int) -> None:
        if client.locality is Locality.GLOBAL:
            self.global_msg_count += count
        elif client.locality is Locality.REGION:
            self.region_local_msg_count += count
        else:
            self.zone_local_msg_count += count

    def _add_sample(self, client: Client, frames: memoryview, first: int) -> None:
        """Send about ``sample_rate`` + 1 percent of the frames, as nsqd does; the others count as finished."""
        at, seq = 0, first
        while at < len(frames):
            size = 4 + int.from_bytes(frames[at : at + 4])
            if random.randrange(100) > client.sample_rate:
                self._in_flight.finish_unsent(client, seq)
            else:
                self._send(client, frames[at : at + size])
                if self._lives.every:
                    self._lives.record(What.DELIVERED, self._lives.of((seq,)), by=client, attempts=1)
            at += size
            seq += 1
