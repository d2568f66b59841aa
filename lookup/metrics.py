"""What the registry tells Prometheus."""

from __future__ import annotations

from prometheus_client.core import GaugeMetricFamily, Metric

from lookup.registry import Registry


def registry_metrics(registry: Registry, now_ns: int) -> list[Metric]:
    """The registry's families; ``now_ns`` is in unix nanoseconds."""
    topics = registry.topics()
    nodes = list(registry.nodes(now_ns))
    tombstones = sum(topic.tombstoned for _, held in nodes for topic in held)
    producers = GaugeMetricFamily("nsq_lookup_producers", "Active nsqds that produce the topic.", labels=("topic",))
    for topic in topics:
        producers.add_metric((topic,), len(registry.producers(topic, now_ns)))
    return [
        GaugeMetricFamily("nsq_lookup_topics", "Topics in the registry.", len(topics)),
        GaugeMetricFamily(
            "nsq_lookup_channels", "Channels in the registry.", sum(len(registry.channels(topic)) for topic in topics)
        ),
        GaugeMetricFamily("nsq_lookup_nodes", "Active nsqds.", len(nodes)),
        GaugeMetricFamily("nsq_lookup_tombstones", "Topics of active nsqds that a tombstone hides.", tombstones),
        producers,
    ]
