"""The registry's Prometheus metrics."""

from __future__ import annotations

from collections.abc import Generator

from prometheus_client.core import GaugeMetricFamily, Metric

from nsqdaemon.http.metrics import Series, labels_text
from nsqlookup.registry import Registry
from nsqlookup.scheduler import sorted_in_steps


def registry_metrics(registry: Registry, now_ns: int) -> Generator[None, None, list[Metric | Series]]:
    """Return the registry's metric families, built in short steps. ``now_ns`` is Unix nanoseconds."""
    counts: dict[str, int] = {}
    for topic, count in registry.producer_counts(now_ns):
        counts[topic] = count
        yield
    producers = Series(GaugeMetricFamily("nsq_lookup_producers", "Active nsqds that produce the topic."))
    for topic in (yield from sorted_in_steps(list(counts))):
        producers.add(labels_text(topic=topic), counts[topic])
        yield
    return [
        GaugeMetricFamily("nsq_lookup_topics", "Topics in the registry.", len(counts)),
        GaugeMetricFamily("nsq_lookup_channels", "Channels in the registry.", registry.channel_count()),
        GaugeMetricFamily("nsq_lookup_nodes", "Active nsqds.", len(registry.nodes(now_ns))),
        GaugeMetricFamily(
            "nsq_lookup_tombstones", "Topics of active nsqds that a tombstone hides.", registry.tombstone_count(now_ns)
        ),
        producers,
    ]
