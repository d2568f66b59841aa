"""Latencies of nodes that tell no histogram, such as Go's: their own percentiles, which cannot be merged.

All that is true of a channel over several such nodes is that its percentile lies between their lowest and highest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cluster.latency import QUANTILES, Key
from cluster.stats import NodeStats

Range = list[float]
"""Lowest and highest, in ms."""
UNKNOWN: Sequence[Range | None] = (None,) * len(QUANTILES)


class Ranges:
    """Of each channel, at each of QUANTILES, what the nodes' own percentiles span."""

    def __init__(self, answers: Iterable[NodeStats]) -> None:
        self._found: dict[Key, list[Range | None]] = {}
        for stats in answers:
            for topic in stats.topics:
                for channel in topic.channels:
                    latency = channel.e2e_processing_latency
                    if channel.latency_histogram is None and latency is not None and latency.percentiles_or_null:
                        own = {each.quantile: each.value / 1e6 for each in latency.percentiles_or_null}
                        if latency.count != 0:
                            self._widen((topic.topic_name, channel.channel_name), own)

    def _widen(self, key: Key, own: Mapping[float, float]) -> None:
        found = self._found.setdefault(key, [*UNKNOWN])
        for place, quantile in enumerate(QUANTILES):
            value = own.get(quantile)
            if value is not None:
                found[place] = wider(found[place], short(value))

    def of(self, key: Key, merged_ms: Sequence[float | None]) -> Sequence[Range | None]:
        """With what was merged from the other nodes' histograms; None where no node tells percentiles of its own."""
        found = self._found.get(key)
        if found is None:
            return UNKNOWN
        return [
            one if one is None or merged is None else wider(one, merged)
            for one, merged in zip(found, merged_ms, strict=True)
        ]


def wider(found: Range | None, value: float) -> Range:
    return [value, value] if found is None else [min(found[0], value), max(found[1], value)]


def short(value: float) -> float:
    """Three digits: a range is no exact thing, and is sent to every browser."""
    return float(f"{value:.3g}")
