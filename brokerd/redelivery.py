"""What happens to messages whose delivery failed: they are delivered again, perhaps later, or die."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from brokerd.channel_journal import ChannelJournal, ranges_of
from brokerd.cursor import Cursor
from brokerd.dead import DeadMessage, DeadMessages, Reason, cut_client_id
from brokerd.in_flight import InFlight
from brokerd.lives import What, Why
from brokerd.settings import MOST_ATTEMPTS
from nsqwire.units import Nanoseconds, Seconds

if TYPE_CHECKING:
    from brokerd.client import Client
    from brokerd.policy import Policy
    from brokerd.sampled_lives import SampledLives


class Redelivery:
    """Counts the failed deliveries of one channel, and applies ``policy`` to their messages."""

    def __init__(
        self, policy: Policy, in_flight: InFlight, cursor: Cursor, journal: ChannelJournal, lives: SampledLives
    ) -> None:
        self.policy = policy
        self.dead = DeadMessages()
        self.died: Counter[Reason] = Counter()
        """The number of messages that died since the process started."""
        self._in_flight = in_flight
        self._cursor = cursor
        self._journal = journal
        self._lives = lives

    def count_failed(self, deliveries: Iterable[tuple[Client, int]], now: Seconds, *, delays: bool) -> None:
        """Count failed deliveries of messages that are now requeued or deferred, each with the client it was sent to.

        With ``delays``, those that do not die are deferred by the policy's delay.
        """
        policy, failed, now_ns = self.policy, self._in_flight.failed, time.time_ns()
        counted, doomed, later = list[tuple[int, int, int]](), list[DeadMessage](), dict[int, Seconds]()
        for client, seq in deliveries:
            failures, first_ns = failed.get(seq, (0, now_ns))
            failures = min(failures + 1, MOST_ATTEMPTS)
            if policy.is_last(failures):
                doomed.append(self._death(seq, failures, Reason.ATTEMPTS, first_ns, now_ns, client))
                continue
            failed[seq] = failures, first_ns
            counted.append((seq, failures, first_ns))
            if delays and (delay_s := policy.delay_s(failures)):
                later[seq] = delay_s
        if counted:
            self._journal.failed(counted)
        if doomed:
            self._journal.dead(doomed)
            self._bury(doomed)
        if later:
            self._in_flight.put_off(later, later.values(), now)
            if self._lives.every:
                self._record_delays(later)

    def _record_delays(self, later: Mapping[int, Seconds]) -> None:
        sampled = self._lives.of(later)
        attempts = self._in_flight.attempts_of(sampled)
        for seq in sampled:
            self._lives.record(What.DEFERRED, (seq,), attempts=attempts, reason=Why.RETRY_DELAY, delay_s=later[seq])

    def deaths(self, seqs: Sequence[int], reason: Reason) -> list[DeadMessage]:
        """What is to be recorded of messages, in any state, that die for ``reason``."""
        now_ns = time.time_ns()
        found = list[DeadMessage]()
        for seq in seqs:
            failures, first_ns = self._in_flight.failed.get(seq, (0, now_ns))
            client, _ = self._in_flight.client_of(seq)
            found.append(self._death(seq, failures, reason, first_ns, now_ns, client))
        return found

    def bury(self, messages: Sequence[DeadMessage]) -> None:
        """Let messages die that the caller has journalled; they are ascending."""
        self._bury(messages)
        self._cursor.remove(ranges_of(message.seq for message in messages))

    def _bury(self, messages: Sequence[DeadMessage]) -> None:
        frames = self._in_flight.aside.frames
        copies = {message.seq: frames[message.seq] for message in messages if message.seq in frames} if frames else {}
        self._in_flight.remove([message.seq for message in messages])
        for message in messages:
            self.dead.add(message)
            self.died[message.reason] += 1
            if self._lives.every:
                self._record_death(message)
        self.dead.frames.update(copies)

    def _record_death(self, message: DeadMessage) -> None:
        self._lives.record(
            What.DEAD,
            self._lives.of((message.seq,)),
            attempts=message.attempts,
            reason=message.reason,
            at_ns=message.died_ns,
        )

    def _death(
        self,
        seq: int,
        failures: int,
        reason: Reason,
        first_ns: Nanoseconds,
        died_ns: Nanoseconds,
        client: Client | None,
    ) -> DeadMessage:
        message = self._in_flight.aside.get(seq)
        attempts = message.attempts if message is not None else int(client is not None)
        client_id = "" if client is None else cut_client_id(client.client_id)
        return DeadMessage(seq, attempts, failures, reason, first_ns, died_ns, client_id)

    def copy_below(self, end: int, frames: dict[int, bytes], frame_of: Callable[[int], memoryview | None]) -> None:
        """Copy the dead messages below ``end`` from the log, as :meth:`brokerd.channel.Channel.copy_below` does.

        Those that die later have copies already, because those that are set aside are copied too.
        """
        dead = self.dead
        for message in dead.starting_at(dead.copied_end):
            if message.seq >= end:
                break
            if message.seq not in dead.frames and (frame := frame_of(message.seq)) is not None:
                dead.frames[message.seq] = frames.setdefault(message.seq, bytes(frame))
        dead.copied_end = max(dead.copied_end, end)

    def revive(self, seqs: Sequence[int], dues: Iterable[Seconds]) -> None:
        """Set dead messages, ascending, aside as undelivered ones; they are ready at once where the due time is 0.

        The caller has journalled it.
        """
        aside, frames = self._in_flight.aside, self.dead.frames
        for seq, due in zip(seqs, dues, strict=True):
            aside.add(seq, 0, due)
            if frames and (frame := frames.get(seq)) is not None:
                aside.keep_frame(seq, frame)
        self.dead.remove(seqs)
