"""Figures of the last seconds of the clients of watched channels, and which clients are slow.

A client is slow, compared with the channel's other clients, if

- a message is in flight with it for at least SLOW_TIMES the median time of the others, or
- it has had messages in flight for SLOW_AFTER_S and finished none, while others have finished some.

The time of a message is the mean number in flight divided by the finish rate (Little's law).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from nsqplatform.cluster.snapshots.rows import ClientRow, WatchedClient
from nsqplatform.cluster.store import Channel
from nsqplatform.number_format import number
from nsqwire.units import Seconds

WINDOW_S = 20.0
SLOW_AFTER_S = 10.0
"""Time for which a client must have been observed."""
SLOW_TIMES = 3.0


class Counts(NamedTuple):
    """Of one client at ``at``, monotonic seconds."""

    at: Seconds
    in_flight: int
    finished: int
    requeued: int
    timed_out: int | None


@dataclass
class Track:
    """The counts of one client within WINDOW_S."""

    counts: deque[Counts] = field(default_factory=deque)

    def add(self, counts: Counts) -> None:
        known = self.counts
        if known and counts.finished < known[-1].finished:
            known.clear()  # another connection with the same address
        if known and counts.at <= known[-1].at:
            return  # the node has not answered since
        known.append(counts)
        while counts.at - known[0].at > WINDOW_S:
            known.popleft()

    @property
    def elapsed_s(self) -> float:
        return self.counts[-1].at - self.counts[0].at if self.counts else 0.0

    @property
    def finished(self) -> int:
        return self.counts[-1].finished - self.counts[0].finished

    @property
    def finish_rate(self) -> float | None:
        return self.finished / self.elapsed_s if self.elapsed_s else None

    @property
    def requeue_rate(self) -> float | None:
        return (self.counts[-1].requeued - self.counts[0].requeued) / self.elapsed_s if self.elapsed_s else None

    @property
    def timeout_rate(self) -> float | None:
        first, last = self.counts[0].timed_out, self.counts[-1].timed_out
        return None if first is None or last is None or not self.elapsed_s else (last - first) / self.elapsed_s

    @property
    def message_s(self) -> float | None:
        """None without a finished message."""
        rate = self.finish_rate
        return sum(counts.in_flight for counts in self.counts) / len(self.counts) / rate if rate else None

    @property
    def has_finished_none(self) -> bool:
        """Whether it has had messages in flight for SLOW_AFTER_S and finished none."""
        return self.elapsed_s >= SLOW_AFTER_S and not self.finished and all(each.in_flight for each in self.counts)


class ClientRates:
    """The tracks of the clients of the watched channels, by channel, node and remote address."""

    def __init__(self) -> None:
        self._tracks: dict[Channel, dict[tuple[str, str], Track]] = {}

    def keep(self, watched: Iterable[Channel]) -> None:
        """Forget the clients of channels that are no longer watched."""
        self._tracks = {channel: self._tracks.get(channel, {}) for channel in watched}

    def add(self, channel: Channel, rows: Sequence[ClientRow], read_at: Mapping[str, Seconds]) -> list[WatchedClient]:
        """Add the counts of all clients of a channel. ``read_at``: when each node answered, monotonic seconds."""
        before = self._tracks.get(channel, {})
        tracks = {(row["node"], row["remote_address"]): Track() for row in rows}
        self._tracks[channel] = tracks = {key: before.get(key, track) for key, track in tracks.items()}
        for row in rows:
            counts = Counts(
                read_at[row["node"]],
                row["in_flight_count"],
                row["finish_count"],
                row["requeue_count"],
                row["timeout_count"],
            )
            tracks[row["node"], row["remote_address"]].add(counts)
        times = sorted(time for track in tracks.values() if (time := track.message_s) is not None)
        return [watched(row, tracks[row["node"], row["remote_address"]], times) for row in rows]


def watched(row: ClientRow, track: Track, times: Sequence[float]) -> WatchedClient:
    """``times``: seconds per message of all clients of the channel, sorted."""
    message_s = track.message_s
    return WatchedClient(
        **row,
        finish_rate=track.finish_rate,
        requeue_rate=track.requeue_rate,
        timeout_rate=track.timeout_rate,
        message_ms=None if message_s is None else message_s * 1000,
        slow=slow(track, message_s, times),
    )


def slow(track: Track, own: float | None, times: Sequence[float]) -> str:
    """The rule by which a client is slow, as a sentence; empty if it is not. ``own``: its seconds per message."""
    usual = median_without(times, own)
    if usual is None or track.elapsed_s < SLOW_AFTER_S:
        return ""
    if track.has_finished_none:
        return f"Finished nothing in {track.elapsed_s:.0f} s with messages in flight, while other clients did"
    if own is None or not usual or own < SLOW_TIMES * usual:
        return ""
    times_usual = f"{own / usual:,.0f} times the median of the other clients"
    return f"{number(own)} s a message, {times_usual} ({number(usual)} s)"


def median_without(times: Sequence[float], own: float | None) -> float | None:
    """The median of sorted values without one of them; None if no other is left. Copies nothing: a channel can have
    thousands of clients, and each asks at every poll."""
    left = len(times) if own is None else len(times) - 1
    if left < 1:
        return None
    taken = len(times) if own is None else bisect_left(times, own)

    def other(place: int) -> float:
        return times[place if place < taken else place + 1]

    return (other((left - 1) // 2) + other(left // 2)) / 2
