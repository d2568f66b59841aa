"""Reading the messages of a topic's log in the order of publication, whatever its channels have done with them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, NotRequired, TypedDict

from brokerd.log.segment import timestamp_in
from nsqwire.frame import MESSAGE_HEAD, MESSAGE_HEAD_BYTES
from nsqwire.headers import decode_headers
from nsqwire.units import Nanoseconds

if TYPE_CHECKING:
    from brokerd.log.segment import Segment
    from brokerd.topic_log import TopicLog

PAGE = 500
"""Maximum number of messages in one response."""
PAGE_BYTES = 1 << 20
"""A response ends with the message whose body reaches this number of bytes in total."""
EXAMINED = 5_000
"""A response ends after examining this number of messages, also of those that are outside of the requested times."""
HEADERS_AS = 20
"""A message with headers counts as this number of examined messages, because decoding takes as much time."""
CLOCK_MARGIN_NS = 60_000_000_000
"""Times are found by binary search, which needs them in order. A clock that is set back by up to this time changes the
order only within it, so the search begins that much earlier, and ends that much later."""


class Span(NamedTuple):
    """The requested messages: numbers in ``[start, end)``, accepted in ``[since_ns, until_ns)``, Unix ns."""

    start: int = 0
    end: int | None = None
    since_ns: Nanoseconds | None = None
    until_ns: Nanoseconds | None = None

    def has(self, timestamp: Nanoseconds) -> bool:
        """Return whether a message that was accepted at ``timestamp`` is requested, by its time."""
        since, until = self.since_ns, self.until_ns
        return (since is None or since <= timestamp) and (until is None or timestamp < until)


class LogMessage(TypedDict):
    """``position`` is the message's number in its topic, ``timestamp`` Unix nanoseconds, ``body`` base64."""

    position: int
    id: str
    timestamp: Nanoseconds
    body: str
    headers: NotRequired[dict[str, str]]
    """Only of a message with headers."""


class LogPage(TypedDict):
    """A page of the messages from ``start`` on and before ``stop``. ``next`` is null after the last page.

    The log has the messages from ``earliest`` on and before ``end``. ``skipped`` of those that the page covers were
    emptied or cancelled while they waited in the topic, or are damaged.
    """

    topic: str
    topic_number: int
    earliest: int
    end: int
    start: int
    stop: int
    next: int | None
    skipped: int
    messages: list[LogMessage]


def scan_log(messages: TopicLog, span: Span, *, limit: int) -> LogPage:
    """Return up to ``limit`` of the requested messages, oldest first. Changes nothing.

    Bodies of damaged batches are not returned. Raises OSError if a segment cannot be mapped.
    """
    log = messages.log
    start, stop = _bounds(messages, span)
    page: LogPage = {
        "topic": messages.name,
        "topic_number": messages.number,
        "earliest": log.first_seq,
        "end": log.next_seq,
        "start": start,
        "stop": stop,
        "next": None,
        "skipped": 0,
        "messages": [],
    }
    room = _Room(limit)
    seq = start
    while seq < stop and not room.is_used_up():
        hole = messages.holes.next_from(seq) or (stop, stop)
        if hole[0] <= seq:
            end = min(hole[1], stop)
            page["skipped"] += end - seq
            seq = end
            continue
        end = min(hole[0], stop)
        if not log.contains(seq):  # between two segments: their numbers are known, their messages are not
            end = min(end, next(each.first_seq for each in log.segments if each.first_seq > seq))
            page["skipped"] += end - seq
            seq = end
            continue
        segment = log.segment_of(seq)
        was_mapped = segment.is_mapped
        seq = _read(messages, segment, (seq, min(end, segment.next_seq)), span, page, room)
        if not was_mapped:  # a scan of all segments would otherwise keep all their descriptors open
            segment.unmap()
    page["next"] = seq if seq < stop else None
    return page


class _Room:
    """How much the page may still contain."""

    def __init__(self, limit: int) -> None:
        self.messages = limit
        self.nbytes = PAGE_BYTES
        self.examined = EXAMINED

    def is_used_up(self) -> bool:
        return self.messages <= 0 or self.nbytes <= 0 or self.examined <= 0


def _bounds(messages: TopicLog, span: Span) -> tuple[int, int]:
    """The numbers ``[start, stop)`` that the requested messages have, as far as they are in the log."""
    log = messages.log
    start = max(span.start, log.first_seq)
    stop = log.next_seq if span.end is None else min(span.end, log.next_seq)
    if span.since_ns is not None:
        start = max(start, log.first_since(span.since_ns - CLOCK_MARGIN_NS))
    if span.until_ns is not None:
        stop = min(stop, log.first_since(span.until_ns + CLOCK_MARGIN_NS))
    return min(start, log.next_seq), max(min(start, log.next_seq), stop)


def _read(
    messages: TopicLog, segment: Segment, numbers: tuple[int, int], span: Span, page: LogPage, room: _Room
) -> int:
    """Add the requested messages of ``numbers``, ``[seq, end)``, to the page. Returns the number that comes next."""
    seq, end = numbers
    commits, data = segment.commits, segment.map
    position = commits.find(seq)
    while seq < end and not room.is_used_up():
        commit = commits[position]
        position += 1
        first = max(seq, min(commit.first_seq, end))  # the messages between two records are lost
        page["skipped"] += first - seq
        seq, batch_end = first, min(commit.next_seq, end)
        if seq >= batch_end:  # a record that is not that of a batch
            continue
        if not commit.matches(data):
            page["skipped"] += batch_end - seq
            room.examined -= 1
            seq = batch_end
            continue
        offset = commit.start if seq == commit.first_seq else segment.offset_of(seq)
        for frame in _frames(data, offset, batch_end - seq):
            if span.has(timestamp_in(frame)):
                found = _message(messages, segment, seq, frame)
                page["messages"].append(found)
                room.messages -= 1
                room.nbytes -= len(frame) - MESSAGE_HEAD_BYTES
                room.examined -= HEADERS_AS if "headers" in found else 0
            room.examined -= 1
            seq += 1
            if room.is_used_up():
                break
    return seq


def _message(messages: TopicLog, segment: Segment, seq: int, frame: memoryview) -> LogMessage:
    _, _, timestamp, _, message_id = MESSAGE_HEAD.unpack_from(frame)
    found: LogMessage = {
        "position": seq,
        "id": message_id.decode(),
        "timestamp": timestamp,
        "body": b64encode(frame[MESSAGE_HEAD_BYTES:]).decode(),
    }
    if segment.headers is not None and (block := messages.header_block(seq, timestamp)):
        found["headers"] = decode_headers(block)
    return found


def _frames(data: memoryview, offset: int, count: int) -> Iterator[memoryview]:
    """Yield ``count`` frames, slices of the map, from ``offset`` on. Their batch is undamaged."""
    for _ in range(count):
        end = offset + 4 + int.from_bytes(data[offset : offset + 4])
        yield data[offset:end]
        offset = end
