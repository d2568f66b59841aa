"""The records of a stream of bytes, and how fast they may go out. Pure: bytes and times are passed in."""

from __future__ import annotations

from collections.abc import Sequence


class Records:
    """Cuts what comes in at a delimiter of one byte, which belongs to no record. Empty records are left out."""

    def __init__(self, delimiter: bytes) -> None:
        self._delimiter = delimiter
        self._begun: list[bytes] = []  # in pieces: a long record must not be copied with each read

    def received(self, data: bytes) -> list[bytes]:
        """The records that ``data`` completes."""
        first, *others = data.split(self._delimiter)
        self._begun.append(first)
        if not others:
            return []
        complete = [b"".join(self._begun), *others[:-1]]
        self._begun = [others[-1]]
        return [record for record in complete if record]

    def ended(self) -> list[bytes]:
        """The record that the end of the stream completes, if there is one: the last needs no delimiter."""
        last, self._begun = b"".join(self._begun), []
        return [last] if last else []


def batches(records: Sequence[bytes], *, most: int, most_bytes: int) -> list[Sequence[bytes]]:
    """Records in batches of ``most`` records and ``most_bytes`` bytes; a longer record is a batch of its own."""
    cut: list[Sequence[bytes]] = []
    start = size = 0
    for index, record in enumerate(records):
        if index > start and (index - start >= most or size + len(record) > most_bytes):
            cut.append(records[start:index])
            start, size = index, 0
        size += len(record)
    if start < len(records):
        cut.append(records[start:])
    return cut


class Throttle:
    """Lets ``rate`` records a second pass, and up to one second's worth at once after a quiet time."""

    def __init__(self, rate: int, now: float) -> None:
        self._rate = rate
        self._at = now
        self._free = float(rate)

    def take(self, count: int, now: float) -> float:
        """Account for ``count`` records that are to go out; returns the seconds to wait before they may."""
        self._free = min(self._free + (now - self._at) * self._rate, float(self._rate))
        self._at = now
        self._free -= count
        return max(0.0, -self._free / self._rate)
