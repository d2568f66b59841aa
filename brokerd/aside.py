"""What a channel has set aside: messages that were delivered before, or are not due yet."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Set
from typing import TYPE_CHECKING

from brokerd.timers import NEVER

if TYPE_CHECKING:
    from brokerd.client import Client

SLACK = 64
"""A heap is cleared of what is over once it is longer than this and four times what it is for."""


class Aside:
    """A message that was set aside.

    In flight if it has a ``client`` (until ``deadline``, sent at ``sent_at``), deferred if it has a ``due`` time, else
    waiting for delivery. Times are monotonic seconds. ``frame`` is its frame as at first delivery, where the log no
    longer holds it.
    """

    __slots__ = ("attempts", "client", "deadline", "due", "frame", "sent_at")

    def __init__(self, attempts: int) -> None:
        self.attempts = attempts
        self.client: Client | None = None
        self.sent_at = 0.0
        self.deadline = 0.0
        self.due = 0.0
        self.frame: bytes | None = None


class SetAside:
    """The set-aside messages of one channel, by sequence number.

    It keeps their books. What clients, timers and the journal are to hear of it is for the channel to tell.
    """

    def __init__(self) -> None:
        self.requeued: deque[int] = deque()
        """Those that wait for delivery, in the order of their turns."""
        self.in_flight_count = 0
        self.deferred_count = 0
        self._entries: dict[int, Aside] = {}
        self._due: list[tuple[float, int]] = []
        self._deadlines: list[tuple[float, int]] = []
        self._lowest: list[int] = []
        self._lowest_owed: list[int] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, seq: int) -> bool:
        return seq in self._entries

    def __getitem__(self, seq: int) -> Aside:
        return self._entries[seq]

    def get(self, seq: int) -> Aside | None:
        """The message of this number, if it is here."""
        return self._entries.get(seq)

    def items(self) -> Iterator[tuple[int, Aside]]:
        """All of them, in no order."""
        return iter(self._entries.items())

    def add(self, seq: int, attempts: int) -> Aside:
        """Set a message aside; where it goes next is the caller's next word."""
        for heap in (self._lowest, self._lowest_owed):
            if len(heap) > SLACK + 4 * len(self._entries):
                heap[:] = sorted(set(heap) & self._entries.keys())
        entry = self._entries[seq] = Aside(attempts)
        heapq.heappush(self._lowest, seq)
        heapq.heappush(self._lowest_owed, seq)
        return entry

    def remove(self, seq: int) -> None:
        """It is finished. It must not be in flight any more."""
        del self._entries[seq]

    def drop(self, seqs: Set[int]) -> None:
        """Forget these, which must not be in flight any more."""
        for seq in seqs:
            if self._entries.pop(seq).due:
                self.deferred_count -= 1
        self.requeued = deque(seq for seq in self.requeued if seq not in seqs)

    def clear(self) -> None:
        """Forget all of them."""
        self._entries.clear()
        self.in_flight_count = self.deferred_count = 0
        for queue in (self.requeued, self._due, self._deadlines, self._lowest, self._lowest_owed):
            queue.clear()

    # -- from one state to another --------------------------------------------------------------------------------

    def requeue(self, seq: int, entry: Aside) -> None:
        """Let it wait for delivery."""
        entry.due = entry.sent_at = 0.0
        self.requeued.append(seq)

    def defer(self, seq: int, entry: Aside, due: float) -> None:
        """Let it wait until ``due``."""
        entry.due, entry.sent_at = due, 0.0
        self.deferred_count += 1
        heapq.heappush(self._due, (due, seq))

    def put_in_flight(self, seq: int, entry: Aside, client: Client, sent_at: float, deadline: float) -> None:
        """It is with ``client`` until ``deadline``."""
        entry.client, entry.sent_at, entry.deadline = client, sent_at, deadline
        client.held.add(seq)
        self.in_flight_count += 1
        if len(self._deadlines) > SLACK + 4 * self.in_flight_count:  # each TOUCH leaves one behind
            self._deadlines = [(each.deadline, at) for at, each in self._entries.items() if each.client is not None]
            heapq.heapify(self._deadlines)
        else:
            heapq.heappush(self._deadlines, (deadline, seq))

    def release(self, seq: int, entry: Aside, client: Client) -> None:
        """It is no longer in flight with ``client``."""
        entry.client = None
        client.held.discard(seq)
        client.in_flight_count -= 1
        self.in_flight_count -= 1

    # -- times ----------------------------------------------------------------------------------------------------

    def timed_out(self, now: float) -> Iterator[tuple[int, Aside, Client]]:
        """Those that were in flight with a client beyond their deadline; each must be put elsewhere at once."""
        while self._deadlines and self._deadlines[0][0] <= now:
            deadline, seq = heapq.heappop(self._deadlines)
            entry = self._entries.get(seq)
            if entry is not None and entry.client is not None and entry.deadline == deadline:
                yield seq, entry, entry.client

    def fallen_due(self, now: float) -> Iterator[tuple[int, Aside]]:
        """Those whose due time has come; each must be put elsewhere at once."""
        while self._due and self._due[0][0] <= now:
            due, seq = heapq.heappop(self._due)
            entry = self._entries.get(seq)
            if entry is not None and entry.due == due:
                self.deferred_count -= 1
                heapq.heappush(self._lowest_owed, seq)
                yield seq, entry

    @property
    def next_time(self) -> float:
        """When something times out or falls due next."""
        return min((queue[0][0] for queue in (self._due, self._deadlines) if queue), default=NEVER)

    # -- looking --------------------------------------------------------------------------------------------------

    @property
    def lowest(self) -> int | None:
        """The lowest number that is needed from the log."""
        lowest = self._lowest
        while lowest and ((entry := self._entries.get(lowest[0])) is None or entry.frame is not None):
            heapq.heappop(lowest)
        return lowest[0] if lowest else None

    @property
    def lowest_owed(self) -> int | None:
        """The lowest number that is owed an answer; deferred ones are not yet."""
        owed = self._lowest_owed
        while owed and ((entry := self._entries.get(owed[0])) is None or entry.due):
            heapq.heappop(owed)
        return owed[0] if owed else None

    def in_flight(self) -> list[tuple[int, Aside]]:
        """Those that are with a client."""
        return [(seq, entry) for seq, entry in self._entries.items() if entry.client is not None]

    def deferred(self, count: int) -> list[int]:
        """The ``count`` that are due next, in the order of their times."""
        # Times that are over are still in the heap: so many more are asked for.
        stale = len(self._due) - self.deferred_count
        nearest = ((seq, due) for due, seq in heapq.nsmallest(count + stale, self._due))
        return [seq for seq, due in nearest if seq in self._entries and self._entries[seq].due == due][:count]
