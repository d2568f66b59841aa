"""``e2e_processing_latency`` in nsqadmin's two forms: of one node, and of several nodes.

Percentiles of several nodes cannot be merged without the distributions behind them. The keys are nsqadmin's: ``min``
and ``max`` are those of the nodes' values; ``average`` is their mean weighted by count, which is not a percentile. The
platform's own snapshot merges histograms instead. A percentile's keys are sorted, because nsqadmin's is a Go map.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NotRequired, TypedDict

from nsqcluster.stats import Latency, Percentile


class PercentileShape(TypedDict):
    """Values are in nanoseconds."""

    average: float
    count: int
    max: float
    min: float
    quantile: float
    value: NotRequired[float]
    """Only of one node."""


class LatencyShape(TypedDict):
    count: int
    percentiles: list[PercentileShape] | None
    topic: str
    channel: str
    host: str
    """Empty for one node, ``*`` for several."""


def of_node(latency: Latency | None) -> LatencyShape:
    count, found = _counted(latency)
    percentiles: list[PercentileShape] = [
        {
            "average": each.value,
            "count": count,
            "max": each.value,
            "min": each.value,
            "quantile": each.quantile,
            "value": each.value,
        }
        for each in found
    ]
    return {"count": count, "percentiles": percentiles or None, "topic": "", "channel": "", "host": ""}


def of_all(latencies: Sequence[Latency | None], *, topic: str, channel: str) -> LatencyShape:
    """The percentiles of several nodes; quantiles in the nodes' order. ``min`` and ``max`` ignore nodes without
    samples, unless no node has samples."""
    by_quantile: dict[float, list[tuple[float, int]]] = {}
    for latency in latencies:
        count, found = _counted(latency)
        for each in found:
            by_quantile.setdefault(each.quantile, []).append((each.value, count))
    percentiles: list[PercentileShape] = []
    for quantile, pairs in by_quantile.items():
        count = sum(n for _, n in pairs)
        values = [value for value, n in pairs if n or not count]
        percentiles.append(
            {
                "average": sum(value * n for value, n in pairs) / count if count else 0,
                "count": count,
                "max": max(values),
                "min": min(values),
                "quantile": quantile,
            }
        )
    return {
        "count": sum(_counted(latency)[0] for latency in latencies),
        "percentiles": percentiles or None,
        "topic": topic,
        "channel": channel,
        "host": "*",
    }


def _counted(latency: Latency | None) -> tuple[int, list[Percentile]]:
    """Number of samples and percentiles; empty for a node without end-to-end percentiles."""
    return (0, []) if latency is None else (latency.count or 0, latency.percentiles)
