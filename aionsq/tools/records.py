"""Splitting a byte stream into records, and limiting their rate. No I/O and no clock: callers pass bytes and times."""

from __future__ import annotations

from collections.abc import Sequence

from nsqwire.units import Seconds


class Records:
    """Splits input at a one-byte delimiter, which is not part of the records. Empty records are skipped."""

    def __init__(self, delimiter: bytes) -> None:
        self._delimiter = delimiter
        self._begun: list[bytes] = []  # a list, so that a long record is not copied at each read

    def received(self, data: bytes) -> list[bytes]:
        """Process input and return the records that it completes."""
        first, *others = data.split(self._delimiter)
        self._begun.append(first)
        if not others:
            return []
        complete = [b"".join(self._begun), *others[:-1]]
        self._begun = [others[-1]]
        return [record for record in complete if record]

    def ended(self) -> list[bytes]:
        """Process the end of the stream; returns the last record if it has no delimiter."""
        last, self._begun = b"".join(self._begun), []
        return [last] if last else []


def batches(records: Sequence[bytes], *, most: int, most_bytes: int) -> list[Sequence[bytes]]:
    """Split into batches of at most ``most`` records and ``most_bytes`` bytes. A longer record is a batch alone."""
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
    """Limits output to ``rate`` records per second, with bursts of up to one second's records."""

    def __init__(self, rate: int, now: Seconds) -> None:
        self._rate = rate
        self._at = now
        self._free = float(rate)

    def take(self, count: int, now: Seconds) -> float:
        """Reserve ``count`` records; returns the seconds to wait before sending them."""
        self._free = min(self._free + (now - self._at) * self._rate, float(self._rate))
        self._at = now
        self._free -= count
        return max(0.0, -self._free / self._rate)
