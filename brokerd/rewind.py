"""Taking a channel back to a point in time, as far as its topic's log still reaches."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from brokerd.channel import Channel


class Rewound(NamedTuple):
    """What is delivered again: so many ``messages``, the oldest accepted at ``oldest_ns``, Unix nanoseconds.

    Not ``is_complete`` if older ones that were asked for may be gone from the log.
    """

    messages: int
    oldest_ns: int | None
    is_complete: bool


def rewind(channel: Channel, since_ns: int) -> Rewound:
    """Have all that was delivered, and was accepted at ``since_ns``, Unix nanoseconds, or later, delivered again.

    What was not delivered yet follows behind it. A time to come changes nothing.
    """
    log, head = channel.topic.log, channel.window.head
    seq = log.first_since(since_ns)
    deferred = channel.go_back(seq)
    in_order = max(0, head - seq - channel.topic.skips.count_between(seq, head))
    if seq >= head and not deferred:
        return Rewound(0, None, is_complete=True)
    is_complete = seq > log.first_seq or log.first_seq == 0
    return Rewound(in_order + deferred, log.timestamp_of(seq), is_complete)
