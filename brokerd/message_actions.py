"""The actions of operators on single messages of a channel, by their ids: finish and requeue."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from brokerd.scan import find

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
    """Make messages in any state ready, at once. Raises OSError, with nothing changed.

    A message in flight is taken back from its client. A message that is already ready does not change.
    """
    seqs, not_found = _found(channel, ids)
    if seqs:
        channel.requeue_now(seqs)
    return ActedOn(len(seqs), not_found)


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
