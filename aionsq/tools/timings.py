"""The status lines of nsq_to_http and nsq_to_nsq: percentiles of the latest delivery times."""

from __future__ import annotations

from collections.abc import Callable, Sequence

FEW = 100
FEW_WARNING = f"Warning: use of status-every < {FEW} provides low quality percentile data"


class Timings:
    """Calls ``write`` with a status line after every ``every`` successes; 0: never."""

    def __init__(self, every: int, prefix: str, write: Callable[[str], None]) -> None:
        self._every = every
        self._prefix = prefix
        self._write = write
        self._seconds: list[float] = []

    def succeeded(self, seconds: float) -> None:
        """Record a delivery that took ``seconds``."""
        if not self._every:
            return
        self._seconds.append(seconds)
        if len(self._seconds) >= self._every:
            self._write(line(self._prefix, self._seconds))
            self._seconds = []


class AddressTimings:
    """Timings of all addresses together and, if there are several, of each address."""

    def __init__(self, every: int, addresses: Sequence[str], write: Callable[[str], None]) -> None:
        several = addresses if len(addresses) > 1 else ()
        self._all = Timings(every, "[aggregate]:", write)
        self._by_address = {address: Timings(every, f"[{address}]:", write) for address in several}

    def succeeded(self, address: str, seconds: float) -> None:
        """Record a delivery to ``address`` that took ``seconds``."""
        if address in self._by_address:
            self._by_address[address].succeeded(seconds)
        self._all.succeeded(seconds)


def line(prefix: str, seconds: Sequence[float]) -> str:
    """``[aggregate]: finished 250 - 99th: 2.20ms - 95th: 2.20ms - avg: 2.20ms``; ``seconds`` is not empty."""
    ordered = sorted(seconds)
    high, less, mean = percentile(99, ordered), percentile(95, ordered), sum(ordered) / len(ordered)
    return (
        f"{prefix} finished {len(ordered)} - 99th: {high * 1000:.2f}ms - 95th: {less * 1000:.2f}ms"
        f" - avg: {mean * 1000:.2f}ms"
    )


def percentile(percent: float, ordered: Sequence[float]) -> float:
    """The value at the rounded rank, as NSQ's tool computes it; ``ordered`` is sorted and not empty."""
    return ordered[min(int(percent / 100 * len(ordered) + 0.5), len(ordered) - 1)]
