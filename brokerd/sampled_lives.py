"""Which messages of a topic are sampled, and the recording of what happens to them.

A message is sampled if its number in the log of its topic is a multiple of the policy's ``sample_lives``. So the
publish, all channels and a restarted broker agree on it, and nothing has to be remembered about it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from brokerd.kernel.waiting import WAITING_RANGE
from brokerd.lives import LifeEvent, Lives, Party, What, Why
from nsqwire.units import Nanoseconds, Seconds

if TYPE_CHECKING:
    from brokerd.client import Client
    from brokerd.dead import Reason
    from brokerd.topic_log import TopicLog


LONGEST_CLIENT_ID: Final = 256
"""Maximum number of characters of a client id in an event. An id may be as long as the body of IDENTIFY, and a page of
events repeats it in each."""


class SampledLives:
    """Records the events of one channel of a topic, or with ``channel`` None those of the topic itself.

    One in ``every`` messages is sampled; 0 is none. Callers check ``every`` first, once for many messages, so that a
    topic without sampling pays for nothing else.
    """

    def __init__(self, lives: Lives, messages: TopicLog, channel: str | None) -> None:
        self.every = 0
        self._lives = lives
        self._messages = messages
        self._channel = channel

    def numbers(self, first: int, end: int) -> range:
        """The sampled messages in ``[first, end)``, ascending.

        If there is not room for an event of each, only the last ones; the events of the others are counted as lost.
        """
        sampled = range(first + -first % self.every, end, self.every)
        if len(sampled) > self._lives.capacity:
            self._lives.lose(len(sampled) - self._lives.capacity)
            sampled = sampled[-self._lives.capacity :]
        return sampled

    def of(self, seqs: Iterable[int]) -> list[int]:
        """Those of ``seqs`` that are sampled."""
        every = self.every
        return [seq for seq in seqs if not seq % every]

    def record(
        self,
        what: What,
        seqs: Iterable[int],
        *,
        by: Party | None = None,
        attempts: Mapping[int, int] | int = 0,
        reason: Why | Reason | None = None,
        delay_s: Seconds = 0.0,
        at_ns: Nanoseconds | None = None,
    ) -> None:
        """Record what happened to ``seqs``, which are sampled. ``attempts`` may be one number for all of them."""
        client_id, address = ("", "") if by is None else (by.client_id[:LONGEST_CLIENT_ID], by.remote_address)
        delay_ms = round(delay_s * 1000) if delay_s else None
        why = "" if reason is None else reason.value
        lives, messages = self._lives, self._messages
        for seq in seqs:
            lives.add(
                LifeEvent(
                    lives.end,
                    messages.name,
                    self._channel,
                    messages.id_of(seq),
                    what,
                    time.time_ns() if at_ns is None else at_ns,
                    attempts if isinstance(attempts, int) else attempts.get(seq, 0),
                    why,
                    delay_ms,
                    client_id,
                    address,
                )
            )

    def published(self, seqs: range, at_ns: Nanoseconds, by: Party | list[Party] | None, delays: bytes = b"") -> None:
        """Record a publish. ``by`` may be one party for each message, and ``delays`` are ``u32`` ms each, if any."""
        each_ms = memoryview(delays).cast("I") if delays else None
        for seq in self.numbers(seqs.start, seqs.stop):
            at = seq - seqs.start
            party = by[at] if isinstance(by, list) else by
            delay_s = each_ms[at] / 1000 if each_ms is not None else 0.0
            self.record(What.PUBLISHED, (seq,), by=party, delay_s=delay_s, at_ns=at_ns)

    def delivered_again(self, ranges: bytes, client: Client) -> None:
        """Record deliveries from packed WAITING_RANGE, which has the attempts."""
        at_ns = time.time_ns()
        for first, count, attempts, _ in WAITING_RANGE.iter_unpack(ranges):
            sampled = self.numbers(first, first + count)
            self.record(What.DELIVERED, sampled, by=client, attempts=attempts, at_ns=at_ns)

    def finished(
        self, ranges: Iterable[tuple[int, int]], client: Client, at_ns: Nanoseconds, attempts: Mapping[int, int]
    ) -> None:
        """Record that a client finished ``(first, count)`` ranges. ``attempts`` has those above 1."""
        for first, count in ranges:
            for seq in self.numbers(first, first + count):
                self.record(What.FINISHED, (seq,), by=client, attempts=attempts.get(seq, 1), at_ns=at_ns)
