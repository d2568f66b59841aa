"""``e2e_processing_latency`` in nsqadmin's two forms: of one node, and of several together.

Percentiles of several nodes cannot be merged without the distributions behind them. The keys are nsqadmin's: ``min``
and ``max`` bound the nodes' values, ``average`` is their mean weighted by count and no percentile. The platform's own
picture merges histograms instead. A percentile's keys are sorted: in nsqadmin it is a map, which Go writes so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nsqadmin.answers import Latency


def of_node(latency: Latency) -> dict[str, Any]:
    percentiles = [
        {
            "average": each.value,
            "count": latency.count,
            "max": each.value,
            "min": each.value,
            "quantile": each.quantile,
            "value": each.value,
        }
        for each in latency.percentiles or []
    ]
    return {"count": latency.count, "percentiles": percentiles or None, "topic": "", "channel": "", "host": ""}


def of_all(latencies: Sequence[Latency], *, topic: str, channel: str) -> dict[str, Any]:
    """Quantiles in the order in which the nodes name them. A node without samples has no say in ``min`` and ``max``,
    unless none has any."""
    held: dict[float, list[tuple[float, int]]] = {}
    for latency in latencies:
        for each in latency.percentiles or []:
            held.setdefault(each.quantile, []).append((each.value, latency.count))
    percentiles = []
    for quantile, pairs in held.items():
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
        "count": sum(latency.count for latency in latencies),
        "percentiles": percentiles or None,
        "topic": topic,
        "channel": channel,
        "host": "*",
    }
