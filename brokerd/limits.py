"""The limits of the messages that wait in a channel: their age, their number, and their size."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Final

from brokerd.channel_journal import ChannelJournal, ranges_of
from brokerd.cursor import Cursor
from brokerd.dead import Reason
from brokerd.in_flight import InFlight
from brokerd.lives import What
from brokerd.policy import DEAD
from brokerd.redelivery import Redelivery
from nsqwire.frame import MESSAGE_HEAD_BYTES
from nsqwire.units import Nanoseconds, Seconds

if TYPE_CHECKING:
    from brokerd.policy import Policy
    from brokerd.runtime import Runtime
    from brokerd.sampled_lives import SampledLives
    from brokerd.topic_log import TopicLog

REMOVED_AT_ONCE: Final = 1000
"""Messages that are removed between two reads of the clock."""
RESOLUTION_S: Final = 0.001
"""Resolution of the timers. A message may expire later by as much."""


class Limits:
    """Removes messages from one channel that have waited too long, or that are too many.

    Messages that are waiting are those ahead of the cursor, and requeued ones. Those in flight or deferred are not
    removed before they wait again. ``published_ns(seq)`` is when a message was accepted; None if it cannot be read.
    ``schedule(when)`` schedules the channel's timer, monotonic seconds, and ``watch_publishes()`` has the channel
    notified of the next publish.
    """

    def __init__(
        self,
        messages: TopicLog,
        in_flight: InFlight,
        cursor: Cursor,
        redelivery: Redelivery,
        journal: ChannelJournal,
        runtime: Runtime,
        lives: SampledLives,
        *,
        published_ns: Callable[[int], Nanoseconds | None],
        schedule: Callable[[Seconds], None],
        watch_publishes: Callable[[], None],
    ) -> None:
        self.dropped: Counter[Reason] = Counter()
        """Messages that were dropped since the process started, by reason. Those that died are not included."""
        self.is_watching = False
        """True if the limits are to be checked after the next publish."""
        self._messages = messages
        self._in_flight = in_flight
        self._aside = in_flight.aside
        self._cursor = cursor
        self._redelivery = redelivery
        self._journal = journal
        self._runtime = runtime
        self._lives = lives
        self._published_ns = published_ns
        self._schedule = schedule
        self._watch_publishes = watch_publishes
        self._oldest: tuple[int, Nanoseconds | None] = -1, None
        self._young_until: Seconds = 0.0
        """Before this time no message ahead of the cursor is older than the TTL."""
        self._was_empty = False
        """True if no message waited at the last check. The next one that is published then sets the time."""

    def reset(self) -> None:
        """Check everything again: the policy was changed, or the channel has received old messages."""
        self.is_watching = False
        self._young_until = 0.0
        self._was_empty = False

    def needs_check_after_publish(self, policy: Policy) -> bool:
        """Return whether the publish that was just made needs a call of the methods below."""
        return self.is_watching and (policy.msg_ttl_ns > 0 or self._may_be_above(policy))

    def _watch(self) -> None:
        if not self.is_watching:
            self.is_watching = True
            self._watch_publishes()

    def _stop_watching(self, policy: Policy) -> None:
        if not policy.bounds_channel:
            self.is_watching = False

    # -- age ------------------------------------------------------------------------------------------------------

    def remove_expired(self, policy: Policy, now: Seconds) -> bool:
        """Remove the messages older than the TTL, for one slice of time, and schedule the next call.

        Returns False if some are left, which must not be delivered.
        """
        if now < self._young_until and not self._aside.requeued_count:
            if not self._was_empty:
                self._stop_watching(policy)
                self._schedule(self._young_until)
                return True
            if not self._cursor.backlog:
                return True
        self._was_empty = False
        scheduler = self._runtime.scheduler
        deadline = scheduler.deadline()
        latest_ns = self._runtime.clock.wall_ns(now) - policy.msg_ttl_ns
        while True:
            oldest = self._oldest_waiting()
            if oldest is None:
                self._young_until = now + policy.msg_ttl_ns / 1e9
                self._was_empty = True
                self._watch()
                return True
            published_ns = self._published_ns_of_oldest(oldest)
            if published_ns is None or published_ns > latest_ns:
                self._stop_watching(policy)
                if published_ns is None:  # damaged or missing, which its delivery finds
                    self._watch()
                else:
                    self._young_until = now + max((published_ns - latest_ns) / 1e9, RESOLUTION_S)
                    self._schedule(self._young_until)
                return True
            self._remove_older(max(oldest + 1, self._messages.log.first_since(latest_ns + 1)), latest_ns, policy)
            if scheduler.clock() >= deadline:
                return False

    def _oldest_waiting(self) -> int | None:
        """The waiting message with the lowest number; None if none waits."""
        requeued = self._aside.lowest_requeued(self._in_flight.window.head, 1)
        if requeued:
            return requeued[0]
        ahead = next(self._cursor.ahead(), None)
        requeued = self._aside.lowest_requeued(self._messages.log.next_seq, 1)  # deferred publishes that became due
        return min((seq for seq in (*requeued, ahead) if seq is not None), default=None)

    def _published_ns_of_oldest(self, seq: int) -> Nanoseconds | None:
        if self._oldest[0] != seq:  # cached, because the log may have unmapped its files
            self._oldest = seq, self._published_ns(seq)
        return self._oldest[1]

    def _remove_older(self, end: int, latest_ns: Nanoseconds, policy: Policy) -> None:
        """Remove waiting messages below ``end``, where those begin that were accepted after ``latest_ns``."""
        requeued = self._aside.lowest_requeued(end, REMOVED_AT_ONCE)
        if frames := self._aside.frames:  # these are not in the log any more, so ``end`` does not tell their age
            requeued = [seq for seq in requeued if seq not in frames or (self._published_ns(seq) or 0) <= latest_ns]
        if requeued:
            self._remove_requeued(requeued, Reason.EXPIRED, policy.expired)
        elif policy.expired == DEAD:
            self._bury_ahead(end, REMOVED_AT_ONCE, Reason.EXPIRED)
        else:
            self._skip_to(end, Reason.EXPIRED)

    # -- number and size ------------------------------------------------------------------------------------------

    def remove_excess(self, policy: Policy) -> bool:
        """Remove the oldest messages above the bounds, for one slice of time. Returns False if some are left.

        Call it after deliveries: what consumers take at once does not wait.
        """
        self._watch()
        if not self._may_be_above(policy):
            return True
        scheduler = self._runtime.scheduler
        deadline = scheduler.deadline()
        while self._remove_some(policy):
            if scheduler.clock() >= deadline:
                return False
        return True

    def _may_be_above(self, policy: Policy) -> bool:
        """Return whether the messages that wait may be above the bounds."""
        if policy.max_depth and self._cursor.backlog + self._aside.requeued_count > policy.max_depth:
            return True
        log = self._messages.log
        return 0 < policy.max_bytes < log.bytes_from_segment_of(self._in_flight.window.head)

    def _remove_some(self, policy: Policy) -> bool:
        """Remove some of the excess. Returns False if there is none."""
        backlog, log_end = self._cursor.backlog, self._messages.log.next_seq
        excess = backlog + self._aside.requeued_count - policy.max_depth if policy.max_depth else 0
        if excess > 0:
            ahead = next(self._cursor.ahead(), log_end)
            requeued = self._aside.lowest_requeued(ahead, min(excess, REMOVED_AT_ONCE))
            if requeued:
                self._remove_requeued(requeued, Reason.OVERFLOW, policy.overflow)
                return True
            next_requeued = next(iter(self._aside.lowest_requeued(log_end, 1)), self._messages.routed_end)
            excess = min(excess, self._cursor.count_below(min(next_requeued, self._messages.routed_end)))
        if policy.max_bytes:
            excess = max(excess, self._ahead_of_the_last(policy.max_bytes))
        if excess <= 0 or not backlog:
            return False
        if policy.overflow == DEAD:
            self._bury_ahead(self._messages.routed_end, min(excess, REMOVED_AT_ONCE), Reason.OVERFLOW)
        else:
            self._skip_to(next(self._cursor.ahead(excess), self._messages.routed_end), Reason.OVERFLOW)
        return True

    @property
    def bytes_ahead(self) -> int:
        """Bytes of the bodies of the backlog. Requeued messages are not included.

        Raises OSError if a segment cannot be mapped.
        """
        return self._bytes_from()(self._in_flight.window.head)

    def _ahead_of_the_last(self, nbytes: int) -> int:
        """The number of messages ahead of the cursor before the last ones that have at most ``nbytes`` together."""
        numbers = range(self._in_flight.window.head, self._messages.routed_end)
        if self._messages.frame_bytes(numbers.start, numbers.stop) <= nbytes:  # with all that is not in the backlog
            return 0
        bytes_from = self._bytes_from()
        kept = bisect_left(numbers, -nbytes, key=lambda seq: -bytes_from(seq))
        return self._cursor.count_below(numbers.start + kept)

    def _bytes_from(self) -> Callable[[int], int]:
        """Return a function that returns the bytes of the bodies of the backlog from a number on."""
        frame_bytes, end, gaps = self._messages.frame_bytes, self._messages.routed_end, self._cursor.gaps()
        starts = [start for start, _ in gaps]
        skipped = [*accumulate((frame_bytes(*gap) for gap in reversed(gaps)), initial=0)][::-1]
        """The bytes of the frames in the gaps from each one on."""
        backlog = self._cursor.backlog

        def bytes_from(seq: int) -> int:
            following = bisect_right(starts, seq)
            in_gap = frame_bytes(seq, gaps[following - 1][1]) if following else 0
            heads = MESSAGE_HEAD_BYTES * (backlog - self._cursor.count_below(seq))
            return frame_bytes(seq, end) - in_gap - skipped[following] - heads

        return bytes_from

    # -- removal --------------------------------------------------------------------------------------------------

    def _remove_requeued(self, seqs: Sequence[int], reason: Reason, outcome: str) -> None:
        if outcome == DEAD:
            self._bury(seqs, reason)
            return
        ranges = ranges_of(seqs)
        self._journal.finished(ranges)
        if self._lives.every:
            sampled = self._lives.of(seqs)
            self._lives.record(What.DROPPED, sampled, attempts=self._in_flight.attempts_of(sampled), reason=reason)
        self._in_flight.remove(seqs)
        self._cursor.remove(ranges)
        self.dropped[reason] += len(seqs)
        self._messages.release()

    def _bury_ahead(self, end: int, count: int, reason: Reason) -> None:
        """Let the first ``count`` messages ahead of the cursor die that are below ``end``."""
        seqs = [seq for seq in islice(self._cursor.ahead(), count) if seq < end]
        self._bury(seqs, reason)
        self._cursor.skip_ranges()

    def _bury(self, seqs: Sequence[int], reason: Reason) -> None:
        deaths = self._redelivery.deaths(seqs, reason)
        self._journal.dead(deaths)
        self._redelivery.bury(deaths)

    def _skip_to(self, end: int, reason: Reason) -> None:
        """Drop the messages ahead of the cursor that are below ``end``."""
        end = min(end, self._messages.routed_end)
        self.dropped[reason] += self._cursor.count_below(end)
        if self._lives.every:
            self._lives.record(What.DROPPED, self._sampled_ahead(end), reason=reason)
        self._cursor.skip(end - self._in_flight.window.head)
        self._messages.release()

    def _sampled_ahead(self, end: int) -> list[int]:
        """The sampled messages ahead of the cursor that are below ``end``."""
        numbers = self._lives.numbers(self._in_flight.window.head, end)
        return [seq for seq in numbers if self._cursor.is_ahead(seq)]
