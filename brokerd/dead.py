"""The dead messages of a channel: those that it does not deliver any more, and keeps until an operator decides.

A dead message takes 33 bytes here; its body stays in the topic's log.
"""

from __future__ import annotations

import enum
import struct
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from nsqwire.units import Nanoseconds

ENTRY: Final = struct.Struct(">QHHBQQI")
"""``seq | attempts | failures | reason | first failure, ns | death, ns | position of the client's id``."""
_SEQ: Final = struct.Struct(">Q")
_REASON_AT: Final = 12
ENTRIES_IN_A_BLOCK: Final = 256
MAX_CLIENT_ID_BYTES: Final = 255
"""A longer id of a client is cut."""
_UNUSED_NAMES: Final = 1024
"""Ids of clients that no message refers to any more are kept up to this number."""


class Reason(enum.StrEnum):
    """Why a message died or was dropped. The positions are stored."""

    ATTEMPTS = "attempts"
    EXPIRED = "expired"
    OVERFLOW = "overflow"
    OPERATOR = "operator"

    @property
    def code(self) -> int:
        """Its number in files."""
        return REASONS.index(self)


REASONS: Final = tuple(Reason)


class DeadMessage(NamedTuple):
    """A message that died at ``died_ns`` after ``attempts`` deliveries, of which ``failures`` failed.

    ``first_ns`` is when the first one failed; both times are Unix nanoseconds. ``client_id`` is that of the last client
    that the message was in flight with; empty if there was none.
    """

    seq: int
    attempts: int
    failures: int
    reason: Reason
    first_ns: Nanoseconds
    died_ns: Nanoseconds
    client_id: str


class DeadMessages:
    """Dead messages by sequence number. ``frames`` has copies of those that are no longer in the log.

    The blocks are immutable, so that ``copy``, which is called at each checkpoint, costs no more than their number.
    """

    def __init__(self) -> None:
        self.frames: dict[int, bytes] = {}
        self.copied_end = 0
        """All messages below this number have copies."""
        self.counts: Counter[Reason] = Counter()
        """The number of messages by reason."""
        self._blocks: list[bytes] = []
        self._firsts: list[int] = []
        self._names: list[str] = []
        self._positions: dict[str, int] = {}

    def __len__(self) -> int:
        return self.counts.total()

    def __contains__(self, seq: int) -> bool:
        return self._find(seq) is not None

    def copy(self) -> DeadMessages:
        """The same messages, without the copies in ``frames``."""
        copy = DeadMessages()
        copy.counts = Counter(self.counts)
        copy._blocks, copy._firsts = self._blocks.copy(), self._firsts.copy()
        copy._names, copy._positions = self._names.copy(), self._positions.copy()
        return copy

    # -- changes --------------------------------------------------------------------------------------------------

    def add(self, message: DeadMessage) -> None:
        """Add a message, or replace the one with its number."""
        entry = ENTRY.pack(*message[:3], message.reason.code, *message[4:6], self._position(message.client_id))
        self.counts[message.reason] += 1
        at = bisect_right(self._firsts, message.seq) - 1
        if at < 0:
            if not self._blocks:
                self._blocks, self._firsts = [entry], [message.seq]
                return
            at = 0
        block = self._blocks[at]
        offset = _offset(block, message.seq)
        end = offset
        if _is_at(block, offset, message.seq):
            self.counts[REASONS[ENTRY.unpack_from(block, offset)[3]]] -= 1
            end += ENTRY.size
        block = block[:offset] + entry + block[end:]
        entries = len(block) // ENTRY.size
        if entries > ENTRIES_IN_A_BLOCK:
            is_last = offset == (entries - 1) * ENTRY.size  # ascending numbers leave full blocks behind
            middle = (entries - 1 if is_last else entries // 2) * ENTRY.size
            self._put(at, [block[:middle], block[middle:]])
        else:
            self._put(at, [block])

    def remove(self, seqs: Sequence[int]) -> None:
        """Forget those messages of ``seqs``, ascending, that are here."""
        start = 0
        changed = dict[int, set[int]]()
        while start < len(seqs):
            at = bisect_right(self._firsts, seqs[start]) - 1
            end = bisect_left(seqs, self._firsts[at + 1], start) if at + 1 < len(self._firsts) else len(seqs)
            if at >= 0 and _offset(self._blocks[at], seqs[start]) < _offset(self._blocks[at], seqs[end - 1] + 1):
                changed[at] = set(seqs[start:end])
            start = end
        for at in reversed(changed):
            self._remove_from(at, changed[at])
        for seq in seqs if self.frames else ():
            self.frames.pop(seq, None)
        if len(self._names) > _UNUSED_NAMES + len(self):
            self._forget_names()

    def _remove_from(self, at: int, seqs: set[int]) -> None:
        block, start, kept = self._blocks[at], 0, list[bytes]()
        for position, (seq, _, _, reason, *_) in enumerate(ENTRY.iter_unpack(block)):
            if seq in seqs:
                kept.append(block[start : position * ENTRY.size])
                start = (position + 1) * ENTRY.size
                self.counts[REASONS[reason]] -= 1
        rest = b"".join([*kept, block[start:]])
        self._put(at, [rest] if rest else [])

    def clear(self) -> None:
        """Forget all messages."""
        self.frames.clear()
        self.counts.clear()
        self._blocks, self._firsts, self._names = [], [], []
        self._positions.clear()

    def _put(self, at: int, blocks: list[bytes]) -> None:
        self._blocks[at : at + 1] = blocks
        self._firsts[at : at + 1] = [_SEQ.unpack_from(block)[0] for block in blocks]

    def _position(self, client_id: str) -> int:
        position = self._positions.get(client_id)
        if position is None:
            position = self._positions[client_id] = len(self._names)
            self._names.append(client_id)
        return position

    def _forget_names(self) -> None:
        frames, messages = self.frames.copy(), list(self)
        self.clear()
        self.frames.update(frames)
        for message in messages:
            self.add(message)

    # -- queries --------------------------------------------------------------------------------------------------

    def get(self, seq: int) -> DeadMessage | None:
        """The message with this number; None if it is not here."""
        found = self._find(seq)
        return None if found is None else _message(self._blocks[found[0]], found[1], self._names)

    def __iter__(self) -> Iterator[DeadMessage]:
        """The messages, ascending. Changes meanwhile are not seen."""
        return self.starting_at(0)

    def starting_at(self, seq: int) -> Iterator[DeadMessage]:
        """Yield the messages from number ``seq`` on, ascending. Changes meanwhile are not seen."""
        first, names = max(0, bisect_right(self._firsts, seq) - 1), self._names
        for at, block in enumerate(self._blocks[first:]):
            for offset in range(_offset(block, seq) if at == 0 else 0, len(block), ENTRY.size):
                yield _message(block, offset, names)

    def skipping(self, count: int) -> Iterator[DeadMessage]:
        """Yield the messages after the first ``count``, ascending."""
        names = self._names
        for block in self._blocks.copy():
            entries = len(block) // ENTRY.size
            for offset in range(min(count, entries) * ENTRY.size, len(block), ENTRY.size):
                yield _message(block, offset, names)
            count = max(0, count - entries)

    def portions(self) -> Iterator[list[DeadMessage]]:
        """Yield the messages, ascending, in lists of a few hundred. Changes meanwhile are not seen."""
        names = self._names
        for block in self._blocks.copy():
            yield [_message(block, offset, names) for offset in range(0, len(block), ENTRY.size)]

    @property
    def lowest(self) -> int | None:
        """The lowest message without a copy in ``frames``, which is needed from the log; None if there is none."""
        if not self.copied_end:
            return self._firsts[0] if self._firsts else None
        return next((message.seq for message in self.starting_at(self.copied_end)), None)

    @property
    def end(self) -> int:
        """The number after the highest message; 0 if there is none."""
        return 1 + _SEQ.unpack_from(self._blocks[-1], len(self._blocks[-1]) - ENTRY.size)[0] if self._blocks else 0

    def _find(self, seq: int) -> tuple[int, int] | None:
        """The position of its block, and its offset there."""
        at = bisect_right(self._firsts, seq) - 1
        if at < 0:
            return None
        offset = _offset(self._blocks[at], seq)
        return (at, offset) if _is_at(self._blocks[at], offset, seq) else None

    # -- checkpoints ----------------------------------------------------------------------------------------------

    def packed(self) -> Iterator[tuple[bytes, list[str]]]:
        """Yield blocks of packed entries, the first one with the ids of clients that all positions refer to."""
        for number, block in enumerate(self._blocks):
            yield block, [] if number else self._names

    def add_packed(self, block: bytes, names: list[str]) -> None:
        """Add the next block that ``packed`` yielded. Raises ValueError if it is none."""
        count, rest = divmod(len(block), ENTRY.size)
        for name in names:
            self._position(name)
        seqs = struct.unpack(">" + "Q25x" * count, block) if not rest else ()
        positions = struct.unpack(">" + "29xI" * count, block) if not rest else ()
        codes = block[_REASON_AT :: ENTRY.size]
        is_sorted = all(earlier < later for earlier, later in pairwise((self.end - 1, *seqs)))
        if not seqs or not is_sorted or max(positions) >= len(self._names) or max(codes) >= len(REASONS):
            raise ValueError("a block of dead messages is out of order, or has an unknown reason or client")
        for code, times in Counter(codes).items():
            self.counts[REASONS[code]] += times
        self._blocks.append(block)
        self._firsts.append(seqs[0])


def _message(block: bytes, offset: int, names: list[str]) -> DeadMessage:
    seq, attempts, failures, reason, first_ns, died_ns, position = ENTRY.unpack_from(block, offset)
    return DeadMessage(seq, attempts, failures, REASONS[reason], first_ns, died_ns, names[position])


def _offset(block: bytes, seq: int) -> int:
    """The offset of the first entry whose number is at least ``seq``."""
    low, high = 0, len(block) // ENTRY.size
    while low < high:
        middle = (low + high) // 2
        if _SEQ.unpack_from(block, middle * ENTRY.size)[0] < seq:
            low = middle + 1
        else:
            high = middle
    return low * ENTRY.size


def _is_at(block: bytes, offset: int, seq: int) -> bool:
    return offset < len(block) and _SEQ.unpack_from(block, offset)[0] == seq


def cut_client_id(client_id: str) -> str:
    """The id, cut to MAX_CLIENT_ID_BYTES bytes of UTF-8, with ``?`` for what UTF-8 cannot encode."""
    return client_id.encode("utf-8", "replace")[:MAX_CLIENT_ID_BYTES].decode("utf-8", "ignore")
