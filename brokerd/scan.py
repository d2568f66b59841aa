"""Reading all messages of a channel in the order of their publication, and one message by its id, without changes."""

from __future__ import annotations

from heapq import merge
from typing import TYPE_CHECKING, TypedDict

from brokerd.kernel.aside import DEFERRED, REQUEUED
from brokerd.kernel.frames import seq_of
from brokerd.peek import PeekedMessage, PeekState, row
from brokerd.topic_log import ID
from nsqwire.frame import MESSAGE_HEAD_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from brokerd.channel import Channel

SCAN_MESSAGES = 500
"""Maximum number of messages in one response, so that a scan does not delay deliveries."""
SCAN_BYTES = 1 << 20
"""A response ends with the message whose body reaches this number of bytes in total."""
_ASIDE_STATES = {REQUEUED: PeekState.READY, DEFERRED: PeekState.DEFERRED}


class Scanned(TypedDict):
    """A page of a scan. ``total`` is the number of messages in the whole scan; ``next`` is null after the last page."""

    topic: str
    channel: str
    total: int
    next: int | None
    messages: list[PeekedMessage]


def scan(channel: Channel, start: int, *, limit: int, dead: bool = False) -> Scanned:
    """Return up to ``limit`` messages from number ``start`` on, with their whole bodies, oldest first.

    These are the dead ones if ``dead`` is true, otherwise those in all other states.

    Deliveries, requeues and finishes between two pages do not shift the pages: each message that stays in the channel
    is in exactly one page. Damaged messages are omitted, but count towards ``limit``.
    """
    rows: list[PeekedMessage] = []
    nbytes = 0
    following = None
    numbers = (message.seq for message in channel.dead.starting_at(start)) if dead else None
    for position, seq in enumerate(numbers or _numbers(channel, start, limit + 1)):
        if position == limit or nbytes >= SCAN_BYTES:
            following = seq
            break
        state = state_of(channel, seq)
        if state is not None and (found := row(channel, state, seq)) is not None:
            rows.append(found)
            nbytes += found["size"]
    return {
        "topic": channel.topic_name,
        "channel": channel.name,
        "total": len(channel.dead) if dead else channel.unfinished_count,
        "next": following,
        "messages": rows,
    }


def find(channel: Channel, message_id: bytes) -> int | None:
    """The number of the channel's message with this id; None if the channel has no such message, or it is damaged."""
    messages, id_head = channel.messages, message_id[:6]
    if id_head != messages.id_head and not messages.is_former_id_head(message_id, channel.head):
        return None
    seq = seq_of(message_id, id_head, channel.head)
    if seq is None or state_of(channel, seq) is None:
        return None
    frame = channel.frame_of(seq)
    return seq if frame is not None and frame[ID] == message_id else None


def body_of(channel: Channel, seq: int) -> bytes | None:
    """The body of a message; None if it is damaged."""
    frame = channel.frame_of(seq)
    return None if frame is None else bytes(frame[MESSAGE_HEAD_BYTES:])


def state_of(channel: Channel, seq: int) -> PeekState | None:
    """The state of message ``seq``; None if the channel has finished it or does not have it yet."""
    entry = channel.in_flight.aside.get(seq)
    if entry is not None:
        return _ASIDE_STATES.get(entry.state, PeekState.IN_FLIGHT)
    if seq in channel.dead:
        return PeekState.DEAD
    if seq < channel.head:
        return PeekState.IN_FLIGHT if channel.in_flight.window.client_of(seq) >= 0 else None
    return PeekState.READY if channel.cursor.is_ahead(seq) else None


def _numbers(channel: Channel, start: int, count: int) -> Iterator[int]:
    """The numbers of the channel's messages from ``start`` on, ascending: at least the first ``count``, or all.

    Further numbers may be missing: of the set-aside messages, of which there may be millions, ``count`` are read.
    """
    window = channel.in_flight.window
    delivered = (seq for seq, _ in window.in_flight_below(window.head) if seq >= start)
    return merge(delivered, channel.in_flight.aside.numbers_from(start, count), channel.cursor.ahead_from(start))
