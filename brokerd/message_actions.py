"""The actions of operators on messages of a channel: on single ones, by their ids, and on all dead ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from brokerd.dead import Reason
from brokerd.scan import find
from nsqwire.units import Nanoseconds, Seconds

if TYPE_CHECKING:
    from brokerd.channel import Channel

MAX_IDS = 5000
"""Maximum number of ids in one request. It is limited so that a request does not delay deliveries."""


class ActedOn(NamedTuple):
    """``messages`` is the number of messages that were found; ``not_found`` has the ids that the channel does not
    have."""

    messages: int
    not_found: list[bytes]


def finish(channel: Channel, ids: Iterable[bytes]) -> ActedOn:
    """Remove messages in any state from the channel. Raises OSError, with nothing changed."""
    seqs, not_found = _found(channel, ids)
    if seqs:
        channel.remove(seqs)
    return ActedOn(len(seqs), not_found)


def requeue(channel: Channel, ids: Iterable[bytes]) -> ActedOn:
    """Make messages in any state ready, at once. Raises WouldBeDropped and OSError, with nothing changed.

    A message in flight is taken back from its client. A message that is already ready does not change. A dead one is
    delivered as if it had never been delivered.
    """
    seqs, not_found = _found(channel, ids)
    dead = [seq for seq in seqs if seq in channel.dead]
    if dead:
        channel.revive(dead, [0.0] * len(dead))
    if alive := [seq for seq in seqs if seq not in set(dead)]:
        channel.requeue_now(alive)
    return ActedOn(len(seqs), not_found)


def bury(channel: Channel, ids: Iterable[bytes]) -> ActedOn:
    """Let messages die, in whatever state they are. Raises OSError, with nothing changed. Dead ones do not change."""
    seqs, not_found = _found(channel, ids)
    if alive := [seq for seq in seqs if seq not in channel.dead]:
        channel.bury(alive)
    return ActedOn(len(seqs), not_found)


class ChosenDead(NamedTuple):
    """Dead messages of one reason, or of all if it is None, that died at ``since_ns`` or later, Unix nanoseconds."""

    reason: Reason | None = None
    since_ns: Nanoseconds = 0

    def portions(self, channel: Channel) -> Iterator[list[int]]:
        """Yield the numbers of the messages that are dead now, ascending, without those that no longer are."""
        for portion in channel.dead.portions():
            if channel.gone:
                return
            chosen = (each.seq for each in portion if self.reason in (None, each.reason))
            yield [seq for seq in chosen if (found := channel.dead.get(seq)) and found.died_ns >= self.since_ns]


def requeue_dead(channel: Channel, chosen: ChosenDead, *, rate: int, now: Seconds) -> Iterator[int]:
    """Deliver dead messages as if they had never been delivered, ``rate`` a second, or at once if it is 0.

    Yields the number of messages of each portion. The rate is kept by deferral, so it survives a restart. Raises
    WouldBeDropped and OSError; earlier portions are then requeued.
    """
    done = 0
    for seqs in chosen.portions(channel):
        dues = [now + (done + at) / rate if rate else 0.0 for at in range(len(seqs))]
        if seqs:
            channel.revive(seqs, dues)
        done += len(seqs)
        yield len(seqs)


def finish_dead(channel: Channel, chosen: ChosenDead) -> Iterator[int]:
    """Remove dead messages. Yields the number of each portion. Raises OSError; earlier portions are then removed."""
    for seqs in chosen.portions(channel):
        if seqs:
            channel.remove(seqs)
        yield len(seqs)


def _found(channel: Channel, ids: Iterable[bytes]) -> tuple[list[int], list[bytes]]:
    """The numbers of the messages, ascending, and the ids that the channel does not have."""
    seqs: list[int] = []
    not_found: list[bytes] = []
    for message_id in dict.fromkeys(ids):
        seq = find(channel, message_id)
        if seq is None:
            not_found.append(message_id)
        else:
            seqs.append(seq)
    return sorted(seqs), not_found
