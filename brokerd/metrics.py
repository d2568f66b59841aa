"""The broker's Prometheus metrics."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from nsqdaemon.http.metrics import Series, labels_text, latency_buckets

if TYPE_CHECKING:
    from brokerd.broker import Broker
    from brokerd.channel import Channel
    from brokerd.topic import Topic


class BrokerMetrics:
    """The metric families of one scrape. ``add_topic`` adds one topic; the samples of a family stay together."""

    def __init__(self) -> None:
        self.families: list[Metric | Series] = []
        topic, channel = ("topic",), ("topic", "channel")
        self._topic_messages = self._counter("nsq_topic_messages", "Messages published.", topic)
        self._topic_bytes = self._counter("nsq_topic_message_bytes", "Bytes of message bodies published.", topic)
        self._topic_depth = self._gauge("nsq_topic_depth", "Messages that wait for a channel.", topic)
        self._topic_backend = self._gauge(
            "nsq_topic_backend_depth", "The part of the depth that nsqd would keep on disk.", topic
        )
        self._topic_paused = self._gauge("nsq_topic_paused", "1 while the topic is paused.", topic)
        self._topic_emptied = self._counter(
            "nsq_topic_emptied_messages", "Messages removed by emptying the topic.", topic
        )
        self._topic_lost = self._counter("nsq_topic_lost_messages", "Undelivered messages that were lost.", topic)
        self._topic_log = self._gauge("nsq_topic_log_bytes", "Bytes of messages in the log.", topic)
        self._topic_allocated = self._gauge(
            "nsq_topic_log_allocated_bytes", "Bytes that the log's files take on disk.", topic
        )
        self._messages = self._counter(
            "nsq_channel_messages", "Messages that the topic routed to the channel.", channel
        )
        self._requeues = self._counter("nsq_channel_requeues", "Messages that consumers requeued.", channel)
        self._timeouts = self._counter("nsq_channel_timeouts", "Deliveries that timed out.", channel)
        self._emptied = self._counter(
            "nsq_channel_emptied_messages", "Messages that operators removed from the channel.", channel
        )
        self._rewound = self._counter(
            "nsq_channel_rewound_messages", "Finished or emptied messages that a rewind returned.", channel
        )
        self._dead = self._gauge(
            "nsq_channel_dead", "Messages that the channel does not deliver any more, by reason.", (*channel, "reason")
        )
        self._died = self._counter("nsq_channel_died_messages", "Messages that died.", (*channel, "reason"))
        self._dropped = self._counter(
            "nsq_channel_dropped_messages",
            "Messages that the channel dropped: too old, or too many.",
            (*channel, "reason"),
        )
        self._depth = self._gauge("nsq_channel_depth", "Messages that wait for a consumer.", channel)
        self._backend = self._gauge(
            "nsq_channel_backend_depth", "The part of the depth that nsqd would keep on disk.", channel
        )
        self._in_flight = self._gauge("nsq_channel_in_flight", "Messages sent to consumers and not finished.", channel)
        self._deferred = self._gauge("nsq_channel_deferred", "Messages that are not due yet.", channel)
        self._clients = self._gauge("nsq_channel_clients", "Connected consumers.", channel)
        self._paused = self._gauge("nsq_channel_paused", "1 while the channel is paused.", channel)
        self._oldest = self._gauge(
            "nsq_channel_oldest_unfinished_age_seconds",
            "Age of the oldest message that no consumer has finished; 0 if there is none.",
            channel,
        )
        self._latency = self._series(
            HistogramMetricFamily(
                "nsq_channel_latency_seconds",
                "From publish to finish, for channels with finished messages. The sum is within 1.1 %.",
                labels=channel,
            )
        )

    def add_node(self, broker: Broker) -> None:
        """The metrics of the broker as a whole."""
        self._add_mirror(broker)
        channels = sum(len(topic.channels) for topic in broker.topics.values())
        self.families += [
            GaugeMetricFamily(
                "nsq_healthy", "1 while the disk accepts writes.", int(broker.storage.disk_error is None)
            ),
            CounterMetricFamily(
                "nsq_lost_messages",
                "Undelivered messages found damaged or missing.",
                broker.storage.lost_message_count,
            ),
            GaugeMetricFamily("nsq_clients", "TCP connections.", len(broker.clients)),
            GaugeMetricFamily("nsq_topics", "Topics.", len(broker.topics)),
            GaugeMetricFamily("nsq_channels", "Channels of all topics.", channels),
            CounterMetricFamily(
                "nsq_delivery_failures",
                "Failed deliveries and timers of channels, which are retried.",
                broker.runtime.supervisor.failure_count,
            ),
            GaugeMetricFamily(
                "nsq_journal_bytes", "Bytes in the journal since its last checkpoint.", broker.storage.journal_bytes
            ),
        ]

    def _add_mirror(self, broker: Broker) -> None:
        """The metrics of a mirrored node."""
        if broker.mirror_figures is None:
            return
        figures = broker.mirror_figures()
        self.families += [
            GaugeMetricFamily(
                "nsq_mirror_under_replicated",
                "1 while no other member of the pair is in sync.",
                int(figures["under_replicated"]),
            ),
            GaugeMetricFamily("nsq_mirror_epoch", "Number of the pair's term.", figures["epoch"]),
            GaugeMetricFamily("nsq_mirror_lag_bytes", "Bytes that the follower has not applied.", figures["lag_bytes"]),
            GaugeMetricFamily(
                "nsq_mirror_lag_seconds",
                "Time since the follower last applied a change, while it has changes to apply.",
                figures["lag_seconds"],
            ),
        ]

    def add_topic(self, topic: Topic) -> None:
        """Add the present figures of a topic and its channels."""
        labels = labels_text(topic=topic.name)
        self._topic_messages.add(labels, topic.message_count)
        self._topic_bytes.add(labels, topic.message_bytes)
        self._topic_depth.add(labels, topic.depth)
        self._topic_backend.add(labels, topic.backend_depth)
        self._topic_paused.add(labels, topic.paused)
        self._topic_emptied.add(labels, topic.emptied_count)
        self._topic_lost.add(labels, topic.lost_message_count)
        self._topic_log.add(labels, sum(segment.end for segment in topic.log.segments))
        self._topic_allocated.add(labels, sum(segment.allocated_bytes for segment in topic.log.segments))
        now_ns = time.time_ns()
        for channel in topic.channels.values():
            self._add_channel(channel, labels_text(channel=channel.name, topic=topic.name), now_ns)

    def _add_channel(self, channel: Channel, labels: str, now_ns: int) -> None:
        depth = channel.depth
        self._messages.add(labels, channel.message_count)
        self._requeues.add(labels, channel.requeue_count)
        self._timeouts.add(labels, channel.timeout_count)
        self._emptied.add(labels, channel.emptied_count)
        self._rewound.add(labels, channel.rewound_count)
        by_reason = (
            (self._dead, channel.dead.counts),
            (self._died, channel.redelivery.died),
            (self._dropped, channel.limits.dropped),
        )
        for series, counts in by_reason:
            for reason, count in counts.items():
                series.add(f'{labels},reason="{reason.value}"', count)
        self._depth.add(labels, depth)
        self._backend.add(labels, channel.beyond_memory(depth))
        self._in_flight.add(labels, channel.in_flight_count)
        self._deferred.add(labels, channel.deferred_count)
        self._clients.add(labels, len(channel.clients))
        self._paused.add(labels, channel.paused)
        self._oldest.add(labels, (channel.oldest_unfinished_age_ns(now_ns) or 0) / 1e9)
        histogram = channel.histogram
        if histogram.count:
            self._latency.add_histogram(labels, *latency_buckets(histogram))

    def _gauge(self, name: str, documentation: str, labels: Sequence[str]) -> Series:
        return self._series(GaugeMetricFamily(name, documentation, labels=labels))

    def _counter(self, name: str, documentation: str, labels: Sequence[str]) -> Series:
        return self._series(CounterMetricFamily(name, documentation, labels=labels))

    def _series(self, family: Metric) -> Series:
        series = Series(family)
        self.families.append(series)
        return series
