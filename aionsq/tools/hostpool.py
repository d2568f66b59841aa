"""Choice of the address for the next message. There is no clock here: callers pass the time and a random source.

Source: bitly's go-hostpool, which NSQ's nsq_to_http and nsq_to_nsq use.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final, Protocol

from nsqwire.units import Seconds

FIRST_RETRY_S: Final = 30.0
MAX_RETRY_S: Final = 900.0

FIRST_EPSILON: Final = 0.3
MIN_EPSILON: Final = 0.01
EPSILON_DECAY: Final = 0.90
REMEMBERED_S: Final = 300.0
BUCKETS: Final = 120

MODES: Final = ("round-robin", "hostpool", "epsilon-greedy")


class Pool(Protocol):
    """A set of addresses. Times are seconds of one monotonic clock."""

    def pick(self, now: Seconds) -> str:
        """The address to try next."""

    def succeeded(self, address: str, seconds: float, now: Seconds) -> None:
        """A delivery to the address succeeded and took ``seconds``."""

    def failed(self, address: str, now: Seconds) -> None:
        """A delivery to the address failed."""


def pool_of(mode: str, addresses: Sequence[str], random: Callable[[], float]) -> Pool:
    """Return the pool for a mode of :data:`MODES`; ``random`` returns a random number in [0, 1)."""
    if mode == "round-robin":
        return RoundRobin(addresses)
    return EpsilonGreedy(addresses, random) if mode == "epsilon-greedy" else HostPool(addresses)


class RoundRobin:
    """Picks all addresses in turn, including those that failed."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = addresses
        self._next = 0

    def pick(self, now: Seconds) -> str:
        address = self._addresses[self._next]
        self._next = (self._next + 1) % len(self._addresses)
        return address

    def succeeded(self, address: str, seconds: float, now: Seconds) -> None:
        pass

    def failed(self, address: str, now: Seconds) -> None:
        pass


@dataclass
class _Host:
    address: str
    dead: bool = False
    retry_at: Seconds = 0.0
    retry_delay_s: float = 0.0
    timings: deque[_Bucket] = field(default_factory=deque)

    def may_be_tried(self, now: Seconds) -> bool:
        return not self.dead or self.retry_at < now

    def trying(self, now: Seconds) -> None:
        """Called before the address is tried. If the address is dead, this doubles the wait before its next trial."""
        if self.dead:
            self.retry_delay_s = min(self.retry_delay_s * 2, MAX_RETRY_S)
            self.retry_at = now + self.retry_delay_s


class HostPool:
    """Picks live addresses in turn.

    An address that fails is dead: it is not used for 30 s, then tried with one message. Each failed trial doubles the
    wait, up to 900 s. If all addresses are dead, all are marked live again.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        self._hosts = [_Host(address) for address in addresses]
        self._by_address = {host.address: host for host in self._hosts}
        self._next = 0

    def pick(self, now: Seconds) -> str:
        for step in range(len(self._hosts)):
            index = (self._next + step) % len(self._hosts)
            if self._hosts[index].may_be_tried(now):
                return self._take(index, now)
        for host in self._hosts:
            host.dead = False
        return self._take(0, now)

    def succeeded(self, address: str, seconds: float, now: Seconds) -> None:
        self._by_address[address].dead = False

    def failed(self, address: str, now: Seconds) -> None:
        host = self._by_address[address]
        if not host.dead:
            host.dead = True
            host.retry_delay_s = FIRST_RETRY_S
            host.retry_at = now + FIRST_RETRY_S

    def _take(self, index: int, now: Seconds) -> str:
        self._next = (index + 1) % len(self._hosts)
        host = self._hosts[index]
        host.trying(now)
        return host.address


@dataclass
class _Bucket:
    """The successful deliveries within one period of ``REMEMBERED_S / BUCKETS`` seconds."""

    number: int
    count: int = 0
    seconds: float = 0.0


class EpsilonGreedy(HostPool):
    """Picks mostly the fastest address, and sometimes another, to measure it.

    With probability ε, it picks the next address in turn; ε starts at 0.3 and shrinks by a tenth each time, down to
    0.01. Otherwise it picks a random address, weighted by 1 / mean response time over the last five minutes. In that
    mean, the weight of a bucket falls linearly with its age. Without any measurement, it picks the next in turn.
    """

    def __init__(self, addresses: Sequence[str], random: Callable[[], float]) -> None:
        super().__init__(addresses)
        self.epsilon = FIRST_EPSILON
        self._random = random

    def pick(self, now: Seconds) -> str:
        if self._random() < self.epsilon:
            self.epsilon = max(self.epsilon * EPSILON_DECAY, MIN_EPSILON)
            return super().pick(now)
        known = [(host, mean) for host in self._hosts if host.may_be_tried(now) and (mean := _mean(host, now))]
        if not known:
            return super().pick(now)
        bounds = list(accumulate(1 / mean for _, mean in known))
        drawn = bisect_right(bounds, self._random() * bounds[-1])
        host = known[min(drawn, len(known) - 1)][0]
        host.trying(now)
        return host.address

    def succeeded(self, address: str, seconds: float, now: Seconds) -> None:
        super().succeeded(address, seconds, now)
        timings = self._by_address[address].timings
        number = _bucket_number(now)
        if not timings or timings[-1].number < number:
            timings.append(_Bucket(number))
        timings[-1].count += 1
        timings[-1].seconds += max(seconds, 1e-9)  # the clock may not have advanced, and 0 means "unknown"


def _bucket_number(now: Seconds) -> int:
    return int(now / (REMEMBERED_S / BUCKETS))


def _mean(host: _Host, now: Seconds) -> float:
    """Return the weighted mean response time in seconds; 0 without a success in the last five minutes."""
    newest = _bucket_number(now)
    while host.timings and host.timings[0].number <= newest - BUCKETS:
        host.timings.popleft()
    total = weights = 0.0
    for bucket in host.timings:
        weight = (BUCKETS - (newest - bucket.number)) / BUCKETS
        total += weight * bucket.seconds / bucket.count
        weights += weight
    return total / weights if weights else 0.0
