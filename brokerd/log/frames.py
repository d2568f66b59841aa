"""Reads the frames of a log without its commit records, in order to rebuild damaged or missing records."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property

from xxhash import xxh3_64_intdigest

from brokerd.kernel.frames import SEQ_MASK
from brokerd.log.commits import Commit
from brokerd.zero_padding import end_of_contents
from nsqwire.frame import MESSAGE, MESSAGE_HEAD, MESSAGE_HEAD_BYTES
from nsqwire.units import Nanoseconds

TOPIC_MASK = (1 << 14) - 1
"""The topic's part of the first 24 bits of an id; the others are the node's id."""
_HEX_DIGITS = frozenset(b"0123456789abcdef")
_HEAD = re.compile(rb"\0\0\0\x02.{8}\0\x01[0-9a-f]{16}", re.DOTALL)
"""A message frame's head after its size: type, timestamp, one attempt, id."""
_SIZE_BYTES = 4


class Frames:
    """The frames in ``log``, the bytes of a segment's file, of the topic whose ids begin with ``id_head``.

    A file that was reused still contains former frames after the last one; these have lower numbers.
    """

    def __init__(self, log: memoryview, id_head: bytes) -> None:
        self.log = log
        self._id_head = id_head

    @cached_property
    def used(self) -> int:
        """The offset after the last byte that is not zero."""
        return end_of_contents(self.log)

    def batch(self, start: int, limit: int, first_seq: int, *, needs_successor: bool = False) -> Commit | None:
        """The batch whose frames begin at ``start`` with message ``first_seq``; None if there is no complete frame.

        All messages of a batch have the same timestamp, so a batch ends where the timestamp changes. Frames do not
        contain the deferral. With ``needs_successor``, only frames for which :meth:`_has_successor` is true
        are accepted.
        """
        at, seq, timestamp = start, first_seq, 0
        while (end := self.end_of(at, limit, seq)) is not None:
            stamp = MESSAGE_HEAD.unpack_from(self.log, at)[2]
            if seq > first_seq and stamp != timestamp:
                break
            if needs_successor and not self._has_successor(end, limit, seq + 1):
                break
            at, seq, timestamp = end, seq + 1, stamp
        if seq == first_seq:
            return None
        digest = xxh3_64_intdigest(self.log[start:at])
        return Commit(first_seq, at, timestamp, digest, seq - first_seq, 0, at - start)

    def end_of(self, at: int, limit: int, seq: int) -> int | None:
        """The end of the frame of message ``seq`` that begins at ``at``; None without one that ends by ``limit``."""
        if at + MESSAGE_HEAD_BYTES > limit:
            return None
        size, kind, _, attempts, message_id = MESSAGE_HEAD.unpack_from(self.log, at)
        end = int(at + _SIZE_BYTES + size)
        if kind != MESSAGE or attempts != 1 or size < MESSAGE_HEAD_BYTES - _SIZE_BYTES or end > limit:
            return None
        return end if is_id_of(message_id, seq, self._id_head) else None

    def has_id(self, at: int, seq: int) -> bool:
        """Return whether the bytes at ``at``, read as a frame, have the id of message ``seq``."""
        if at + MESSAGE_HEAD_BYTES > len(self.log):
            return False
        return is_id_of(MESSAGE_HEAD.unpack_from(self.log, at)[4], seq, self._id_head)

    def is_last(self, at: int) -> bool:
        """Return whether a frame with any id begins at ``at`` and ends where the used bytes end."""
        if at + MESSAGE_HEAD_BYTES > len(self.log):
            return False
        size, kind, _, attempts, _ = MESSAGE_HEAD.unpack_from(self.log, at)
        return bool(kind == MESSAGE and attempts == 1 and at + _SIZE_BYTES + size == self.used)

    def timestamp_at(self, at: int) -> Nanoseconds:
        """When the message whose frame begins at ``at`` was accepted, Unix nanoseconds."""
        return int(MESSAGE_HEAD.unpack_from(self.log, at)[2])

    def undamaged(self, start: int, limit: int) -> Iterator[tuple[int, int]]:
        """Yield the offset and the low 40 bits of the number of each undamaged frame of the topic from ``start`` on.

        The frames are found by a search, so that those after damage are found too. :meth:`_has_successor` is true
        for each.
        """
        at = start
        while (found := _HEAD.search(self.log, at + _SIZE_BYTES, limit)) is not None:
            at, seq = found.start() - _SIZE_BYTES, int(found[0][-10:], 16)
            end = self.end_of(at, limit, seq)
            if end is not None and self._has_successor(end, limit, seq + 1):
                yield at, seq
            at += 1

    def next_after(self, start: int, limit: int, seq: int) -> tuple[int, int] | None:
        """Offset and number of the next undamaged frame after ``start``, where the damaged message ``seq`` begins.

        Its number is above ``seq``, and the bytes between have space for the messages between. None without one.
        """
        for at, low in self.undamaged(start, limit):
            missing = (low - seq) & SEQ_MASK
            if missing > 0 and missing * MESSAGE_HEAD_BYTES <= at - start:
                return at, seq + missing
        return None

    def _has_successor(self, end: int, limit: int, seq: int) -> bool:
        """Return whether the bytes at ``end`` can follow a frame: they end the log, or begin a message frame.

        A frame with the id of message ``seq`` may be damaged. If nothing fits, the size of the frame that ends here is
        probably damaged.
        """
        if end == limit or end >= self.used or self.has_id(end, seq):
            return True
        if end + MESSAGE_HEAD_BYTES > limit:
            return True  # the log was cut within the head of the next frame
        _, kind, _, attempts, _ = MESSAGE_HEAD.unpack_from(self.log, end)
        return bool(kind == MESSAGE and attempts == 1)


def is_id_of(message_id: bytes, seq: int, id_head: bytes) -> bool:
    """Return whether an id is that of message ``seq`` of the topic of ``id_head``, under any node id."""
    head = message_id[:6]
    if message_id[6:] != b"%010x" % (seq & SEQ_MASK) or not _HEX_DIGITS.issuperset(head):
        return False
    return head == id_head or (int(head, 16) ^ int(id_head, 16)) & TOPIC_MASK == 0
