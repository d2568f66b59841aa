"""The actions of publishers on messages that they have published, by their ids: in all channels of the topic."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from brokerd.channel import Channel
from brokerd.channel_journal import ranges_of
from brokerd.journal import records
from brokerd.journal.journal import room_for
from brokerd.kernel.frames import seq_of
from brokerd.kernel.waiting import WAITING_RANGE
from brokerd.peek import PeekState
from brokerd.scan import find, state_of
from brokerd.topic_log import ID
from nsqwire.units import Seconds

if TYPE_CHECKING:
    from brokerd.topic import Topic

STEPS_AT_ONCE = 5000
"""Number of messages that are acted on together, times the topic's channels; the broker does other work after them."""


class Outcome(StrEnum):
    """What became of a message in a channel."""

    CANCELLED = "cancelled"
    """It is not delivered any more."""
    DEFERRED = "deferred"
    """It is delivered later."""
    IN_FLIGHT = "in_flight"
    """A client has it; nothing was changed."""
    FINISHED = "finished"
    """It was finished, dropped or emptied, or the channel was created after it; nothing was changed."""
    DEAD = "dead"
    """It is dead and is not delivered; a deferral changes nothing."""
    WAITING = "waiting"
    """It waits in the topic itself; a deferral changes nothing, because the delay would begin when it is routed."""


class ActedOn(NamedTuple):
    """The outcomes of a message by channel. ``in_topic`` is the outcome if it waits in the topic itself."""

    message_id: bytes
    channels: dict[str, Outcome]
    in_topic: Outcome | None = None


def cancel(topic: Topic, ids: Iterable[bytes]) -> list[ActedOn]:
    """Cancel messages: all channels that have them finish them, except those where they are in flight. Unknown ids are
    left out.

    Raises OSError, with nothing changed.
    """
    found = _Found.of(topic, ids, {PeekState.READY, PeekState.DEFERRED, PeekState.DEAD})
    # As much room as they can take: as if no two numbers were neighbours.
    changes = [records.finished(0, [(0, 1)] * len(seqs)) for seqs in found.by_channel.values()]
    changes.append(records.topic_cancelled(0, [(0, 1)] * len(found.in_topic)))
    topic.messages.require_room(room_for(changes), of_messages=True)
    if found.in_topic:
        topic.cancel(ranges_of(sorted(found.in_topic)))
    return found.act(Channel.cancel, Outcome.CANCELLED, in_topic=Outcome.CANCELLED)


def defer(topic: Topic, ids: Iterable[bytes], due: Seconds) -> list[ActedOn]:
    """Defer the ready and the deferred messages until ``due``, monotonic seconds. Unknown ids are left out.

    Raises OSError, with nothing changed.
    """
    found = _Found.of(topic, ids, {PeekState.READY, PeekState.DEFERRED})
    ranges = (bytes(WAITING_RANGE.size * len(seqs)) for seqs in found.by_channel.values())
    changes = [record for each in ranges for record in records.waiting_ranges(0, each)]
    topic.messages.require_room(room_for(changes), of_messages=True)
    return found.act(partial(Channel.defer, due=due), Outcome.DEFERRED, in_topic=Outcome.WAITING)


class _Found(NamedTuple):
    """The messages with some ids. ``by_channel`` has the numbers of those that an action is for."""

    messages: dict[int, ActedOn]
    by_channel: dict[Channel, list[int]]
    in_topic: list[int]

    @classmethod
    def of(cls, topic: Topic, ids: Iterable[bytes], states: set[PeekState]) -> _Found:
        """Find messages; the action is for those in one of ``states``."""
        found = cls({}, {}, [])
        for message_id in dict.fromkeys(ids):
            seq = _seq_in(topic, message_id)
            if seq is None:
                continue
            message = found.messages[seq] = ActedOn(message_id, {})
            if topic.messages.waits(seq):
                found.in_topic.append(seq)
                continue
            for name, channel in topic.channels.items():
                state = state_of(channel, seq)
                if state in states:
                    found.by_channel.setdefault(channel, []).append(seq)
                else:
                    message.channels[name] = _UNCHANGED[state]
        return found

    def act(
        self, change: Callable[[Channel, list[int]], None], outcome: Outcome, *, in_topic: Outcome
    ) -> list[ActedOn]:
        """Change the messages, channel by channel, and return the outcomes: ``outcome`` in these channels, ``in_topic``
        of those that wait in the topic."""
        for channel, seqs in self.by_channel.items():
            change(channel, sorted(seqs))
            for seq in seqs:
                self.messages[seq].channels[channel.name] = outcome
        waiting = set(self.in_topic)
        return [
            message._replace(in_topic=in_topic) if seq in waiting else message for seq, message in self.messages.items()
        ]


_UNCHANGED = {
    None: Outcome.FINISHED,
    PeekState.IN_FLIGHT: Outcome.IN_FLIGHT,
    PeekState.DEAD: Outcome.DEAD,
}


def _seq_in(topic: Topic, message_id: bytes) -> int | None:
    """The number of the message with this id, if the topic waits with it or some channel has not finished it."""
    messages, end = topic.messages, topic.log.next_seq
    seq = seq_of(message_id, message_id[:6], end)
    if seq is None or seq >= end:
        return None
    if topic.log.contains(seq):
        frame = topic.log.frame(seq)
        if frame is None or frame[ID] != message_id:
            return None
        has_it = messages.waits(seq) or any(state_of(each, seq) is not None for each in topic.channels.values())
        return seq if has_it else None
    return next((seq for each in topic.channels.values() if find(each, message_id) is not None), None)
