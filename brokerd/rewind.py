"""Rewinding a channel to a point in time, as far as its topic's log reaches back."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from brokerd.channel import Channel


class Rewound(NamedTuple):
    """``messages`` is the number of messages to redeliver. ``oldest_ns`` is when the oldest was accepted, Unix ns.

    ``is_complete`` is false if messages of the requested time may have been removed from the log.
    """

    messages: int
    oldest_ns: int | None
    is_complete: bool


def rewind(channel: Channel, since_ns: int) -> Rewound:
    """Redeliver every message accepted at ``since_ns``, Unix nanoseconds, or later.

    Undelivered messages are delivered after these. A time after the last message changes nothing. Raises OSError, with
    nothing changed.
    """
    seq = channel.messages.log.first_since(since_ns)
    rewound = _counted(channel, seq)
    channel.rewind(seq)
    return rewound


def preview(channel: Channel, since_ns: int) -> Rewound:
    """What ``rewind`` would return now. Changes nothing."""
    return _counted(channel, channel.messages.log.first_since(since_ns))


def _counted(channel: Channel, seq: int) -> Rewound:
    log, head = channel.messages.log, channel.head
    finished = len(channel.finished_deferred(seq)) + len(channel.removed_from(seq))
    in_order = max(0, head - seq - channel.messages.skipped.count_between(seq, head))
    is_complete = seq > log.first_seq or log.first_seq == 0
    if seq >= head and not finished:
        return Rewound(0, None, is_complete)
    return Rewound(in_order + finished, log.timestamp_of(seq), is_complete)
