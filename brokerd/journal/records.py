"""The records of a journal: changes of state, as bytes.

Each is ``kind u8`` and its fields, big-endian. Topics and channels are identified by their numbers on this node; a
channel's number is unique among all channels. Sequence numbers count the messages of a topic. Times are the kept
nanoseconds of :mod:`brokerd.clock`.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from brokerd.dead import REASONS, DeadMessage
from brokerd.dedup import Publish
from brokerd.kernel.waiting import WAITING_RANGE

TOPIC_CREATED: Final = 1
TOPIC_DELETED: Final = 2
TOPIC_PAUSED: Final = 3
TOPIC_EMPTIED: Final = 4
CHANNEL_CREATED: Final = 5
CHANNEL_DELETED: Final = 6
CHANNEL_PAUSED: Final = 7
CHANNEL_EMPTIED: Final = 8
DELIVERED: Final = 9
FINISHED: Final = 10
WAITING: Final = 11
SKIPPED: Final = 12
TOPIC_ROUTED: Final = 13
CLOCK: Final = 14
CHANNEL_REWOUND: Final = 15
WAITING_RANGES: Final = 16
JOURNAL_BEGUN: Final = 17
TOPIC_PASSED: Final = 18
TOPIC_NUMBER_TAKEN: Final = 19
FAILED: Final = 20
DEAD: Final = 21
POLICY_SET: Final = 22
POLICY_DELETED: Final = 23
TOPIC_CANCELLED: Final = 24
PUBLISH_BEGUN: Final = 25
KINDS: Final = range(TOPIC_CREATED, PUBLISH_BEGUN + 1)
OF_MESSAGES: Final = frozenset((DELIVERED, FINISHED, WAITING, SKIPPED, WAITING_RANGES, FAILED, DEAD))
"""The kinds that describe messages of one channel. The channel's number follows the kind."""
DROPPABLE: Final = OF_MESSAGES | {TOPIC_ROUTED, TOPIC_PASSED, CHANNEL_REWOUND}
"""The kinds that are dropped while journal and disk are full. After one was dropped, none of them is written before the
gap is marked (``journal_begun``), so that replay redelivers some messages but loses none.
``Journal.append_if_complete`` has the others that depend on them."""

TOPIC_HEAD = struct.Struct(">BHQ")
TOPIC = struct.Struct(">BH")
TOPIC_GATE = struct.Struct(">BHBQ")
TOPIC_RANGE = struct.Struct(">BHQQ")
CHANNEL_HEAD = struct.Struct(">BHIQ")
CHANNEL_GATE = struct.Struct(">BIQ")
CHANNEL_FLAG = struct.Struct(">BIB")
CHANNEL_MESSAGE = struct.Struct(">BIQHQ")
CHANNEL = struct.Struct(">BI")
RANGE = struct.Struct(">QI")
_MOST_IN_A_RANGE: Final = (1 << 32) - 1
CHANNEL_RANGE = struct.Struct(">BIQI")
WAITING_RANGES_IN_A_RECORD: Final = 100
FAILURE: Final = struct.Struct(">QHQ")
DEATH: Final = struct.Struct(">QHHBQQB")
MESSAGES_IN_A_RECORD: Final = 100
BEGUN = struct.Struct(">BQBQ")
OFFSET = struct.Struct(">Bq")
PUBLISH = struct.Struct(">BHQIQQ16s")


def topic_created(number: int, routed_end: int, name: str) -> bytes:
    """A topic was created. Messages from ``routed_end`` on are not routed to channels yet."""
    return TOPIC_HEAD.pack(TOPIC_CREATED, number, routed_end) + name.encode()


def topic_deleted(number: int) -> bytes:
    """A topic was deleted, with its channels and messages."""
    return TOPIC.pack(TOPIC_DELETED, number)


def topic_paused(number: int, paused: bool, routed_end: int) -> bytes:
    """A topic was paused or unpaused. Messages from ``routed_end`` on are not routed to channels yet."""
    return TOPIC_GATE.pack(TOPIC_PAUSED, number, paused, routed_end)


def topic_emptied(number: int, start: int, end: int) -> bytes:
    """A topic was emptied: the messages ``[start, end)``, which were not routed yet, were dropped."""
    return TOPIC_RANGE.pack(TOPIC_EMPTIED, number, start, end)


def topic_left_out(number: int, start: int, end: int) -> bytes:
    """The numbers ``[start, end)`` are given to no message. To replay, this is the same as cancelled messages."""
    pieces = range(start, end, _MOST_IN_A_RANGE)
    return topic_cancelled(number, [(first, min(_MOST_IN_A_RANGE, end - first)) for first in pieces])


def topic_cancelled(number: int, ranges: Sequence[tuple[int, int]]) -> bytes:
    """Messages that were not routed yet were cancelled: the ``(first seq, count)`` ranges."""
    return TOPIC.pack(TOPIC_CANCELLED, number) + b"".join(RANGE.pack(first, count) for first, count in ranges)


def publish_begun(number: int, publish: Publish) -> bytes:
    """A publish with a deduplication id begins. Its messages are stored if a batch with its timestamp has them. A
    length of 0 means that it failed."""
    return PUBLISH.pack(PUBLISH_BEGUN, number, *publish[1:], publish.digest)


def topic_routed(number: int, end: int) -> bytes:
    """The deferred publishes below ``end`` were routed to the channels, which have records of them."""
    return TOPIC_HEAD.pack(TOPIC_ROUTED, number, end)


def channel_created(topic: int, number: int, head: int, name: str) -> bytes:
    """A channel was created. Its first message is ``head``."""
    return CHANNEL_HEAD.pack(CHANNEL_CREATED, topic, number, head) + name.encode()


def channel_deleted(number: int, routed_end: int) -> bytes:
    """A channel was deleted. ``routed_end`` is that of its topic from now on; needed if it was the last channel."""
    return CHANNEL_GATE.pack(CHANNEL_DELETED, number, routed_end)


def channel_paused(number: int, paused: bool) -> bytes:
    """A channel was paused or unpaused."""
    return CHANNEL_FLAG.pack(CHANNEL_PAUSED, number, paused)


def channel_emptied(number: int, head: int) -> bytes:
    """A channel was emptied: all its messages were dropped, and it continues at ``head``."""
    return CHANNEL_GATE.pack(CHANNEL_EMPTIED, number, head)


def channel_rewound(number: int, head: int, forgotten: Iterable[tuple[int, int]]) -> bytes:
    """A channel was rewound to ``head``. Its state of the messages in the ``(first seq, count)`` ranges was dropped."""
    return CHANNEL_GATE.pack(CHANNEL_REWOUND, number, head) + b"".join(RANGE.pack(*each) for each in forgotten)


def delivered(number: int, head: int) -> bytes:
    """All messages below ``head`` were delivered or skipped."""
    return CHANNEL_GATE.pack(DELIVERED, number, head)


def finished(number: int, ranges: Sequence[tuple[int, int]]) -> bytes:
    """The messages in the ``(first seq, count)`` ranges were finished."""
    if len(ranges) == 1:  # five times as fast
        return CHANNEL_RANGE.pack(FINISHED, number, *ranges[0])
    return CHANNEL.pack(FINISHED, number) + b"".join(RANGE.pack(first, count) for first, count in ranges)


def skipped(number: int, first: int, count: int) -> bytes:
    """The cursor skipped ``count`` messages from ``first`` on, which must not be delivered."""
    return CHANNEL_RANGE.pack(SKIPPED, number, first, count)


def waiting(number: int, seq: int, attempts: int, due_ns: int) -> bytes:
    """A message that had ``attempts`` deliveries waits for another one, at ``due_ns``; 0 means at once."""
    return CHANNEL_MESSAGE.pack(WAITING, number, seq, attempts, due_ns)


def waiting_ranges(number: int, ranges: bytes) -> Iterator[bytes]:
    """As ``waiting``, for packed ranges of ``first seq | count | attempts | due ns``, in as many records as needed."""
    step = WAITING_RANGE.size * WAITING_RANGES_IN_A_RECORD
    for start in range(0, len(ranges), step):
        yield CHANNEL.pack(WAITING_RANGES, number) + ranges[start : start + step]


def failed(number: int, failures: Sequence[tuple[int, int, int]]) -> Iterator[bytes]:
    """Deliveries failed: ``(seq, number of failures, Unix ns of the first)`` each, in as many records as needed."""
    for start in range(0, len(failures), MESSAGES_IN_A_RECORD):
        portion = failures[start : start + MESSAGES_IN_A_RECORD]
        yield CHANNEL.pack(FAILED, number) + b"".join(FAILURE.pack(*each) for each in portion)


def failures_in(record: bytes) -> Iterator[tuple[int, int, int]]:
    """The failures in a FAILED record."""
    return FAILURE.iter_unpack(record[CHANNEL.size :])


def dead(number: int, messages: Sequence[DeadMessage]) -> Iterator[bytes]:
    """Messages died, in as many records as needed. The clients' ids have at most 255 bytes."""
    for start in range(0, len(messages), MESSAGES_IN_A_RECORD):
        parts = [CHANNEL.pack(DEAD, number)]
        for message in messages[start : start + MESSAGES_IN_A_RECORD]:
            client_id = message.client_id.encode()
            parts.append(DEATH.pack(*message[:3], message.reason.code, *message[4:6], len(client_id)) + client_id)
        yield b"".join(parts)


def deaths_in(record: bytes) -> Iterator[DeadMessage]:
    """The messages in a DEAD record. Raises KeyError for an unknown reason."""
    at = CHANNEL.size
    while at < len(record):
        seq, attempts, failures, code, first_ns, died_ns, length = DEATH.unpack_from(record, at)
        if code >= len(REASONS):
            raise KeyError(f"no reason {code}")
        at += DEATH.size
        client_id = record[at : at + length].decode()
        at += length
        yield DeadMessage(seq, attempts, failures, REASONS[code], first_ns, died_ns, client_id)


def policy_set(topic: str, channel: str, values: dict[str, Any]) -> bytes:
    """The policy of two patterns was set to ``values``."""
    return bytes((POLICY_SET,)) + json.dumps([topic, channel, values]).encode()


def policy_deleted(topic: str, channel: str) -> bytes:
    """The policy of two patterns was deleted."""
    return bytes((POLICY_DELETED,)) + json.dumps([topic, channel]).encode()


def topic_passed(number: int, routed_end: int) -> bytes:
    """Messages below ``routed_end`` were routed to ephemeral channels, which do not survive a restart."""
    return TOPIC_HEAD.pack(TOPIC_PASSED, number, routed_end)


def topic_number_taken(number: int) -> bytes:
    """An ephemeral topic was created with this number, which its message ids contain. No later topic may have it."""
    return TOPIC.pack(TOPIC_NUMBER_TAKEN, number)


def journal_begun(generation: int, *, is_complete: bool, previous_end: int) -> bytes:
    """The first record of a journal. The records of the previous one end at byte ``previous_end``; 0 if unknown.

    ``is_complete`` is false if records were dropped before this one. Such a record also marks a gap within a journal.
    """
    return BEGUN.pack(JOURNAL_BEGUN, generation, is_complete, previous_end)


def clock(wall_offset_ns: int) -> bytes:
    """The wall clock was stepped. ``wall_offset_ns`` is its new offset from the monotonic clock."""
    return OFFSET.pack(CLOCK, wall_offset_ns)
