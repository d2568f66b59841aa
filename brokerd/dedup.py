"""Publishes that clients repeat: the deduplication ids that a topic has seen in a window of time."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Final, NamedTuple

from nsqwire.units import Nanoseconds, Seconds

MAX_ID_BYTES: Final = 256
MOST_IDS: Final = 100_000
"""Maximum number of ids that a topic remembers. Beyond it, the oldest are forgotten before the window ends."""
DIGEST_BYTES: Final = 16
ENTRY: Final = struct.Struct(">16sQIQQ")
"""A Publish in a checkpoint: ``digest 16 bytes | first_seq u64 | length u32 | timestamp_ns u64 | until_ns u64``,
big-endian."""


class Publish(NamedTuple):
    """A stored publish: the digest of its deduplication id, its first message, their number, and when they were
    accepted, Unix nanoseconds. It is remembered until ``until_ns`` of the kept clock (:mod:`brokerd.clock`)."""

    digest: bytes
    first_seq: int
    length: int
    timestamp_ns: Nanoseconds
    until_ns: int

    @property
    def seqs(self) -> range:
        """The numbers of its messages."""
        return range(self.first_seq, self.first_seq + self.length)


def digest_of(dedup_id: bytes) -> bytes:
    """Return what is kept of an id."""
    return blake2b(dedup_id, digest_size=DIGEST_BYTES).digest()


class SeenIds:
    """The publishes of one topic that are remembered, by the digests of their ids. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._publishes: dict[bytes, tuple[Publish, Seconds]] = {}  # each with its end, in their order

    def __iter__(self) -> Iterator[Publish]:
        return (publish for publish, _ in self._publishes.values())

    def find(self, digest: bytes, now: Seconds) -> Publish | None:
        """The publish with the id of this digest, if it is still remembered."""
        publish, until = self._publishes.get(digest, (None, 0.0))
        return publish if now < until else None

    def add(self, publish: Publish, until: Seconds, now: Seconds) -> None:
        """Remember a publish until ``until``, which is the latest of all, and forget those whose time has ended."""
        publishes = self._publishes
        publishes.pop(publish.digest, None)
        publishes[publish.digest] = publish, until
        while publishes:
            oldest, ends = next(iter(publishes.values()))
            if len(publishes) <= MOST_IDS and now < ends:
                return
            del publishes[oldest.digest]

    def restore(self, publishes: Iterable[tuple[Publish, Seconds]], now: Seconds) -> None:
        """Remember publishes again after a restart, each until its time."""
        for publish, until in sorted(publishes, key=lambda each: each[1]):
            self.add(publish, until, now)
