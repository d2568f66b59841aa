"""Delivers a channel's messages to its clients: new ones from the cursor, requeued ones from those set aside."""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING

from brokerd.journal import records
from brokerd.outbox import Outbox
from brokerd.topology import Locality

if TYPE_CHECKING:
    from brokerd.channel import Channel
    from brokerd.client import Client


class Delivery:
    """The queue of ready clients of one channel, and deliveries to them. ``now`` is monotonic seconds.

    Messages are put in flight, journalled, and then sent, in this order: after a crash an attempt may count that no
    client saw, but none that a client saw is missing. After an exception every ready client is still queued, and every
    message is either in flight with a client or waiting.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._ready: deque[Client] = deque()
        self._outbox = Outbox()
        self._journalled_head = channel.window.head
        self._requeued_next = False
        self.zone_local_msg_count = self.region_local_msg_count = self.global_msg_count = 0

    def moved(self) -> None:
        """Note that the cursor was moved and that the journal has a record of it."""
        self._journalled_head = self._channel.window.head

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

    def run(self, now: float) -> bool:
        """Deliver waiting messages to the ready clients in turn, in even shares.

        False if the slice of time ended before all were delivered.
        """
        channel, ready = self._channel, self._ready
        topology, scheduler = channel.topic.topology, channel.topic.scheduler
        deadline = scheduler.deadline()
        try:
            while ready and ((backlog := channel.cursor.backlog) or channel.aside.requeued_count):
                client, rivals = topology.take_next(ready)
                client.is_waiting = False
                if client.free > 0:
                    share = min(client.free, -(-(backlog + channel.aside.requeued_count) // (rivals + 1)))
                    try:
                        self._serve(client, share, backlog, now)
                    finally:
                        self.enqueue(client)
                    if scheduler.clock() >= deadline:
                        return not ready
            if not channel.cursor.backlog:
                channel.cursor.step_over_skips()
        finally:
            self._flush()
        return True

    def _serve(self, client: Client, share: int, backlog: int, now: float) -> None:
        """Deliver a share to one client: requeued messages and new ones by turns, so that neither starves."""
        aside, outbox = self._channel.aside, self._outbox
        self._requeued_next = not self._requeued_next
        if aside.requeued_count and (self._requeued_next or not backlog):
            while share > 0 and aside.requeued_count and not outbox.is_full:
                share -= self._deliver_again(client, share, now)
        else:
            self._deliver_fresh(client, share, now)
            self._channel.evict()
        if outbox.is_full:
            self._flush()

    def _flush(self) -> None:
        """Journal the deliveries since the last flush, then send them."""
        head = self._channel.window.head
        if head != self._journalled_head:
            self._channel.journal(records.delivered(self._channel.number, head))
            self._journalled_head = head
        if self._outbox:
            self._outbox.flush()

    def _deliver_fresh(self, client: Client, limit: int, now: float) -> None:
        channel = self._channel
        run = channel.cursor.next_run(limit, self._outbox.room, client.number)
        if run is None:
            return
        deadline = now + client.msg_timeout
        self._count(client, run.end - run.first)
        client.runs.add(run.first, run.end, now, deadline, channel.window.floor)
        channel.topic.timers.schedule(channel, deadline)
        if client.sample_rate:
            self._add_sample(client, run.frames, run.first)
        else:
            self._outbox.add(client, run.frames)

    def _deliver_again(self, client: Client, limit: int, now: float) -> int:
        """Deliver up to ``limit`` requeued messages from one segment. Returns how many were delivered or lost."""
        channel, aside = self._channel, self._channel.aside
        room, number, deadline = self._outbox.room, client.number, now + client.msg_timeout
        first, _ = aside.next_run(1)
        copy = aside.frames.get(first)
        if copy is not None:
            frames, count, ranges = aside.deliver(copy, 0, 1, room, number, now, deadline)
        elif (place := channel.topic.place_of(first)) is not None:
            segment, start, end = place
            log, commits = segment.map, segment.commits
            frames, count, ranges = aside.deliver_from(
                log, commits.records, len(commits), start, end, limit, room, number, now, deadline
            )
        else:
            count = 0
        if not count:  # damaged or missing
            channel.topic.lose_batch_of(first)
            aside.drop_next()
            channel.journal(records.finished(channel.number, [(first, 1)]))
            return 1
        self._count(client, count)
        channel.journal_waiting(ranges)
        channel.topic.timers.schedule(channel, deadline)
        self._outbox.add(client, frames)
        return count

    def _count(self, client: Client, count: int) -> None:
        client.in_flight_count += count
        client.message_count += count
        if client.locality is Locality.GLOBAL:
            self.global_msg_count += count
        elif client.locality is Locality.REGION:
            self.region_local_msg_count += count
        else:
            self.zone_local_msg_count += count

    def _add_sample(self, client: Client, frames: memoryview, first: int) -> None:
        """Send about ``sample_rate`` + 1 percent of the frames, as nsqd does; the others count as finished."""
        channel, at, seq = self._channel, 0, first
        while at < len(frames):
            size = 4 + int.from_bytes(frames[at : at + 4])
            if random.randrange(100) > client.sample_rate:
                channel.window.take(seq, 1, client.number)
                client.in_flight_count -= 1
                client.message_count -= 1
                channel.journal(records.finished(channel.number, [(seq, 1)]))
            else:
                self._outbox.add(client, frames[at : at + size])
            at += size
            seq += 1
