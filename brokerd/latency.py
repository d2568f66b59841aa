"""Latency percentiles of the last minutes, as nsqd's ``--e2e-processing-latency-*`` flags configure them.

The kernel counts every FIN in a cumulative histogram. Recent latencies are the difference of two readings of it, so
they add no cost to a FIN.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypedDict
from weakref import WeakKeyDictionary

from nsqwire.histogram import Histogram

if TYPE_CHECKING:
    from brokerd.channel import Channel


class Percentile(TypedDict):
    """``value`` is in whole nanoseconds, 0 if no message was finished in the period."""

    quantile: float
    value: int


class LatencyStats(TypedDict):
    """Latency over the period; ``percentiles`` is None if none are configured."""

    count: int
    percentiles: list[Percentile] | None


class RecentLatencies:
    """The recent latencies of every channel. They cover at least half a period and at most a full one, as in nsqd.

    The owner calls ``rotate`` for each channel every half period.
    """

    def __init__(self, quantiles: Sequence[float]) -> None:
        self._quantiles = quantiles
        # A channel's readings at its last two rotations, empty histograms before the first.
        self._readings: WeakKeyDictionary[Channel, tuple[Histogram, Histogram]] = WeakKeyDictionary()

    def rotate(self, channel: Channel) -> None:
        """Begin the channel's next half period, and forget the one before the last."""
        _, last = self._readings.get(channel, _NO_READINGS)
        self._readings[channel] = last, channel.histogram

    def recent(self, channel: Channel) -> Histogram:
        """Latencies of the messages that the channel's consumers finished in the period."""
        before, _ = self._readings.get(channel, _NO_READINGS)
        return channel.histogram.difference(before)

    def of_channels(self, channels: Iterable[Channel]) -> LatencyStats:
        """The latency of all ``channels`` together; no percentiles if there are no channels."""
        if not self._quantiles:
            return NO_PERCENTILES
        merged = None
        for channel in channels:
            recent = self.recent(channel)
            if merged is None:
                merged = recent
            else:
                merged.merge(recent)
        if merged is None:
            return NO_PERCENTILES
        values = merged.quantiles(self._quantiles)
        percentiles: list[Percentile] = [
            {"quantile": quantile, "value": round(value or 0)}
            for quantile, value in zip(self._quantiles, values, strict=True)
        ]
        return {"count": merged.count, "percentiles": percentiles}


NO_PERCENTILES: LatencyStats = {"count": 0, "percentiles": None}
_NO_READINGS = Histogram(), Histogram()
