"""Latency percentiles over a window of the last minutes, as nsqd's flags ask for.

The kernel counts every FIN in a cumulative histogram. What fell into the window is the difference of two readings of
it, so a FIN costs nothing more for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypedDict
from weakref import WeakKeyDictionary

from nsqwire.histogram import Histogram

if TYPE_CHECKING:
    from brokerd.channel import Channel


class Percentile(TypedDict):
    """``value`` is in whole ns, 0 where nothing was finished in the window."""

    quantile: float
    value: int


class LatencyStats(TypedDict):
    """Latency over the window; ``percentiles`` is None while none is configured."""

    count: int
    percentiles: list[Percentile] | None


class LatencyWindows:
    """The window of every channel, in two halves as nsqd's: it reaches back between one half and two.

    Whoever holds it has ``turn`` called for each channel once every half window.
    """

    def __init__(self, quantiles: Sequence[float]) -> None:
        self._quantiles = quantiles
        # The channel's readings at the last two turns; before its first turn both are empty, as it was itself.
        self._readings: WeakKeyDictionary[Channel, tuple[Histogram, Histogram]] = WeakKeyDictionary()

    def turn(self, channel: Channel) -> None:
        """Begin the channel's next half window, and forget the one before the last."""
        _, last = self._readings.get(channel, _NO_READINGS)
        self._readings[channel] = last, channel.histogram

    def recent(self, channel: Channel) -> Histogram:
        """What the channel's consumers finished within the window."""
        before, _ = self._readings.get(channel, _NO_READINGS)
        return channel.histogram.difference(before)

    def of_channels(self, channels: Iterable[Channel]) -> LatencyStats:
        """The latency of all these together; of none, no percentiles."""
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
