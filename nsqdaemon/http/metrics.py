"""``/metrics`` for Prometheus, with its official client library.

Import this module when a scrape is answered, not at startup: the library takes a tenth of the startup time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from prometheus_client import GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CollectorRegistry, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from nsqdaemon.http.messages import Response
from nsqwire.histogram import Histogram, bucket_of, midpoint
from nsqwire.version import NSQ_VERSION, product_version

_LINES_AT_ONCE: Final = 5000
_HEADER: Final = (b"Content-Type", CONTENT_TYPE_PLAIN_0_0_4.encode())

# The powers of two in nanoseconds from 131 µs to 37 min. They are also bounds of the exponential histogram, so the
# counts are exact.
_LATENCY_EXPONENTS: Final = range(17, 42)
_LATENCY_BOUNDS: Final = [(bucket_of(1 << exponent), repr((1 << exponent) / 1e9)) for exponent in _LATENCY_EXPONENTS]


class Series:
    """A family with many samples. They are formatted here, because the library takes ten times as long for each.

    The library writes the family's HELP and TYPE lines. Label values are NSQ names, which need no escapes.
    """

    def __init__(self, family: Metric) -> None:
        self.family = family
        self.lines: list[str] = []
        self._sample = f"{family.name}_total" if family.type == "counter" else family.name

    def add(self, labels: str, value: float) -> None:
        """Add a sample of a counter or gauge; ``labels`` is a result of :func:`labels_text`."""
        self.lines.append(f"{self._sample}{{{labels}}} {value:.16g}\n")

    def add_histogram(self, labels: str, buckets: list[tuple[str, float]], total: float) -> None:
        """Add a histogram's samples; ``buckets`` and ``total`` are a result of :func:`latency_buckets`."""
        for bound, count in buckets:
            self.lines.append(f'{self._sample}_bucket{{{labels},le="{bound}"}} {count:.16g}\n')
        self.lines.append(f"{self._sample}_count{{{labels}}} {buckets[-1][1]:.16g}\n")
        self.lines.append(f"{self._sample}_sum{{{labels}}} {total:.16g}\n")


def labels_text(**labels: str) -> str:
    """Labels in the text format, without the braces."""
    return ",".join([f'{label}="{value}"' for label, value in labels.items()])


async def metrics_response(families: Iterable[Metric | Series]) -> Response:
    """The families in Prometheus' text format. They are written in portions; other clients are served in between."""
    parts: list[bytes] = []
    for family in families:
        if isinstance(family, Metric):
            parts.append(generate_latest(_One(family)))
            continue
        parts.append(generate_latest(_One(family.family)))
        for start in range(0, len(family.lines), _LINES_AT_ONCE):
            parts.append("".join(family.lines[start : start + _LINES_AT_ONCE]).encode())
            await asyncio.sleep(0)
        family.lines.clear()
    return Response(200, parts, (_HEADER,))


def process_metrics(product: str) -> list[Metric]:
    """The metrics that each of our processes has: its build, and the library's metrics of process, platform and garbage
    collector."""
    build = GaugeMetricFamily(
        "nsq_build_info",
        "1, with the program and its versions as labels.",
        labels=["program", "version", "nsq_version"],
    )
    build.add_metric([product, product_version(), NSQ_VERSION], 1)
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return [build, *registry.collect()]


def latency_buckets(histogram: Histogram) -> tuple[list[tuple[str, float]], float]:
    """Convert to a classic Prometheus histogram: ``(le in seconds, cumulative count)`` pairs, and the sum in seconds.

    The counts are exact. The sum is computed from the buckets' midpoints, so it is within 1.1 %; it never decreases.
    """
    counts = sorted(histogram.counts.items())
    seen, position = histogram.zero_count, 0
    buckets: list[tuple[str, float]] = []
    for last, bound in _LATENCY_BOUNDS:
        while position < len(counts) and counts[position][0] <= last:
            seen += counts[position][1]
            position += 1
        buckets.append((bound, seen))
    buckets.append(("+Inf", histogram.count))
    return buckets, sum(midpoint(index) * count for index, count in counts) / 1e9


class _One(Collector):
    """A collector of one family, for the library's writer."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> list[Metric]:
        return [self._family]
