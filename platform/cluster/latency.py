"""Latency percentiles of the last minute, from histograms that only ever grow."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from cluster.stats import LatencyHistogram, NodeStats
from nsqwire.histogram import Histogram

WINDOW_S = 60.0
CHECKPOINT_EVERY_S = 5.0
"""The window is between this much short of a minute and a whole one: what is kept is 12 histograms, not 60."""


@dataclass(slots=True)
class _Series:
    """One channel on one node, in one life of its process."""

    told: LatencyHistogram
    """What the node said last."""
    latest: Histogram
    """The same, read. It stays the same object while nothing is finished, so that idle channels cost nothing."""
    checkpoints: deque[tuple[float, Histogram]] = field(default_factory=deque)


class LatencyWindow:
    """Fed each node's readings; says what was finished within the last minute across nodes. Time is passed in."""

    def __init__(self) -> None:
        self._boots: dict[str, str] = {}
        self._series: dict[str, dict[tuple[str, str], _Series]] = {}

    def observe(self, node: str, stats: NodeStats, now: float) -> None:
        """Take a node's reading at ``now``, in seconds on any clock that does not step back."""
        restarted = node in self._boots and self._boots[node] != stats.boot
        # All that a restarted node has counted is new, and so is all of a channel that its last reading did not have:
        # their base is empty. Of a node just met, or met again, we cannot tell: its base is what it shows first.
        all_new = restarted or node in self._series
        held = {} if restarted else self._series.get(node, {})
        self._boots[node] = stats.boot
        fresh: dict[tuple[str, str], _Series] = {}
        for topic in stats.topics:
            for channel in topic.channels:
                told = channel.latency_histogram
                if told is None:
                    continue
                key = (topic.topic_name, channel.channel_name)
                series = held.get(key)
                histogram = series.latest if series is not None and series.told == told else read(told)
                made_again = (
                    series is not None and histogram is not series.latest and histogram.count < series.latest.count
                )
                if series is None or made_again:
                    series = _Series(told, histogram, deque([(now, Histogram() if all_new else histogram)]))
                series.told, series.latest = told, histogram
                if now - series.checkpoints[-1][0] >= CHECKPOINT_EVERY_S:
                    series.checkpoints.append((now, histogram))
                while len(series.checkpoints) > 1 and now - series.checkpoints[0][0] > WINDOW_S:
                    series.checkpoints.popleft()
                fresh[key] = series
        self._series[node] = fresh

    def lose(self, node: str) -> None:
        """Drop the minute of a node that is down: nothing is known of it."""
        self._series.pop(node, None)

    def forget(self, node: str) -> None:
        """Drop a node that is gone for good."""
        self._series.pop(node, None)
        self._boots.pop(node, None)

    def quantiles_ms(self, topic: str, channel: str, quantiles: list[float]) -> list[float | None]:
        """Milliseconds at each quantile over all nodes; None where nothing was finished."""
        merged = Histogram()
        for series in self._series.values():
            held = series.get((topic, channel))
            if held is None or held.latest is held.checkpoints[0][1]:
                continue
            try:
                merged.merge(held.latest.difference(held.checkpoints[0][1]))
            except ValueError:  # the channel was deleted and made again with as many messages: begin anew
                held.checkpoints = deque([(held.checkpoints[-1][0], held.latest)])
        return [None if value is None else round(value / 1e6, 3) for value in merged.quantiles(quantiles)]


def read(told: LatencyHistogram) -> Histogram:
    return Histogram.from_dense(told.zero_count, told.offset, told.counts)
