"""Reading the messages of a channel without changing any counter, attempt, order or timer."""

from __future__ import annotations

import enum
from base64 import b64encode
from collections.abc import Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, NotRequired, TypedDict

from brokerd.kernel.aside import DEFERRED
from nsqwire.frame import MESSAGE_HEAD, MESSAGE_HEAD_BYTES
from nsqwire.headers import decode_headers
from nsqwire.units import Nanoseconds

if TYPE_CHECKING:
    from brokerd.channel import Channel
    from brokerd.client import Client

PAGE = 100
"""Maximum number of messages in one response."""


class PeekState(enum.StrEnum):
    """The states of a channel's messages, as ``/stats`` counts them."""

    READY = "ready"
    IN_FLIGHT = "in_flight"
    DEFERRED = "deferred"
    DEAD = "dead"


class PeekedClient(TypedDict):
    """The client that a message is in flight with."""

    client_id: str
    hostname: str
    remote_address: str
    user_agent: str


class PeekedDeath(TypedDict):
    """Why and when a message died; times are Unix nanoseconds. ``client_id`` is that of the last client."""

    reason: str
    failures: int
    first_failure: Nanoseconds
    died: Nanoseconds
    client_id: str


class PeekedMessage(TypedDict):
    """Times are Unix nanoseconds. ``body`` is base64 of at most ``max_body_bytes``; ``size`` is the whole size."""

    id: str
    timestamp: Nanoseconds
    attempts: int
    state: str
    size: int
    body: str
    truncated: bool
    due: Nanoseconds | None
    deadline: Nanoseconds | None
    client: PeekedClient | None
    headers: NotRequired[dict[str, str]]
    """Only of a message with headers."""
    death: NotRequired[PeekedDeath]
    """Only of a dead message."""
    sampled: NotRequired[bool]
    """True if the policy samples it; otherwise missing."""


class Peeked(TypedDict):
    """A page of the ``total`` messages that are in ``state`` now."""

    topic: str
    channel: str
    state: str
    total: int
    offset: int
    messages: list[PeekedMessage]


def peek(channel: Channel, state: PeekState, *, offset: int, limit: int, max_body_bytes: int) -> Peeked:
    """Return up to ``limit`` messages after the first ``offset``.

    Ready ones are in the order of delivery, requeued ones first; in-flight and dead ones are sorted by age, deferred
    ones by due time. A damaged message is left out.
    """
    totals = {
        PeekState.READY: channel.depth,
        PeekState.IN_FLIGHT: channel.in_flight_count,
        PeekState.DEFERRED: channel.deferred_count,
        PeekState.DEAD: len(channel.dead),
    }
    rows = (row(channel, state, seq, max_body_bytes) for seq in islice(_numbers(channel, state, offset), limit))
    return {
        "topic": channel.topic_name,
        "channel": channel.name,
        "state": state.value,
        "total": totals[state],
        "offset": offset,
        "messages": [found for found in rows if found is not None],
    }


def _numbers(channel: Channel, state: PeekState, offset: int) -> Iterator[int]:
    aside = channel.in_flight.aside
    if state is PeekState.READY:
        requeued = aside.requeued(offset, PAGE)
        return chain(requeued, channel.cursor.ahead(max(0, offset - aside.requeued_count)))
    if state is PeekState.IN_FLIGHT:
        return islice(channel.in_flight.numbers(), offset, None)
    if state is PeekState.DEAD:
        return (message.seq for message in channel.dead.skipping(offset))
    return islice(aside.deferred(offset + PAGE), offset, None)


def row(channel: Channel, state: PeekState, seq: int, max_body_bytes: int | None = None) -> PeekedMessage | None:
    """Message ``seq``, with its whole body unless ``max_body_bytes`` limits it; None if it is damaged or missing."""
    entry = channel.in_flight.aside.get(seq)
    frame = channel.frame_of(seq)
    if frame is None:
        return None
    _size, _kind, timestamp, _attempts, message_id = MESSAGE_HEAD.unpack_from(frame)
    size = len(frame) - MESSAGE_HEAD_BYTES
    shown = size if max_body_bytes is None else min(size, max_body_bytes)
    client, deadline = channel.in_flight.client_of(seq)
    death = channel.dead.get(seq)
    wall_ns = channel.wall_ns
    attempts = entry.attempts if entry is not None else int(client is not None)
    peeked: PeekedMessage = {
        "id": message_id.decode(),
        "timestamp": timestamp,
        "attempts": attempts if death is None else death.attempts,
        "state": state.value,
        "size": size,
        "body": b64encode(frame[MESSAGE_HEAD_BYTES : MESSAGE_HEAD_BYTES + shown]).decode(),
        "truncated": size > shown,
        "due": wall_ns(entry.when) if entry is not None and entry.state == DEFERRED else None,
        "deadline": None if client is None else wall_ns(deadline),
        "client": None if client is None else _client(client),
    }
    if channel.lives.every and not seq % channel.lives.every:
        peeked["sampled"] = True
    if block := channel.header_block_of(frame):
        peeked["headers"] = decode_headers(block)
    if death is not None:
        peeked["death"] = {
            "reason": death.reason.value,
            "failures": death.failures,
            "first_failure": death.first_ns,
            "died": death.died_ns,
            "client_id": death.client_id,
        }
    return peeked


def _client(client: Client) -> PeekedClient:
    return {
        "client_id": client.client_id,
        "hostname": client.hostname,
        "remote_address": client.remote_address,
        "user_agent": client.user_agent,
    }
