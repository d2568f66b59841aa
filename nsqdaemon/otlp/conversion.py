"""Converts metrics in Prometheus' text format to OpenTelemetry's metrics."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from nsqwire.units import Nanoseconds
from nsqwire.version import product_version

_CUMULATIVE: Final = AggregationTemporality.CUMULATIVE
_UNITS: Final = {"bytes": "By", "seconds": "s"}
"""OpenTelemetry's units, by the last part of a metric's name."""


def metrics_of(text: str, resource: Resource, start_ns: Nanoseconds, now_ns: Nanoseconds) -> MetricsData:
    """Convert counters to monotonic sums, histograms to histograms and other families to gauges.

    Names are those of the families, so counters have no ``_total``, which Prometheus adds to sums that it receives.
    ``start_ns`` is the start time of counters if the text has no ``process_start_time_seconds``.
    """
    families = list(text_string_to_metric_families(text))
    for family in families:
        if family.name.endswith("process_start_time_seconds") and family.samples:
            start_ns = int(family.samples[0].value * 1e9)
    metrics = [_metric(family, start_ns, now_ns) for family in families]
    scope = ScopeMetrics(InstrumentationScope("nsq", product_version()), metrics, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _metric(family: Family, start_ns: Nanoseconds, now_ns: Nanoseconds) -> Metric:
    data: Gauge | Sum | Histogram
    if family.type == "counter":
        samples = [sample for sample in family.samples if sample.name == f"{family.name}_total"]
        data = Sum([_point(sample, start_ns, now_ns) for sample in samples], _CUMULATIVE, is_monotonic=True)
    elif family.type == "histogram":
        data = Histogram(list(_histograms(family, start_ns, now_ns)), _CUMULATIVE)
    else:
        data = Gauge([_point(sample, None, now_ns) for sample in family.samples])
    return Metric(family.name, family.documentation, _UNITS.get(family.name.rpartition("_")[2], ""), data)


def _point(sample: Sample, start_ns: Nanoseconds | None, now_ns: Nanoseconds) -> NumberDataPoint:
    # floats, also where the text has "3": the type of a series must not change
    return NumberDataPoint(sample.labels, start_ns, now_ns, float(sample.value))  # type: ignore[arg-type]  # gauges have no start


def _histograms(family: Family, start_ns: Nanoseconds, now_ns: Nanoseconds) -> Iterator[HistogramDataPoint]:
    """One point for each combination of labels. Prometheus' buckets are cumulative, OpenTelemetry's are not."""
    found: dict[tuple[tuple[str, str], ...], dict[str, float]] = {}
    for sample in family.samples:
        labels = tuple((name, value) for name, value in sample.labels.items() if name != "le")
        key = sample.labels["le"] if sample.name == f"{family.name}_bucket" else sample.name.rpartition("_")[2]
        found.setdefault(labels, {})[key] = sample.value
    for labels, values in found.items():
        total, count = values.pop("sum", 0.0), values.pop("count", 0.0)
        yield _histogram(dict(labels), values, total, int(count), start_ns, now_ns)


def _histogram(
    labels: Mapping[str, str],
    cumulative: Mapping[str, float],
    total: float,
    count: int,
    start_ns: Nanoseconds,
    now_ns: Nanoseconds,
) -> HistogramDataPoint:
    buckets = sorted((float(bound), int(value)) for bound, value in cumulative.items())
    counts: Sequence[int] = [value - before for (_, before), (_, value) in pairwise([(0.0, 0), *buckets])]
    bounds = [bound for bound, _ in buckets if bound != math.inf]
    unknown: float = None  # type: ignore[assignment]  # OTLP's field is optional, the SDK's type is not
    return HistogramDataPoint(labels, start_ns, now_ns, count, total, counts, bounds, min=unknown, max=unknown)
