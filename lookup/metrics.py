"""What the registry tells Prometheus."""

from __future__ import annotations

from prometheus_client.core import GaugeMetricFamily, Metric

from lookup.registry import Registry


def registry_metrics(registry: Registry, now_ns: int) -> list[Metric]:
    """The registry's families; ``now_ns`` is in unix nanoseconds."""
    counts = registry.producer_counts(now_ns)
    producers = GaugeMetricFamily("nsq_lookup_producers", "Active nsqds that produce the topic.", labels=("topic",))
    for topic, count in sorted(counts.items()):
        producers.add_metric((topic,), count)
    return [
        GaugeMetricFamily("nsq_lookup_topics", "Topics in the registry.", len(counts)),
        GaugeMetricFamily("nsq_lookup_channels", "Channels in the registry.", registry.channel_count()),
        GaugeMetricFamily("nsq_lookup_nodes", "Active nsqds.", len(registry.nodes(now_ns))),
        GaugeMetricFamily(
            "nsq_lookup_tombstones", "Topics of active nsqds that a tombstone hides.", registry.tombstone_count(now_ns)
        ),
        producers,
    ]
