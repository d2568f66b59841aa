"""Publishes that clients repeat: the deduplication ids that a topic has seen in a window of time."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Final, NamedTuple

from nsqwire.units import Nanoseconds

MAX_ID_BYTES: Final = 256
MOST_IDS: Final = 100_000
"""A topic remembers as many ids at most. Beyond them it forgets the oldest before the end of the window."""
DIGEST_BYTES: Final = 16
ENTRY: Final = struct.Struct(">16sQIQ")
"""A Publish in a checkpoint: ``digest 16 bytes | first_seq u64 | length u32 | timestamp_ns u64``, big-endian."""


class Publish(NamedTuple):
    """A stored publish: the digest of its deduplication id, its first message, their number, and when they were
    accepted, Unix nanoseconds."""

    digest: bytes
    first_seq: int
    length: int
    timestamp_ns: Nanoseconds

    @property
    def seqs(self) -> range:
        """The numbers of its messages."""
        return range(self.first_seq, self.first_seq + self.length)


def digest_of(dedup_id: bytes) -> bytes:
    """Return what is kept of an id."""
    return blake2b(dedup_id, digest_size=DIGEST_BYTES).digest()


class SeenIds:
    """The publishes of one topic within the last ``window_ns``, by the digests of their ids."""

    def __init__(self, window_ns: Nanoseconds) -> None:
        self._window_ns = window_ns
        self._publishes: dict[bytes, Publish] = {}  # in the order of their timestamps

    def __iter__(self) -> Iterator[Publish]:
        return iter(self._publishes.values())

    def find(self, digest: bytes, now_ns: Nanoseconds) -> Publish | None:
        """The publish with the id of this digest, within the window that ends at ``now_ns``. After a step back of the
        clock the window is longer, after one forward shorter."""
        found = self._publishes.get(digest)
        return found if found is not None and now_ns - found.timestamp_ns < self._window_ns else None

    def add(self, publish: Publish) -> None:
        """Remember a stored publish, and forget those before the window that ends with it."""
        publishes = self._publishes
        publishes.pop(publish.digest, None)
        publishes[publish.digest] = publish
        while publishes:
            oldest = next(iter(publishes.values()))
            if len(publishes) <= MOST_IDS and publish.timestamp_ns - oldest.timestamp_ns < self._window_ns:
                return
            del publishes[oldest.digest]

    def restore(self, publishes: Iterable[Publish]) -> None:
        """Remember publishes again after a restart."""
        for publish in sorted(publishes, key=lambda each: each.timestamp_ns):
            self.add(publish)
